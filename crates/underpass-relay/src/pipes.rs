//! Pipes, through which the kernel moves bytes from socket to socket without showing them to us. Made once and lent out: making one
//! costs three system calls, and a user may own only so many pages of them.

use std::os::fd::OwnedFd;

use rustix::io;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// Room for 64 pieces, each of which can be a whole network buffer.
const PIPE_BYTES: usize = 256 * 1024;
/// How many a worker keeps when nobody needs them.
const KEPT: usize = 32;
/// How many a worker has at most; further bulk transfers are copied until one comes back.
const MOST: usize = 256;

/// A pipe with nothing in it, or with what its borrower put there.
pub(crate) struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Pipe {
    /// Moves what the socket has, at most what fits.
    pub(crate) fn fill_from(&self, socket: &OwnedFd, most: usize) -> io::Result<usize> {
        splice(socket, None, &self.writer, None, most, SpliceFlags::NONBLOCK | SpliceFlags::MOVE)
    }

    pub(crate) fn drain_to(&self, socket: &OwnedFd, most: usize) -> io::Result<usize> {
        splice(&self.reader, None, socket, None, most, SpliceFlags::NONBLOCK | SpliceFlags::MOVE)
    }
}

#[derive(Default)]
pub(crate) struct Pipes {
    kept: Vec<Pipe>,
    lent: usize,
}

impl Pipes {
    /// None when there are too many already or the system gives no more; then bytes are copied.
    pub(crate) fn lend(&mut self) -> Option<Pipe> {
        let pipe = match self.kept.pop() {
            Some(pipe) => pipe,
            None if self.lent < MOST => make()?,
            None => return None,
        };
        self.lent += 1;
        Some(pipe)
    }

    /// Takes back an empty one.
    pub(crate) fn give_back(&mut self, pipe: Pipe) {
        self.lent -= 1;
        if self.kept.len() < KEPT {
            self.kept.push(pipe);
        }
    }

    /// One that still has bytes in it, which nobody wants any more, cannot be lent again.
    pub(crate) fn discard(&mut self, pipe: Pipe) {
        self.lent -= 1;
        drop(pipe);
    }
}

fn make() -> Option<Pipe> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
    // Refused when the user's share of pipe pages is used up: it then works with what it has.
    let _ = fcntl_setpipe_size(&writer, PIPE_BYTES);
    Some(Pipe { reader, writer })
}
