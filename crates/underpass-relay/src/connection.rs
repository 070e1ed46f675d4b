//! One connection: opening (what does it want?), connecting (to whom?), carrying, and parting when it was refused with an answer. Each
//! event moves it as far as it can go without waiting.

mod carrying;
mod connecting;
mod opening;

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown, sockopt};
use underpass_tables::Expects;

use crate::connect::Connecting;
use crate::context::Context;
use crate::copy::{Direction, Side, write};
use crate::inspect::Found;
use crate::outbox::Which;
use crate::record::{Carried, End, Record};
use crate::slab::Key;
use crate::token::Token;

/// How long a client may take to say what it wants.
const HELLO_MS: u64 = 10_000;
/// How long a port with one plain backend waits for a client that may want the server to speak first.
const SILENCE_MS: u64 = 300;
/// How long a refused client may take to read why.
const PARTING_MS: u64 = 2_000;
const NEVER: u64 = u64::MAX;

pub(crate) struct Connection {
    client: Side,
    upstream: Option<Side>,
    /// From the client.
    up: Direction,
    /// To the client.
    down: Direction,
    stage: Stage,
    record: Record,
    /// Whether the client's socket is known to epoll.
    watched: bool,
    kept_alive: bool,
    /// Whether it has more to do and waits for its turn.
    has_more: bool,
    /// Whether it counts among those that are limited.
    limited: bool,
    /// When something was last moved.
    moved_ms: u64,
    /// When it has to end, if its route was removed or the process ends.
    drain_ms: u64,
}

enum Stage {
    /// Nothing is held for a client that has sent nothing.
    Opening(Option<Box<Received>>),
    Connecting(Box<Connecting>),
    /// For a connection from the stock, which is then sent these bytes.
    Waiting(Box<Waiting>),
    Carrying,
    /// It was refused, and is still being told.
    Parting(End),
}

/// An opening that came in pieces.
struct Received {
    bytes: Vec<u8>,
    need: usize,
}

struct Waiting {
    bytes: Vec<u8>,
    since_ms: u64,
    until_ms: u64,
}

/// What becomes of a connection after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stay,
    Gone(End),
}

impl Connection {
    pub(crate) fn new(client: OwnedFd, record: Record, limited: bool, now_ms: u64) -> Self {
        let mut client = Side::new(client);
        // Often the hello is there already; if not, one call tells.
        client.readable = true;
        Self {
            client,
            upstream: None,
            up: Direction::default(),
            down: Direction::default(),
            stage: Stage::Opening(None),
            record,
            watched: false,
            kept_alive: false,
            has_more: false,
            limited,
            moved_ms: now_ms,
            drain_ms: NEVER,
        }
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.limited
    }

    /// The first look, right after accept.
    pub(crate) fn begin(&mut self, key: Key, ctx: &mut Context) -> Fate {
        let expects = self.expects(ctx);
        // What stands ready says nothing yet, and its event comes even if it has spoken before it is watched.
        let mut fate = if expects == Expects::StreamHeader { Fate::Stay } else { self.read_opening(key, ctx) };
        if fate == Fate::Stay && self.is_silent() && expects == Expects::Nothing {
            fate = self.decide(key, &Found::plain(), &[], ctx);
        }
        match fate {
            Fate::Stay if self.watch_client(key, ctx).is_err() => Fate::Gone(End::ClientLeft),
            Fate::Stay => {
                self.set_opening_deadline(key, ctx);
                Fate::Stay
            }
            gone => gone,
        }
    }

    /// Sets when something has to happen without an event, by what it is at.
    fn set_deadline(&self, key: Key, ctx: &mut Context) {
        match &self.stage {
            Stage::Opening(_) => self.set_opening_deadline(key, ctx),
            Stage::Connecting(connecting) => self.wake_by(key, connecting.next_deadline_ms(), ctx),
            Stage::Waiting(waiting) => self.wake_by(key, waiting.until_ms, ctx),
            Stage::Carrying => self.set_carrying_deadline(key, ctx),
            Stage::Parting(_) => self.wake_by(key, ctx.now_ms + PARTING_MS, ctx),
        }
    }

    fn set_opening_deadline(&self, key: Key, ctx: &mut Context) {
        let Stage::Opening(received) = &self.stage else { return };
        let deadline = match self.expects(ctx) {
            // It stands ready until it is used.
            Expects::StreamHeader if received.is_none() => NEVER,
            Expects::StreamHeader => ctx.now_ms + HELLO_MS,
            _ if self.after_silence(ctx).is_some() => ctx.now_ms + SILENCE_MS,
            _ => self.record.started_ms() + HELLO_MS,
        };
        self.wake_by(key, deadline, ctx);
    }

    /// At its deadline, or when it has to end, whichever is first.
    fn wake_by(&self, key: Key, deadline_ms: u64, ctx: &mut Context) {
        match deadline_ms.min(self.drain_ms) {
            NEVER => ctx.wheel.clear(key.index),
            first => ctx.wheel.set(key.index, first),
        }
    }

    /// Whether it has sent nothing yet.
    fn is_silent(&self) -> bool {
        matches!(self.stage, Stage::Opening(None))
    }

    fn expects(&self, ctx: &Context) -> Expects {
        ctx.live.listener(self.record.listener()).map_or(Expects::Hello, |listener| listener.expects)
    }

    pub(crate) fn on_client(&mut self, key: Key, flags: EventFlags, ctx: &mut Context) -> Fate {
        note(&mut self.client, flags);
        match &self.stage {
            Stage::Opening(_) => self.read_opening(key, ctx),
            Stage::Connecting(connecting) if flags.contains(EventFlags::ERR) => {
                // An endpoint may have answered already, and then learns of it as of any other failure.
                connecting.sockets().for_each(reset);
                Fate::Gone(End::ClientLeft)
            }
            Stage::Waiting(_) if flags.contains(EventFlags::ERR) => Fate::Gone(End::ClientLeft),
            Stage::Connecting(_) | Stage::Waiting(_) => Fate::Stay,
            Stage::Carrying => self.carry_after(key, Which::Client, ctx),
            Stage::Parting(_) => {
                self.take_another_turn(key, ctx);
                Fate::Stay
            }
        }
    }

    pub(crate) fn on_upstream(&mut self, key: Key, flags: EventFlags, rival: bool, ctx: &mut Context) -> Fate {
        match &mut self.stage {
            Stage::Connecting(_) => self.attempt_ended(key, rival, flags, ctx),
            Stage::Carrying => {
                if let Some(upstream) = &mut self.upstream {
                    note(upstream, flags);
                }
                self.carry_after(key, Which::Upstream, ctx)
            }
            Stage::Opening(_) | Stage::Waiting(_) | Stage::Parting(_) => Fate::Stay,
        }
    }

    /// Has it go on after others had their turn: once, however often this is asked for.
    fn take_another_turn(&mut self, key: Key, ctx: &mut Context) {
        if !self.has_more {
            self.has_more = true;
            ctx.again.push(key);
        }
    }

    /// Goes on after others had their turn.
    pub(crate) fn again(&mut self, key: Key, ctx: &mut Context) -> Fate {
        self.has_more = false;
        match self.stage {
            Stage::Carrying => self.carry(key, ctx),
            Stage::Parting(end) => self.part(key, end, ctx),
            Stage::Opening(_) | Stage::Connecting(_) | Stage::Waiting(_) => Fate::Stay,
        }
    }

    pub(crate) fn on_deadline(&mut self, key: Key, ctx: &mut Context) -> Fate {
        match &self.stage {
            Stage::Opening(_) | Stage::Connecting(_) | Stage::Waiting(_) if self.drain_ms <= ctx.now_ms => {
                Fate::Gone(End::Drained)
            }
            Stage::Opening(_) => match self.after_silence(ctx) {
                Some(found) => self.carry_plain(key, &found, ctx),
                None => Fate::Gone(End::HelloTimeout),
            },
            Stage::Connecting(_) => self.connecting_deadline(key, ctx),
            Stage::Waiting(_) => self.unreachable(End::ConnectTimeout),
            Stage::Carrying => self.carrying_deadline(key, ctx),
            Stage::Parting(end) => Fate::Gone(*end),
        }
    }

    /// A new table is in force. Whoever came in under a route that it does not have ends after the drain time, unless the route comes
    /// back before.
    pub(crate) fn on_table(&mut self, key: Key, ctx: &mut Context) {
        let removed = |record: &Record| record.chosen.as_ref().is_some_and(|chosen| chosen.route.removed.load(Relaxed));
        match (removed(&self.record), self.drain_ms) {
            (true, NEVER) => self.end_within(key, ctx.live.table.drain, ctx),
            (true, _) | (false, NEVER) => {}
            (false, _) if ctx.shared.draining.load(Relaxed) => {}
            (false, _) => self.stay(key, ctx),
        }
    }

    fn stay(&mut self, key: Key, ctx: &mut Context) {
        self.drain_ms = NEVER;
        self.set_deadline(key, ctx);
    }

    pub(crate) fn end_within(&mut self, key: Key, time: Duration, ctx: &mut Context) {
        // What only stands ready has nothing to end.
        let time = if self.is_silent() && self.expects(ctx) == Expects::StreamHeader { Duration::ZERO } else { time };
        self.drain_ms = self.drain_ms.min(ctx.now_ms + millis(time));
        self.set_deadline(key, ctx);
    }

    /// Gives pipes back that are no longer needed; true while one still is.
    pub(crate) fn rest(&mut self, ctx: &mut Context) -> bool {
        let quiet = ctx.now_ms - self.moved_ms >= 1000;
        if quiet {
            self.up.rest(&mut ctx.tools.pipes);
            self.down.rest(&mut ctx.tools.pipes);
        }
        self.up.has_pipe() || self.down.has_pipe()
    }

    /// It has said what it wants, or never will.
    fn opened(&self, ctx: &Context) {
        if self.limited {
            ctx.shared.opened();
        }
    }

    pub(crate) fn finish(self, key: Key, end: End, ctx: &mut Context) {
        match &self.stage {
            Stage::Opening(_) => self.opened(ctx),
            Stage::Waiting(_) => {
                if let Some(stock) = &ctx.shared.stock {
                    stock.leave(ctx.waiting(key));
                }
            }
            _ => {}
        }
        let carried = Carried { up: self.up.bytes, down: self.down.bytes };
        self.up.drop_into(&mut ctx.tools.pipes);
        self.down.drop_into(&mut ctx.tools.pipes);
        self.record.finish(end, carried, ctx.now_ms, ctx.log.as_mut());
    }

    // Parting

    /// Sends the answer, if there is one, and lets the client read it: closing at once would take it back.
    fn refuse(&mut self, key: Key, end: End, answer: &[u8], ctx: &mut Context) -> Fate {
        if answer.is_empty() || write(&mut self.client, answer) != Ok(answer.len()) {
            return Fate::Gone(end);
        }
        let told = shutdown(&self.client.fd, Shutdown::Write).is_ok() && self.watch_client(key, ctx).is_ok();
        if !told {
            return Fate::Gone(end);
        }
        if matches!(self.stage, Stage::Opening(_)) {
            self.opened(ctx);
        }
        self.stage = Stage::Parting(end);
        self.set_deadline(key, ctx);
        // Not at once: whoever called may still hold the worker's buffer.
        self.take_another_turn(key, ctx);
        Fate::Stay
    }

    /// What it still says is read and forgotten, one buffer per turn: it may go on for as long as it is let.
    fn part(&mut self, key: Key, end: End, ctx: &mut Context) -> Fate {
        if !self.client.readable {
            return Fate::Stay;
        }
        match recv(&self.client.fd, &mut *ctx.tools.scratch, RecvFlags::empty()) {
            Ok((0, _)) => return Fate::Gone(end),
            Ok(_) | Err(Errno::INTR) => self.take_another_turn(key, ctx),
            Err(Errno::AGAIN) => self.client.readable = false,
            Err(_) => return Fate::Gone(end),
        }
        Fate::Stay
    }

    fn watch_client(&mut self, key: Key, ctx: &Context) -> rustix::io::Result<()> {
        if !self.watched {
            self.watched = true;
            ctx.watch(&self.client.fd, Token::Client(key))?;
        }
        Ok(())
    }
}

/// Takes in what an event said.
fn note(side: &mut Side, flags: EventFlags) {
    // When both streams have ended, the kernel says that it hung up too; before, only after a reset.
    side.failed |= flags.contains(EventFlags::ERR) || (flags.contains(EventFlags::HUP) && !side.shut);
    side.ending |= flags.contains(EventFlags::RDHUP);
    side.readable |= flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
    side.writable |= flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR);
    if flags.contains(EventFlags::PRI) {
        side.take_urgent();
    }
}

/// Makes the coming close a reset.
fn reset(socket: &OwnedFd) {
    // Fails only on a socket that is gone already.
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(NEVER / 2)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;

    use underpass_tables::{Listener, RelayTable, Route, Rule, Rules, Transport};

    use super::*;
    use crate::connect::Tried;
    use crate::context::Shared;
    use crate::copy::SCRATCH_BYTES;
    use crate::live::Live;

    /// Both ends of a connection.
    pub(super) fn pair() -> (OwnedFd, TcpStream) {
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = TcpStream::connect(door.local_addr().unwrap()).unwrap();
        let (here, _) = door.accept().unwrap();
        here.set_nonblocking(true).unwrap();
        (here.into(), there)
    }

    pub(super) fn live() -> Arc<Live> {
        let listener = Listener {
            name: "test-listener".into(),
            address: "127.0.0.1:1".parse().unwrap(),
            transport: Transport::Stream,
            proxy_header: false,
            expects: Expects::Hello,
            rules: Rules::default(),
        };
        let route = Arc::new(Route::new("a", "default/a:443", vec!["127.0.0.1:3".parse().unwrap()]));
        Arc::new(Live::new(
            RelayTable { listeners: vec![listener], routes: vec![route], ..RelayTable::default() },
            None,
        ))
    }

    /// What an idle connection costs, besides its place in the wheel: the promise of docs/performance.md.
    #[test]
    fn a_connection_is_small() {
        assert!(size_of::<Connection>() <= 256, "{} bytes", size_of::<Connection>());
    }

    /// Neither a client that says nothing, nor an endpoint or a stock that does not answer.
    #[test]
    fn nobody_who_has_not_come_far_stays_beyond_the_drain_time() {
        let (live, key) = (live(), Key { index: 0, life: 0 });
        let route = &live.routes[0];
        let (socket, _endpoint) = pair();
        let connecting = Connecting::new(route.clone(), socket, 0, Tried::default(), Vec::new(), 0);
        for stage in [
            Stage::Opening(None),
            Stage::Opening(Some(Box::new(Received { bytes: vec![22], need: 2 }))),
            Stage::Connecting(Box::new(connecting)),
            Stage::Waiting(Box::new(Waiting { bytes: Vec::new(), since_ms: 0, until_ms: 30_000 })),
        ] {
            let mut ctx = Context::new(0, Arc::new(Shared::new(None)), live.clone(), None, None).unwrap();
            ctx.now_ms = 0;
            let (client, _peer) = pair();
            let mut record = Record::begin(&live.listeners[0], "127.0.0.1:2".parse().unwrap(), 0);
            record.decided(route.clone(), Rule::Default, 0);
            let mut connection = Connection { stage, ..Connection::new(client, record, false, 0) };

            connection.end_within(key, Duration::from_millis(96), &mut ctx);
            connection.stay(key, &mut ctx);
            assert_eq!(fate_at(96, &mut connection, key, &mut ctx), None, "its route is back");
            connection.end_within(key, Duration::from_millis(96), &mut ctx);
            assert_eq!(fate_at(191, &mut connection, key, &mut ctx), None);
            assert_eq!(fate_at(192, &mut connection, key, &mut ctx), Some(Fate::Gone(End::Drained)));
        }
    }

    /// What becomes of a connection by then without an event, if its deadline has passed.
    fn fate_at(now_ms: u64, connection: &mut Connection, key: Key, ctx: &mut Context) -> Option<Fate> {
        ctx.now_ms = now_ms;
        let mut expired = Vec::new();
        ctx.wheel.expire(now_ms, &mut expired);
        (!expired.is_empty()).then(|| connection.on_deadline(key, ctx))
    }

    /// What is still unread when a connection is closed makes the close a reset, which may take the answer back.
    #[test]
    fn who_was_refused_is_heard_out_a_little_at_a_time() {
        let (client, mut peer) = pair();
        let (live, key) = (live(), Key { index: 0, life: 0 });
        let mut ctx = Context::new(0, Arc::new(Shared::new(None)), live.clone(), None, None).unwrap();
        let unread = client.try_clone().unwrap();
        let unread = || usize::try_from(rustix::io::ioctl_fionread(&unread).unwrap()).unwrap();
        let said = [&b"POST / HTTP/1.1\r\n\r\n"[..], &[b'x'; 3 * SCRATCH_BYTES]].concat();
        peer.write_all(&said).unwrap();
        while unread() < said.len() {
            std::thread::yield_now();
        }
        let record = Record::begin(&live.listeners[0], peer.local_addr().unwrap(), 0);
        let mut connection = Connection::new(client, record, false, 0);

        assert_eq!(connection.begin(key, &mut ctx), Fate::Stay);
        assert_eq!(unread(), said.len() - SCRATCH_BYTES);
        assert_eq!(connection.on_client(key, EventFlags::IN, &mut ctx), Fate::Stay);
        let mut left = unread();
        assert!(left > 0, "others have their turn");
        while left > 0 {
            assert_eq!(std::mem::take(&mut ctx.again), [key], "one turn, however many events there were");
            assert_eq!(connection.again(key, &mut ctx), Fate::Stay);
            assert!(left - unread() <= SCRATCH_BYTES);
            left = unread();
        }
        let mut answer = [0; 12];
        peer.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 400");
    }
}
