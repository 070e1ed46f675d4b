//! One worker: a thread, its sockets, its connections, and the only loop that there is.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::{self, Errno};
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with};
use underpass_tables::Transport;

use crate::access_log::Lines;
use crate::connection::{Connection, Fate};
use crate::context::{Context, Shared};
use crate::flow::Flows;
use crate::live::{Live, LiveListener};
use crate::outbox::Outbox;
use crate::record::{Carried, End, Record};
use crate::slab::{Key, Slab};
use crate::token::Token;

/// Events taken from the kernel at once.
const EVENTS: usize = 256;
/// Connections accepted in a row before those that exist get their turn.
const ACCEPTS: usize = 64;
/// How long accepting pauses when the process is out of descriptors: they come back only when connections end.
const PAUSE_MS: u64 = 100;
/// How often borrowed pipes are looked at.
const SWEEP_MS: u64 = 1000;
const MAILBOX: u32 = u32::MAX;

/// What a worker is told.
pub(crate) enum Order {
    /// A new table, and in the order of its listeners the sockets of those that are new; none for those that stay.
    Swap { live: Arc<Live>, sockets: Vec<Vec<Arc<OwnedFd>>> },
    /// Accept nothing more; what exists may go on for so long.
    Drain(Duration),
    /// A connection that somebody else has made.
    Adopt { listener: Arc<LiveListener>, socket: OwnedFd, peer: SocketAddr },
    /// What a connection has waited for.
    Stocked { key: Key, socket: OwnedFd },
}

/// How a worker is reached.
pub(crate) struct Mailbox {
    orders: Mutex<Vec<Order>>,
    bell: OwnedFd,
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { orders: Mutex::default(), bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    pub(crate) fn send(&self, order: Order) {
        let mut orders = self.orders.lock();
        orders.push(order);
        let is_first = orders.len() == 1;
        drop(orders);
        // For the others it has rung already: who hears it takes all.
        if is_first {
            // Full only when it has rung 2^64 times without being heard.
            let _ = io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }
}

pub(crate) struct Worker {
    ctx: Context,
    connections: Slab<Connection>,
    flows: Flows,
    /// By the number under which epoll knows them.
    doors: Vec<Option<Door>>,
    mailbox: Arc<Mailbox>,
    log: Option<Lines>,
    /// When accepting goes on, after a pause.
    paused_until_ms: Option<u64>,
    swept_ms: u64,
    draining: bool,
}

/// A socket to accept from.
struct Door {
    listener: Arc<LiveListener>,
    /// Shared with the relay, which may hand it to a successor.
    socket: Arc<OwnedFd>,
}

impl Worker {
    pub(crate) fn new(
        worker: usize,
        shared: Arc<Shared>,
        live: Arc<Live>,
        mailbox: Arc<Mailbox>,
        log: Option<Lines>,
        outbox: Option<Outbox>,
    ) -> io::Result<Self> {
        let lines = log.as_ref().map(|_| String::new());
        let ctx = Context::new(worker, shared, live, lines, outbox)?;
        epoll::add(&ctx.epoll, &mailbox.bell, Token::Fixed(MAILBOX).data(), epoll::EventFlags::IN)?;
        let (connections, flows) = (Slab::new(), Flows::new());
        Ok(Self {
            ctx,
            connections,
            flows,
            doors: Vec::new(),
            mailbox,
            log,
            paused_until_ms: None,
            swept_ms: 0,
            draining: false,
        })
    }

    /// Runs until it was told to drain and the last connection has ended.
    pub(crate) fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        let mut expired = Vec::new();
        while !(self.draining && self.connections.len() == 0) {
            self.wait(&mut events);
            self.ctx.tools.expect_many(events.len() > 1);
            for event in events.drain(..) {
                if self.ctx.tools.outbox.as_ref().is_some_and(Outbox::is_full) {
                    self.send_posted();
                }
                self.on_event(Token::from_data(event.data), event.flags);
            }
            self.send_posted();
            self.ctx.wheel.expire(self.ctx.now_ms, &mut expired);
            for index in expired.drain(..) {
                if let Some(key) = self.connections.key_at(index) {
                    self.with(key, |connection, ctx| connection.on_deadline(key, ctx));
                }
            }
            self.flows.expire(&mut self.ctx);
            self.go_on();
            self.housekeep();
        }
        self.hand_over_log();
    }

    fn wait(&mut self, events: &mut Vec<epoll::Event>) {
        let timeout = if self.ctx.again.is_empty() { self.sleep_ms() } else { Some(0) };
        let timeout = timeout.map(|ms| Timespec {
            tv_sec: i64::try_from(ms / 1000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(ms % 1000 * 1_000_000).unwrap_or(0),
        });
        // Interrupted: nothing happened, and the loop comes round again.
        let _ = epoll::wait(&self.ctx.epoll, rustix::buffer::spare_capacity(events), timeout.as_ref());
        self.ctx.now_ms = self.ctx.shared.now_ms();
    }

    fn sleep_ms(&self) -> Option<u64> {
        let now = self.ctx.now_ms;
        let pause = self.paused_until_ms.map(|until| until.saturating_sub(now).max(1));
        let sweep = (!self.ctx.piped.is_empty()).then_some(SWEEP_MS);
        [self.ctx.wheel.wait_ms(now), self.flows.wait_ms(now), pause, sweep].into_iter().flatten().min()
    }

    fn on_event(&mut self, token: Token, flags: epoll::EventFlags) {
        match token {
            Token::Client(key) => self.with(key, |connection, ctx| connection.on_client(key, flags, ctx)),
            Token::Upstream(key) => self.with(key, |connection, ctx| connection.on_upstream(key, flags, false, ctx)),
            Token::Rival(key) => self.with(key, |connection, ctx| connection.on_upstream(key, flags, true, ctx)),
            Token::Fixed(MAILBOX) => self.read_mail(),
            Token::Flow(key) => {
                let socket = |door: usize| self.doors.get(door)?.as_ref().map(|door| door.socket.clone());
                self.flows.on_upstream(key, socket, &mut self.ctx);
            }
            Token::Fixed(door) => self.knock(door as usize),
        }
    }

    fn with(&mut self, key: Key, act: impl FnOnce(&mut Connection, &mut Context) -> Fate) {
        self.settle(key);
        let Some(connection) = self.connections.get_mut(key) else { return };
        // A defect that one connection meets must not end the others.
        let fate = catch_unwind(AssertUnwindSafe(|| act(connection, &mut self.ctx))).unwrap_or_else(|_| {
            self.ctx.tools.restore();
            Fate::Gone(End::Defect)
        });
        if let Fate::Gone(end) = fate {
            self.remove(key, end);
        }
    }

    /// What a connection has posted goes out before anything else happens to it: it may be its end, and another one's descriptor then
    /// has the same number.
    fn settle(&mut self, key: Key) {
        if self.connections.get_mut(key).is_some_and(|connection| connection.is_posted()) {
            self.send_posted();
        }
    }

    fn send_posted(&mut self) {
        let Some(mut outbox) = self.ctx.tools.outbox.take_if(|outbox| !outbox.is_empty()) else { return };
        let usable = outbox.send_all(|sender, sent, rest| {
            self.with(sender.key, |connection, ctx| connection.sent(sender, sent, rest, ctx));
        });
        self.ctx.tools.outbox = usable.then_some(outbox);
    }

    fn remove(&mut self, key: Key, end: End) {
        self.settle(key);
        if let Some(connection) = self.connections.remove(key) {
            self.ctx.wheel.clear(key.index);
            let limited = connection.is_limited();
            connection.finish(key, end, &mut self.ctx);
            if limited {
                self.ctx.shared.connections.fetch_sub(1, Relaxed);
            }
        }
    }

    // Accepting

    fn knock(&mut self, number: usize) {
        let Some(Some(door)) = self.doors.get(number) else { return };
        match door.listener.transport {
            Transport::Stream => self.accept(number),
            Transport::Datagram => self.flows.on_clients(number, &door.listener, &door.socket, &mut self.ctx),
        }
    }

    fn accept(&mut self, door: usize) {
        for _ in 0..ACCEPTS {
            let Some(Some(Door { listener, socket })) = self.doors.get(door) else { return };
            match acceptfrom_with(&**socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok((client, source)) => {
                    let listener = listener.clone();
                    self.admit_from(client, source, &listener);
                }
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => return self.pause(),
                // Ended while it waited to be accepted.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn admit_from(&mut self, client: OwnedFd, source: Option<SocketAddrAny>, listener: &Arc<LiveListener>) {
        if let Some(source) = source.and_then(|source| SocketAddr::try_from(source).ok()) {
            self.admit(client, source, listener);
        }
    }

    fn admit(&mut self, client: OwnedFd, source: SocketAddr, listener: &Arc<LiveListener>) {
        let ctx = &mut self.ctx;
        let record = Record::begin(listener, source, ctx.now_ms);
        let limited = ctx.shared.is_limited(source.ip());
        if limited && let Some(end) = count(ctx, listener, source) {
            return record.finish(end, Carried::default(), ctx.now_ms, ctx.log.as_mut());
        }
        let key = self.connections.insert(Connection::new(client, record, limited, ctx.now_ms));
        self.with(key, |connection, ctx| connection.begin(key, ctx));
    }

    /// Out of descriptors: leaves the waiting ones in the kernel's queue for a moment instead of asking for them again and again.
    fn pause(&mut self) {
        if self.paused_until_ms.is_none() {
            tracing::warn!("out of file descriptors: accepting pauses; raise the limit (ulimit -n)");
            self.watch_doors(false);
        }
        self.paused_until_ms = Some(self.ctx.now_ms + PAUSE_MS);
    }

    fn watch_doors(&self, watch: bool) {
        let flags = if watch { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        for (index, door) in (0..).zip(&self.doors) {
            if let Some(door) = door {
                // Known to epoll since it was opened.
                let _ = epoll::modify(&self.ctx.epoll, &*door.socket, Token::Fixed(index).data(), flags);
            }
        }
    }

    // Orders

    fn read_mail(&mut self) {
        let mut count = [0; 8];
        let _ = io::read(&self.mailbox.bell, &mut count);
        let orders = std::mem::take(&mut *self.mailbox.orders.lock());
        for order in orders {
            match order {
                Order::Swap { live, sockets } => self.swap(&live, sockets),
                Order::Drain(time) => self.drain(time),
                // Whoever hands connections over may not have heard of the end yet.
                Order::Adopt { .. } if self.draining => {}
                Order::Adopt { listener, socket, peer } => self.admit(socket, peer, &listener),
                Order::Stocked { key, socket } => self.supply(key, socket),
            }
        }
    }

    fn supply(&mut self, key: Key, socket: OwnedFd) {
        match self.connections.get_mut(key) {
            Some(connection) if connection.is_waiting() => {
                self.with(key, |connection, ctx| connection.supplied(key, socket, ctx));
            }
            // It has left meanwhile.
            _ => {
                if let Some(stock) = &self.ctx.shared.stock {
                    stock.put(socket);
                }
            }
        }
    }

    fn swap(&mut self, live: &Arc<Live>, sockets: Vec<Vec<Arc<OwnedFd>>>) {
        let old = std::mem::take(&mut self.doors);
        let stays = |door: &Door| live.listeners.iter().any(|listener| Arc::ptr_eq(listener, &door.listener));
        self.ctx.live = live.clone();
        for (index, door) in old.into_iter().enumerate() {
            let Some(door) = door else { continue };
            if stays(&door) {
                self.doors.resize_with(index.max(self.doors.len()), || None);
                self.doors.push(Some(door));
            } else {
                self.accept_rest(door);
            }
        }
        for (listener, own) in live.listeners.iter().zip(sockets) {
            for socket in own {
                self.open_door(Door { listener: listener.clone(), socket });
            }
        }
        for key in self.connections.keys() {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.on_table(key, &mut self.ctx);
            }
        }
        self.flows.on_table(&mut self.ctx);
        *self.ctx.shared.taken.lock() += 1;
        self.ctx.shared.took.notify_one();
    }

    fn open_door(&mut self, door: Door) {
        let index = self.doors.iter().position(Option::is_none).unwrap_or(self.doors.len());
        let token = Token::Fixed(u32::try_from(index).unwrap_or(MAILBOX - 1));
        if let Err(errno) = epoll::add(&self.ctx.epoll, &*door.socket, token.data(), epoll::EventFlags::IN) {
            tracing::error!(listener = door.listener.name, %errno, "a listener cannot be watched");
            return;
        }
        if index == self.doors.len() {
            self.doors.push(None);
        }
        self.doors[index] = Some(door);
    }

    /// Whoever had connected before the door closed is still let in.
    fn accept_rest(&mut self, door: Door) {
        let Door { listener, socket } = door;
        // Closing would not do: a successor may have the same socket, and as long as anybody has it, events would come.
        let _ = epoll::delete(&self.ctx.epoll, &*socket);
        if listener.transport == Transport::Datagram {
            return;
        }
        while let Ok((client, source)) = acceptfrom_with(&*socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            self.admit_from(client, source, &listener);
        }
    }

    fn drain(&mut self, time: Duration) {
        self.draining = true;
        self.flows.end_all(&mut self.ctx);
        for door in std::mem::take(&mut self.doors).into_iter().flatten() {
            self.accept_rest(door);
        }
        for key in self.connections.keys() {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.end_within(key, time, &mut self.ctx);
            }
        }
    }

    // Between two waits

    fn go_on(&mut self) {
        for key in std::mem::take(&mut self.ctx.again) {
            self.with(key, |connection, ctx| connection.again(key, ctx));
        }
        self.send_posted();
    }

    fn housekeep(&mut self) {
        let now = self.ctx.now_ms;
        if self.paused_until_ms.is_some_and(|until| now >= until) {
            self.paused_until_ms = None;
            self.watch_doors(true);
        }
        if !self.ctx.piped.is_empty() && now - self.swept_ms >= SWEEP_MS {
            self.swept_ms = now;
            let mut piped = std::mem::take(&mut self.ctx.piped);
            piped.retain(|key| self.connections.get_mut(*key).is_some_and(|connection| connection.rest(&mut self.ctx)));
            self.ctx.piped.append(&mut piped);
        }
        self.hand_over_log();
    }

    /// Writing a line may wait for whoever reads the log; a worker must not.
    fn hand_over_log(&mut self) {
        if let (Some(lines), Some(log)) = (&mut self.ctx.log, &self.log)
            && !lines.is_empty()
        {
            log.hand_over(std::mem::take(lines), self.ctx.now_ms);
        }
    }
}

/// Counts one more, unless it is one too many.
fn count(ctx: &Context, listener: &Arc<LiveListener>, source: SocketAddr) -> Option<End> {
    ctx.shared.connections.fetch_add(1, Relaxed);
    ctx.shared.half_open.fetch_add(1, Relaxed);
    let end = over_limit(ctx, listener, source)?;
    ctx.shared.connections.fetch_sub(1, Relaxed);
    ctx.shared.opened();
    if end == End::TooManyConnections {
        ctx.shared.refused(source.ip());
    }
    Some(end)
}

fn over_limit(ctx: &Context, listener: &Arc<LiveListener>, source: SocketAddr) -> Option<End> {
    let limits = ctx.limits();
    let is_beyond = || ctx.shared.beyond_limits.as_ref().is_some_and(|name| *name == listener.name);
    if !Context::below(&ctx.shared.connections, limits.connections) && !is_beyond() {
        Some(End::TooManyConnections)
    } else if !Context::below(&ctx.shared.half_open, limits.half_open) {
        Some(End::TooManyHalfOpen)
    } else if !tells_source(ctx, listener) && !ctx.within_rate(source.ip()) {
        Some(End::TooManyFromSource)
    } else {
        None
    }
}

/// Whether clients are counted by what a PROXY header says, once it is there: they all come from the address of one load balancer.
fn tells_source(ctx: &Context, listener: &Arc<LiveListener>) -> bool {
    ctx.limits().per_second_per_source.is_some()
        && ctx.live.listener(listener).is_some_and(|listener| listener.proxy_header)
}
