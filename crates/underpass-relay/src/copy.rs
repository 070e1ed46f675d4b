//! Bytes from one socket to the other, in one direction. Two of these make a connection.
//!
//! Small messages are read into the worker's one buffer and written at once, or together with those of other connections (outbox): no
//! delay, and nothing is kept for a connection that is idle. When a read fills that buffer there is bulk, and the direction borrows a pipe: from then on the kernel moves
//! whole network buffers (splice), until a move is small again. What the receiver does not take is held, and nothing more is read until
//! it is gone: that is the backpressure.
//!
//! An end is passed on as it came: end of stream as a half-close, after everything before it; a failure is the caller's to pass on.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};

use crate::outbox::{LARGEST, Outbox, Sender};
use crate::pipes::{Pipe, Pipes};

/// The worker's buffer for reads. A read that fills it means bulk.
pub(crate) const SCRATCH_BYTES: usize = 16 * 1024;
/// What one move asks for; the pipe gives less when it is full.
const MOVE_BYTES: usize = 1024 * 1024;
/// A move below this is no bulk any more: copying is cheaper.
const SMALL_MOVE: usize = 4 * 1024;
/// After so much in one go, others get their turn.
const TURN_BYTES: usize = 1024 * 1024;

/// What the directions of a worker share.
pub(crate) struct Tools {
    pub(crate) scratch: Box<[u8]>,
    pub(crate) pipes: Pipes,
    pub(crate) outbox: Option<Outbox>,
}

impl Tools {
    pub(crate) fn new(outbox: Option<Outbox>) -> Self {
        Self { scratch: vec![0; SCRATCH_BYTES].into(), pipes: Pipes::default(), outbox }
    }

    /// Whether the round that begins may bring more than one message.
    pub(crate) fn expect_many(&mut self, many: bool) {
        if let Some(outbox) = &mut self.outbox {
            outbox.open = many;
        }
    }

    fn may_post(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.open && !outbox.is_full())
    }

    /// After a defect the buffer may be gone with whoever had taken it.
    pub(crate) fn restore(&mut self) {
        if self.scratch.is_empty() {
            self.scratch = vec![0; SCRATCH_BYTES].into();
        }
    }
}

/// A socket, and what the kernel last said about it. Events come once per change, so what they said is remembered until a call
/// disproves it.
pub(crate) struct Side {
    pub(crate) fd: OwnedFd,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The peer has ended its stream: what is there to be read is the last of it.
    pub(crate) ending: bool,
    /// The connection is broken; the error itself may have been told to a write already.
    pub(crate) failed: bool,
    /// The peer has sent urgent data, before which a read stops short: only one that finds nothing says that nothing is there.
    urgent: bool,
    /// We have ended our stream to it.
    pub(crate) shut: bool,
    /// Whether the kernel was asked to tell when it can be written to again.
    pub(crate) room_announced: bool,
}

impl Side {
    /// A connected socket: writing may be tried, reading after an event.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            readable: false,
            writable: true,
            ending: false,
            failed: false,
            urgent: false,
            shut: false,
            room_announced: false,
        }
    }
}

impl Side {
    /// Urgent data comes as ordinary bytes, at its place. Hardly anybody sends any, so no socket is asked for that before.
    pub(crate) fn take_urgent(&mut self) {
        if !self.urgent {
            self.urgent = true;
            // If it fails the urgent byte is lost, and nothing else.
            let _ = sockopt::set_socket_oobinline(&self.fd, true);
        }
    }

    /// After a read that returned less than asked for: whether there may be bytes, an end or an error still to be read.
    pub(crate) fn may_have_more(&self) -> bool {
        self.ending || self.failed || self.urgent
    }

    /// A read has returned nothing. After a failure whose error a write was told, it does so too: so the end is believed only when its
    /// event has come, which cannot fail to.
    fn ended(&mut self) -> Result<bool, Broken> {
        if self.failed {
            return Err(Broken::Sender(Errno::CONNRESET));
        }
        self.readable = self.ending;
        Ok(self.ending)
    }
}

/// One direction of a connection.
#[derive(Default)]
pub(crate) struct Direction {
    held: Held,
    end: End,
    /// What was read from the sender.
    pub(crate) bytes: u64,
}

/// What was read and not yet written.
#[derive(Default)]
enum Held {
    #[default]
    Nothing,
    /// It lies in the worker's outbox.
    Posted,
    Bytes {
        buffer: Box<[u8]>,
        written: usize,
    },
    /// The direction is in bulk; `full` bytes are in the pipe. After a small move, bulk is over once they are out.
    Pipe {
        pipe: Pipe,
        full: usize,
        small: bool,
    },
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    /// Read from the sender, not yet passed on.
    Read,
    Passed,
}

/// How far a pump came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pumped {
    /// An event is needed to go on.
    Waiting,
    /// There is more to do; others go first.
    Again,
    /// The end was passed on; nothing will follow.
    Finished,
}

/// Which socket of a direction failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    Sender(Errno),
    Receiver(Errno),
}

impl Direction {
    /// Takes bytes that were read elsewhere and not yet written; they go first.
    pub(crate) fn hold(&mut self, bytes: &[u8]) {
        self.held = Held::Bytes { buffer: bytes.into(), written: 0 };
    }

    pub(crate) fn is_posted(&self) -> bool {
        matches!(self.held, Held::Posted)
    }

    /// What was posted has been sent, but for the rest.
    pub(crate) fn sent(&mut self, to: &mut Side, sent: Result<usize, Errno>, rest: &[u8]) -> Result<(), Broken> {
        match sent {
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => to.writable = false,
            Err(errno) => return Err(Broken::Receiver(errno)),
        }
        self.held = Held::Nothing;
        if !rest.is_empty() {
            self.hold(rest);
        }
        Ok(())
    }

    /// Whether there is nothing to do before the next event.
    pub(crate) fn is_at_rest(&self, from: &Side) -> bool {
        matches!(self.held, Held::Nothing) && self.end == End::Open && !from.readable
    }

    pub(crate) fn has_pipe(&self) -> bool {
        matches!(self.held, Held::Pipe { .. })
    }

    /// Moves what can be moved now, and passes the end on when it is reached. When it is `last` in doing so, that is left to the close
    /// that follows.
    pub(crate) fn pump(
        &mut self,
        from: &mut Side,
        to: &mut Side,
        last: bool,
        sender: Sender,
        tools: &mut Tools,
    ) -> Result<Pumped, Broken> {
        match self.advance(from, to, Some(sender), tools)? {
            Pumped::Finished if self.end == End::Read && !last => self.pass_end(to, tools),
            pumped => Ok(pumped),
        }
    }

    pub(crate) fn finished(&self) -> bool {
        self.end == End::Passed
    }

    /// The sender has failed. What it had sent before still goes out, as far as it is taken at once; its end is no end.
    pub(crate) fn salvage(&mut self, from: &mut Side, to: &mut Side, tools: &mut Tools) {
        while self.advance(from, to, None, tools) == Ok(Pumped::Again) {}
    }

    /// Messages may be posted when the sender is told.
    fn advance(
        &mut self,
        from: &mut Side,
        to: &mut Side,
        sender: Option<Sender>,
        tools: &mut Tools,
    ) -> Result<Pumped, Broken> {
        let turn = self.bytes + TURN_BYTES as u64;
        loop {
            if !self.flush(to)? {
                return Ok(Pumped::Waiting);
            }
            if self.end != End::Open {
                return Ok(Pumped::Finished);
            }
            if !from.readable || !to.writable {
                return Ok(Pumped::Waiting);
            }
            if self.bytes >= turn {
                return Ok(Pumped::Again);
            }
            match self.held {
                // To a pipe the kernel moves nothing beyond urgent data.
                Held::Pipe { small: false, .. } if !from.urgent => self.fill_pipe(from)?,
                Held::Pipe { .. } => self.rest(&mut tools.pipes),
                // Before an end everything goes out at once: what follows may be a close.
                _ => match sender.filter(|_| tools.may_post() && !from.may_have_more()) {
                    Some(sender) => self.read_and_post(from, to, sender, tools)?,
                    None => self.read_and_write(from, to, tools)?,
                },
            }
        }
    }

    /// Gives an empty pipe back; whoever has not moved anything for a while does not need it.
    pub(crate) fn rest(&mut self, pipes: &mut Pipes) {
        match std::mem::take(&mut self.held) {
            Held::Pipe { pipe, full: 0, .. } => pipes.give_back(pipe),
            held => self.held = held,
        }
    }

    /// At the end of the connection, whatever is still held.
    pub(crate) fn drop_into(self, pipes: &mut Pipes) {
        match self.held {
            Held::Pipe { pipe, full: 0, .. } => pipes.give_back(pipe),
            Held::Pipe { pipe, .. } => pipes.discard(pipe),
            Held::Nothing | Held::Posted | Held::Bytes { .. } => {}
        }
    }

    /// Writes what is held; true when nothing is left.
    fn flush(&mut self, to: &mut Side) -> Result<bool, Broken> {
        loop {
            let (result, left) = match &mut self.held {
                Held::Nothing | Held::Pipe { full: 0, .. } => return Ok(true),
                Held::Posted => return Ok(false),
                _ if !to.writable => return Ok(false),
                Held::Bytes { buffer, written } => (write(to, &buffer[*written..]), buffer.len() - *written),
                Held::Pipe { pipe, full, .. } => (pipe.drain_to(&to.fd, *full), *full),
            };
            match result {
                Ok(moved) => self.written(moved, left),
                Err(Errno::AGAIN) => to.writable = false,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Broken::Receiver(errno)),
            }
        }
    }

    fn written(&mut self, moved: usize, left: usize) {
        match &mut self.held {
            Held::Bytes { .. } if moved == left => self.held = Held::Nothing,
            Held::Bytes { written, .. } => *written += moved,
            Held::Pipe { full, .. } => *full -= moved,
            Held::Nothing | Held::Posted => {}
        }
    }

    fn read_and_write(&mut self, from: &mut Side, to: &mut Side, tools: &mut Tools) -> Result<(), Broken> {
        debug_assert!(
            !tools.scratch.is_empty(),
            "somebody else holds the buffer, and nothing read would look like the end"
        );
        let Some(read) = self.read(from, &mut tools.scratch)? else { return Ok(()) };
        self.write_read(to, &tools.scratch[..read], &mut tools.pipes)
    }

    /// As above, but a small message is sent together with others.
    fn read_and_post(
        &mut self,
        from: &mut Side,
        to: &mut Side,
        sender: Sender,
        tools: &mut Tools,
    ) -> Result<(), Broken> {
        let Tools { outbox: Some(outbox), pipes, .. } = tools else { return Ok(()) };
        match self.read(from, outbox.room())? {
            Some(read) if read <= LARGEST => {
                outbox.post(sender, &to.fd, read);
                self.held = Held::Posted;
                Ok(())
            }
            Some(read) => self.write_read(to, &outbox.room()[..read], pipes),
            None => Ok(()),
        }
    }

    /// Reads once; None when there was nothing.
    fn read(&mut self, from: &mut Side, buffer: &mut [u8]) -> Result<Option<usize>, Broken> {
        let read = match recv(&from.fd, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => return self.read_nothing(from).map(|()| None),
            Ok((read, _)) => read,
            Err(errno) => return not_read(from, errno).map(|()| None),
        };
        self.bytes += read as u64;
        let bulk = read == buffer.len();
        if !bulk && !from.may_have_more() {
            // Less than asked for: the socket is empty, and the next byte will be announced.
            from.readable = false;
        } else if !bulk && !from.failed && !from.urgent {
            // Less than asked for, and nothing can follow: the end is known without reading it.
            self.end = End::Read;
        }
        Ok(Some(read))
    }

    /// Writes what was just read, and holds what is left of it.
    fn write_read(&mut self, to: &mut Side, bytes: &[u8], pipes: &mut Pipes) -> Result<(), Broken> {
        let written = match write(to, bytes) {
            Ok(written) => written,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return Err(Broken::Receiver(errno)),
        };
        if written < bytes.len() {
            self.hold(&bytes[written..]);
        } else if bytes.len() == SCRATCH_BYTES
            && let Some(pipe) = pipes.lend()
        {
            self.held = Held::Pipe { pipe, full: 0, small: false };
        }
        Ok(())
    }

    /// Called with an empty pipe only, so that "try again" can only mean an empty socket.
    fn fill_pipe(&mut self, from: &mut Side) -> Result<(), Broken> {
        let Held::Pipe { pipe, full, small } = &mut self.held else { return Ok(()) };
        match pipe.fill_from(&from.fd, MOVE_BYTES) {
            Ok(0) => self.read_nothing(from)?,
            Ok(moved) => {
                self.bytes += moved as u64;
                *full = moved;
                *small = moved < SMALL_MOVE;
            }
            Err(errno) => not_read(from, errno)?,
        }
        Ok(())
    }

    fn read_nothing(&mut self, from: &mut Side) -> Result<(), Broken> {
        if from.ended()? {
            self.end = End::Read;
        }
        Ok(())
    }

    fn pass_end(&mut self, to: &mut Side, tools: &mut Tools) -> Result<Pumped, Broken> {
        self.rest(&mut tools.pipes);
        self.end = End::Passed;
        to.shut = true;
        match shutdown(&to.fd, Shutdown::Write) {
            // Not connected any more: its own event tells.
            Ok(()) | Err(Errno::NOTCONN) => Ok(Pumped::Finished),
            Err(errno) => Err(Broken::Receiver(errno)),
        }
    }
}

/// Writes once; what did not fit says that the socket is full.
pub(crate) fn write(to: &mut Side, bytes: &[u8]) -> Result<usize, Errno> {
    let written = send(&to.fd, bytes, SendFlags::NOSIGNAL);
    match written {
        Ok(written) if written < bytes.len() => to.writable = false,
        Err(Errno::AGAIN) => to.writable = false,
        _ => {}
    }
    written
}

fn not_read(from: &mut Side, errno: Errno) -> Result<(), Broken> {
    match errno {
        Errno::AGAIN => {
            from.readable = false;
            Ok(())
        }
        Errno::INTR => Ok(()),
        errno => Err(Broken::Sender(errno)),
    }
}
