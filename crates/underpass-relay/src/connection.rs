//! One connection: opening (what does it want?), connecting (to whom?), carrying, and parting when it was refused with an answer. Each
//! event moves it as far as it can go without waiting.

use std::borrow::Cow;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown, sockopt};
use underpass_protocols::stream_header::StreamHeader;
use underpass_tables::{Decision, Expects, Facts, Refusal};

use crate::connect::{Connecting, Dialled, Progress, Tried, dial};
use crate::context::Context;
use crate::copy::{Broken, Direction, Pumped, Side, write};
use crate::inspect::{Finding, Found, MAX_OPENING, Start, UNRECOGNIZED_NAME, examine, is_tls};
use crate::outbox::{Sender, Which};
use crate::proxy_header;
use crate::record::{Carried, End, Record, plain};
use crate::slab::Key;
use crate::token::Token;

/// How long a client may take to say what it wants.
const HELLO_MS: u64 = 10_000;
/// How long a port with one plain backend waits for a client that may want the server to speak first.
const SILENCE_MS: u64 = 300;
/// How long a refused client may take to read why.
const PARTING_MS: u64 = 2_000;
/// Dead peers are looked for only in connections that have lived so long: most never need it.
const KEEPALIVE_FROM_MS: u64 = 15_000;
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;
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
}

/// What becomes of a connection after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stay,
    Gone(End),
}

impl Connection {
    pub(crate) fn new(client: OwnedFd, record: Record, now_ms: u64) -> Self {
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
            moved_ms: now_ms,
            drain_ms: NEVER,
        }
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

    fn set_opening_deadline(&self, key: Key, ctx: &mut Context) {
        let Stage::Opening(received) = &self.stage else { return };
        let deadline = match self.expects(ctx) {
            // It stands ready until it is used.
            Expects::StreamHeader if received.is_none() => return,
            Expects::StreamHeader => ctx.now_ms + HELLO_MS,
            _ if self.may_be_plain(ctx) => ctx.now_ms + SILENCE_MS,
            _ => self.record.started_ms() + HELLO_MS,
        };
        ctx.wheel.set(key.index, deadline);
    }

    /// Whether it is carried as it is when nothing follows.
    fn may_be_plain(&self, ctx: &Context) -> bool {
        let Stage::Opening(received) = &self.stage else { return false };
        self.plain_is_carried(ctx) && !received.as_ref().is_some_and(|received| is_tls(&received.bytes))
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
            Stage::Parting(end) => self.part(*end, ctx),
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

    /// Goes on after others had their turn.
    pub(crate) fn again(&mut self, key: Key, ctx: &mut Context) -> Fate {
        if matches!(self.stage, Stage::Carrying) { self.carry(key, ctx) } else { Fate::Stay }
    }

    pub(crate) fn on_deadline(&mut self, key: Key, ctx: &mut Context) -> Fate {
        match &self.stage {
            Stage::Opening(_) | Stage::Connecting(_) | Stage::Waiting(_) if self.drain_ms <= ctx.now_ms => {
                Fate::Gone(End::Drained)
            }
            Stage::Opening(_) if self.may_be_plain(ctx) => self.carry_plain(key, ctx),
            Stage::Opening(_) => Fate::Gone(End::HelloTimeout),
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
        if let Stage::Carrying = self.stage {
            self.set_carrying_deadline(key, ctx);
        }
    }

    pub(crate) fn end_within(&mut self, key: Key, time: Duration, ctx: &mut Context) {
        // What only stands ready has nothing to end.
        let time = if self.is_silent() && self.expects(ctx) == Expects::StreamHeader { Duration::ZERO } else { time };
        self.drain_ms = self.drain_ms.min(ctx.now_ms + millis(time));
        match self.stage {
            Stage::Carrying => self.set_carrying_deadline(key, ctx),
            Stage::Opening(_) | Stage::Connecting(_) | Stage::Waiting(_) if time.is_zero() => {
                ctx.wheel.set(key.index, ctx.now_ms);
            }
            // They have deadlines of their own.
            Stage::Opening(_) | Stage::Connecting(_) | Stage::Waiting(_) | Stage::Parting(_) => {}
        }
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

    pub(crate) fn finish(self, key: Key, end: End, ctx: &mut Context) {
        match &self.stage {
            Stage::Opening(_) => ctx.shared.opened(),
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

    // Opening

    fn read_opening(&mut self, key: Key, ctx: &mut Context) -> Fate {
        while self.client.readable && matches!(self.stage, Stage::Opening(_)) {
            // Taken out so that what was read can be looked at while the context is used.
            let mut scratch = std::mem::take(&mut ctx.tools.scratch);
            let fate = match recv(&self.client.fd, &mut *scratch, RecvFlags::empty()) {
                Ok((0, _)) => self.ended_while_opening(key, ctx),
                Ok((read, _)) => {
                    self.client.readable = read == scratch.len() || self.client.may_have_more();
                    self.received(key, &scratch[..read], ctx)
                }
                Err(Errno::AGAIN) => {
                    self.client.readable = false;
                    Fate::Stay
                }
                Err(Errno::INTR) => Fate::Stay,
                Err(_) => Fate::Gone(End::ClientLeft),
            };
            ctx.tools.scratch = scratch;
            if fate != Fate::Stay {
                return fate;
            }
        }
        Fate::Stay
    }

    fn received(&mut self, key: Key, bytes: &[u8], ctx: &mut Context) -> Fate {
        let Stage::Opening(held) = &mut self.stage else { return Fate::Stay };
        let Some(mut held) = held.take() else {
            let finding = self.examine(bytes, ctx);
            return self.found(key, finding, Cow::Borrowed(bytes), ctx);
        };
        held.bytes.extend_from_slice(bytes);
        if held.bytes.len() < held.need {
            self.stage = Stage::Opening(Some(held));
            return Fate::Stay;
        }
        let finding = self.examine(&held.bytes, ctx);
        self.found(key, finding, Cow::Owned(held.bytes), ctx)
    }

    fn examine(&self, bytes: &[u8], ctx: &mut Context) -> Finding {
        let mut scratch = std::mem::take(&mut ctx.hello);
        let finding = match ctx.live.listener(self.record.listener()) {
            Some(listener) => examine(bytes, listener, &mut scratch),
            None => Finding::Refuse(End::Drained, &[]),
        };
        scratch.clear();
        ctx.hello = scratch;
        finding
    }

    fn found(&mut self, key: Key, finding: Finding, bytes: Cow<'_, [u8]>, ctx: &mut Context) -> Fate {
        match finding {
            Finding::Found(found) => self.decide(key, &found, &bytes[found.skip..], ctx),
            Finding::Refuse(end, answer) => self.refuse(key, end, answer, ctx),
            Finding::Incomplete { .. } if bytes.len() >= MAX_OPENING => Fate::Gone(End::InvalidHello),
            Finding::Incomplete { need } => {
                self.stage = Stage::Opening(Some(Box::new(Received { bytes: bytes.into_owned(), need })));
                if self.watched {
                    self.set_opening_deadline(key, ctx);
                }
                Fate::Stay
            }
        }
    }

    /// The client said all that it will say, and that is not enough to be TLS.
    fn ended_while_opening(&mut self, key: Key, ctx: &mut Context) -> Fate {
        self.client.readable = true;
        self.client.ending = true;
        if !self.plain_is_carried(ctx) {
            return Fate::Gone(End::ClientLeft);
        }
        self.carry_plain(key, ctx)
    }

    /// It goes as it is, with what it has sent so far.
    fn carry_plain(&mut self, key: Key, ctx: &mut Context) -> Fate {
        let Stage::Opening(held) = &mut self.stage else { return Fate::Stay };
        let bytes = held.take().map(|held| held.bytes).unwrap_or_default();
        self.decide(key, &Found::plain(), &bytes, ctx)
    }

    fn plain_is_carried(&self, ctx: &Context) -> bool {
        let listener = ctx.live.listener(self.record.listener());
        listener.is_some_and(|listener| listener.rules.plain.is_some() && !listener.proxy_header)
    }

    fn decide(&mut self, key: Key, found: &Found, bytes: &[u8], ctx: &mut Context) -> Fate {
        if let Some(source) = found.source {
            self.record.source = plain(source);
        }
        if let Start::Tunnel(_) = found.start {
            self.record.begins(ctx.now_ms);
        }
        if ctx.log.is_some()
            && let Start::Named(name) = &found.start
        {
            self.record.server_name = Some((**name).into());
        }
        let facts = Facts { source: self.record.source.ip(), opening: found.start.opening() };
        let Some(listener) = ctx.live.listener(self.record.listener()) else { return Fate::Gone(End::Drained) };
        if listener.proxy_header && !ctx.within_rate(facts.source) {
            return Fate::Gone(End::TooManyFromSource);
        }
        let (route, rule) = match ctx.live.table.decide(listener, &facts) {
            Decision::Connect { route, rule } => (ctx.live.routes[route.0].clone(), rule),
            // Whoever waits at the other half is told as when nobody listens.
            Decision::Refuse(Refusal::UnknownTunnel) => return self.unreachable(End::UnknownTunnel),
            Decision::Refuse(refusal) => return self.refuse(key, refusal.into(), answer(refusal), ctx),
        };
        if route.route.max_connections.is_some_and(|most| route.stats.active.load(Relaxed) >= most) {
            return self.refuse(key, End::RouteFull, &[], ctx);
        }
        ctx.shared.opened();
        self.record.decided(route, rule, ctx.now_ms);
        self.stage = Stage::Carrying;
        self.up.bytes = bytes.len() as u64;
        if let Some(tunnel) = self.record.chosen.as_ref().and_then(|chosen| chosen.route.route.stock) {
            return self.take_from_stock(key, tunnel, bytes, ctx);
        }
        match proxy_header::for_route(&self.record, found.destination, &self.client.fd) {
            Some(header) => self.connect(key, &[&*header, bytes].concat(), Tried::default(), ctx),
            None => self.connect(key, bytes, Tried::default(), ctx),
        }
    }

    // Connecting

    fn connect(&mut self, key: Key, bytes: &[u8], mut tried: Tried, ctx: &mut Context) -> Fate {
        let Some(chosen) = &self.record.chosen else { return Fate::Gone(End::NoEndpoints) };
        let route = chosen.route.clone();
        match dial(&route, &mut tried, bytes, ctx.now_ms) {
            Dialled::Connected(fd, endpoint, sent) => {
                self.record.connected(endpoint, ctx.now_ms, ctx.now_ms);
                self.start_carrying(key, Side::new(fd), false, &bytes[sent..], ctx)
            }
            Dialled::Connecting(fd, endpoint) => {
                if ctx.watch_connecting(&fd, Token::Upstream(key)).is_err() {
                    return self.unreachable(End::OutOfResources);
                }
                let connecting = Connecting::new(route, fd, endpoint, tried, bytes.to_vec(), ctx.now_ms);
                ctx.wheel.set(key.index, connecting.next_deadline_ms());
                self.stage = Stage::Connecting(Box::new(connecting));
                Fate::Stay
            }
            Dialled::Nobody(end) => {
                self.record.tried(tried.last());
                self.unreachable(end)
            }
        }
    }

    /// The other half of the tunnel learns from the first bytes whose stream this is.
    fn take_from_stock(&mut self, key: Key, tunnel: u32, bytes: &[u8], ctx: &mut Context) -> Fate {
        let Some(stock) = ctx.shared.stock.clone() else { return self.unreachable(End::NoEndpoints) };
        let stream = ctx.shared.streams.fetch_add(1, Relaxed) + 1;
        let header = StreamHeader { tunnel, stream, source: self.record.source }.encode();
        let bytes = [&header[..], bytes].concat();
        match stock.take(ctx.waiting(key)) {
            Some(socket) => self.carry_over(key, socket, &bytes, ctx.now_ms, ctx),
            None => {
                let timeout =
                    self.record.chosen.as_ref().map_or(Duration::ZERO, |chosen| chosen.route.route.connect_timeout);
                ctx.wheel.set(key.index, ctx.now_ms + millis(timeout));
                self.stage = Stage::Waiting(Box::new(Waiting { bytes, since_ms: ctx.now_ms }));
                Fate::Stay
            }
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting(_))
    }

    /// The stock has something for a connection that waits.
    pub(crate) fn supplied(&mut self, key: Key, socket: OwnedFd, ctx: &mut Context) -> Fate {
        let Stage::Waiting(waiting) = std::mem::replace(&mut self.stage, Stage::Carrying) else { return Fate::Stay };
        self.carry_over(key, socket, &waiting.bytes, waiting.since_ms, ctx)
    }

    fn carry_over(&mut self, key: Key, socket: OwnedFd, bytes: &[u8], since_ms: u64, ctx: &mut Context) -> Fate {
        self.record.connected(0, since_ms, ctx.now_ms);
        self.start_carrying(key, Side::new(socket), false, bytes, ctx)
    }

    fn attempt_ended(&mut self, key: Key, rival: bool, flags: EventFlags, ctx: &mut Context) -> Fate {
        let Stage::Connecting(connecting) = &mut self.stage else { return Fate::Stay };
        let Some((fd, endpoint)) = connecting.result(rival, flags, ctx.now_ms) else {
            return self.next_attempt(key, ctx);
        };
        let (bytes, since_ms) = (std::mem::take(&mut connecting.bytes), connecting.begun_ms);
        self.stage = Stage::Carrying;
        self.record.connected(endpoint, since_ms, ctx.now_ms);
        let mut side = Side::new(fd);
        side.room_announced = true;
        note(&mut side, flags);
        self.start_carrying(key, side, true, &bytes, ctx)
    }

    fn connecting_deadline(&mut self, key: Key, ctx: &mut Context) -> Fate {
        let Stage::Connecting(connecting) = &mut self.stage else { return Fate::Stay };
        connecting.drop_late(ctx.now_ms);
        self.next_attempt(key, ctx)
    }

    /// Keeps an attempt under way as long as there is somebody left to try.
    fn next_attempt(&mut self, key: Key, ctx: &mut Context) -> Fate {
        let Stage::Connecting(connecting) = &mut self.stage else { return Fate::Stay };
        match connecting.advance(key, ctx) {
            Progress::UnderWay => {
                ctx.wheel.set(key.index, connecting.next_deadline_ms());
                Fate::Stay
            }
            Progress::Connected(fd, endpoint, sent) => {
                let (bytes, since_ms) = (std::mem::take(&mut connecting.bytes), connecting.begun_ms);
                self.stage = Stage::Carrying;
                self.record.connected(endpoint, since_ms, ctx.now_ms);
                self.start_carrying(key, Side::new(fd), false, &bytes[sent..], ctx)
            }
            Progress::Nobody(end) => {
                self.record.tried(connecting.tried.last());
                self.unreachable(end)
            }
        }
    }

    /// The client learns of it as it would without us: by a reset.
    fn unreachable(&self, end: End) -> Fate {
        reset(&self.client.fd);
        Fate::Gone(end)
    }

    // Carrying

    fn start_carrying(&mut self, key: Key, mut upstream: Side, watched: bool, bytes: &[u8], ctx: &mut Context) -> Fate {
        let sent = match if bytes.is_empty() { Ok(0) } else { write(&mut upstream, bytes) } {
            Ok(sent) => sent,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(_) => return self.unreachable(End::UpstreamReset),
        };
        if sent < bytes.len() {
            self.up.hold(&bytes[sent..]);
        }
        let upstream = self.upstream.insert(upstream);
        let known = watched || ctx.watch(&upstream.fd, Token::Upstream(key)).is_ok();
        if !known || self.watch_client(key, ctx).is_err() {
            return self.unreachable(End::ConnectFailed);
        }
        self.moved_ms = ctx.now_ms;
        self.set_carrying_deadline(key, ctx);
        // Not at once: whoever called may still hold the worker's buffer, with the bytes that were just sent.
        ctx.again.push(key);
        Fate::Stay
    }

    fn carry_after(&mut self, key: Key, which: Which, ctx: &mut Context) -> Fate {
        let fate = self.carry(key, ctx);
        let failed = match which {
            Which::Client => self.client.failed,
            Which::Upstream => self.upstream.as_ref().is_some_and(|upstream| upstream.failed),
        };
        if fate == Fate::Stay && failed { self.broken(which, ctx) } else { fate }
    }

    /// Whether the worker's outbox has something of this connection.
    pub(crate) fn is_posted(&self) -> bool {
        self.up.is_posted() || self.down.is_posted()
    }

    /// What one side had sent was passed on, but for the rest.
    pub(crate) fn sent(&mut self, sender: Sender, sent: Result<usize, Errno>, rest: &[u8], ctx: &mut Context) -> Fate {
        let Some(upstream) = &mut self.upstream else { return Fate::Stay };
        let (direction, from, to, receiver) = match sender.side {
            Which::Client => (&mut self.up, &self.client, upstream, Which::Upstream),
            Which::Upstream => (&mut self.down, &*upstream, &mut self.client, Which::Client),
        };
        match direction.sent(to, sent, rest) {
            Err(_) => self.broken(receiver, ctx),
            Ok(()) if direction.is_at_rest(from) => Fate::Stay,
            Ok(()) => self.carry(sender.key, ctx),
        }
    }

    /// Moves what can be moved, in both directions.
    fn carry(&mut self, key: Key, ctx: &mut Context) -> Fate {
        let Some(upstream) = &mut self.upstream else { return Fate::Stay };
        let before = (self.up.bytes, self.down.bytes);
        let piped = self.up.has_pipe() || self.down.has_pipe();
        let from = |side| Sender { key, side };
        let up =
            match self.up.pump(&mut self.client, upstream, self.down.finished(), from(Which::Client), &mut ctx.tools) {
                Ok(pumped) => pumped,
                Err(Broken::Sender(_)) => return self.broken(Which::Client, ctx),
                Err(Broken::Receiver(_)) => return self.broken(Which::Upstream, ctx),
            };
        let down = match self.down.pump(
            upstream,
            &mut self.client,
            up == Pumped::Finished,
            from(Which::Upstream),
            &mut ctx.tools,
        ) {
            Ok(pumped) => pumped,
            Err(Broken::Sender(_)) => return self.broken(Which::Upstream, ctx),
            Err(Broken::Receiver(_)) => return self.broken(Which::Client, ctx),
        };
        if before != (self.up.bytes, self.down.bytes) {
            self.moved_ms = ctx.now_ms;
        }
        if !piped && (self.up.has_pipe() || self.down.has_pipe()) {
            ctx.piped.push(key);
        }
        match (up, down) {
            (Pumped::Finished, Pumped::Finished) => return Fate::Gone(End::Closed),
            (Pumped::Again, _) | (_, Pumped::Again) => ctx.again.push(key),
            _ => {}
        }
        self.watch_full(key, ctx)
    }

    fn watch_full(&mut self, key: Key, ctx: &mut Context) -> Fate {
        let Some(upstream) = &mut self.upstream else { return Fate::Stay };
        let asked = ctx
            .watch_full(upstream, Token::Upstream(key))
            .and_then(|()| ctx.watch_full(&mut self.client, Token::Client(key)));
        if asked.is_ok() { Fate::Stay } else { Fate::Gone(End::ConnectFailed) }
    }

    /// One side failed. What it had sent before still counts; then the other side is failed too.
    fn broken(&mut self, which: Which, ctx: &mut Context) -> Fate {
        let Some(upstream) = &mut self.upstream else { return Fate::Gone(End::ClientLeft) };
        match which {
            Which::Client => {
                self.up.salvage(&mut self.client, upstream, &mut ctx.tools);
                reset(&upstream.fd);
                Fate::Gone(End::ClientReset)
            }
            Which::Upstream => {
                self.down.salvage(upstream, &mut self.client, &mut ctx.tools);
                reset(&self.client.fd);
                Fate::Gone(End::UpstreamReset)
            }
        }
    }

    fn carrying_deadline(&mut self, key: Key, ctx: &mut Context) -> Fate {
        if ctx.now_ms >= self.drain_ms {
            return Fate::Gone(End::Drained);
        }
        if self.idle_ms().is_some_and(|idle| ctx.now_ms - self.moved_ms >= idle) {
            return Fate::Gone(End::IdleTimeout);
        }
        if !self.kept_alive {
            self.kept_alive = true;
            for side in [Some(&self.client), self.upstream.as_ref()].into_iter().flatten() {
                keep_alive(side);
            }
        }
        self.set_carrying_deadline(key, ctx);
        Fate::Stay
    }

    fn set_carrying_deadline(&self, key: Key, ctx: &mut Context) {
        let keepalive = if self.kept_alive { NEVER } else { ctx.now_ms + KEEPALIVE_FROM_MS };
        let idle = self.idle_ms().map_or(NEVER, |idle| self.moved_ms + idle);
        match keepalive.min(idle).min(self.drain_ms) {
            NEVER => ctx.wheel.clear(key.index),
            deadline => ctx.wheel.set(key.index, deadline),
        }
    }

    fn idle_ms(&self) -> Option<u64> {
        self.record.chosen.as_ref().and_then(|chosen| chosen.route.route.idle_timeout).map(millis)
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
            ctx.shared.opened();
        }
        self.stage = Stage::Parting(end);
        ctx.wheel.set(key.index, ctx.now_ms + PARTING_MS);
        self.part(end, ctx)
    }

    fn part(&mut self, end: End, ctx: &mut Context) -> Fate {
        while self.client.readable {
            match recv(&self.client.fd, &mut *ctx.tools.scratch, RecvFlags::empty()) {
                Ok((0, _)) => return Fate::Gone(end),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.client.readable = false,
                Err(_) => return Fate::Gone(end),
            }
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
}

/// Makes the coming close a reset.
fn reset(socket: &OwnedFd) {
    // Fails only on a socket that is gone already.
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

fn keep_alive(side: &Side) {
    // Without it a dead peer is found later, or by the idle time-out: no reason to end a connection that works.
    let _ = sockopt::set_tcp_keepidle(&side.fd, KEEPALIVE_IDLE)
        .and_then(|()| sockopt::set_tcp_keepintvl(&side.fd, KEEPALIVE_INTERVAL))
        .and_then(|()| sockopt::set_tcp_keepcnt(&side.fd, KEEPALIVE_PROBES))
        .and_then(|()| sockopt::set_socket_keepalive(&side.fd, true));
}

fn answer(refusal: Refusal) -> &'static [u8] {
    match refusal {
        Refusal::UnknownName | Refusal::NoName => &UNRECOGNIZED_NAME,
        Refusal::NotTls | Refusal::SourceNotAllowed | Refusal::UnknownTunnel => &[],
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(NEVER / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an idle connection costs, besides its place in the wheel: the promise of docs/performance.md.
    #[test]
    fn a_connection_is_small() {
        assert!(size_of::<Connection>() <= 256, "{} bytes", size_of::<Connection>());
    }
}
