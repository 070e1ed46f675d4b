//! What the connections of one worker share.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use rustix::event::epoll;
use rustix::io;
use underpass_tables::Limits;

use crate::access_log::Lost;
use crate::copy::{Side, Tools};
use crate::live::Live;
use crate::outbox::Outbox;
use crate::rate::Rates;
use crate::slab::Key;
use crate::stock::{Stock, Waiting};
use crate::token::Token;
use crate::wheel::Wheel;

/// Once per change, in both kinds of end: the kernel is asked nothing twice.
const READING: epoll::EventFlags =
    epoll::EventFlags::IN.union(epoll::EventFlags::PRI).union(epoll::EventFlags::RDHUP).union(epoll::EventFlags::ET);
const WRITING: epoll::EventFlags = READING.union(epoll::EventFlags::OUT);

/// What all workers share.
pub(crate) struct Shared {
    pub(crate) epoch: Instant,
    pub(crate) connections: AtomicU32,
    pub(crate) half_open: AtomicU32,
    pub(crate) rates: Mutex<Rates>,
    pub(crate) draining: AtomicBool,
    /// How many tables workers have taken, all together.
    pub(crate) taken: Mutex<u64>,
    pub(crate) took: Condvar,
    pub(crate) log_lines_lost: Arc<Lost>,
    /// For routes that are not dialled.
    pub(crate) stock: Option<Arc<Stock>>,
    /// Streams that were taken from the stock, to number them.
    pub(crate) streams: AtomicU64,
    /// Told when a connection has said what it wants, or is gone.
    pub(crate) taken_up: Option<Arc<dyn Fn() + Send + Sync>>,
    /// The name of the listener that is let in beyond all limits of connections.
    pub(crate) beyond_limits: Option<String>,
    /// Whether streams from this machine itself are not limited.
    pub(crate) spares_own: bool,
    /// Told who was refused because there are as many as there may be.
    pub(crate) full: Option<Arc<dyn Fn(IpAddr) + Send + Sync>>,
}

impl Shared {
    pub(crate) fn new(stock: Option<Arc<Stock>>) -> Self {
        Self {
            epoch: Instant::now(),
            connections: AtomicU32::new(0),
            half_open: AtomicU32::new(0),
            rates: Mutex::new(Rates::default()),
            draining: AtomicBool::new(false),
            taken: Mutex::new(0),
            took: Condvar::new(),
            log_lines_lost: Arc::default(),
            stock,
            streams: AtomicU64::new(0),
            taken_up: None,
            beyond_limits: None,
            spares_own: false,
            full: None,
        }
    }

    /// A connection is not half open any more.
    pub(crate) fn opened(&self) {
        self.half_open.fetch_sub(1, Relaxed);
        if let Some(taken_up) = &self.taken_up {
            taken_up();
        }
    }

    /// Whether a stream from there is limited, and counted among those that are.
    pub(crate) fn is_limited(&self, source: IpAddr) -> bool {
        !(self.spares_own && source.to_canonical().is_loopback())
    }

    /// Somebody was refused because there are as many as there may be.
    pub(crate) fn refused(&self, source: IpAddr) {
        if let Some(full) = &self.full {
            full(source.to_canonical());
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

pub(crate) struct Context {
    /// Which of the workers.
    pub(crate) worker: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) live: Arc<Live>,
    pub(crate) epoll: OwnedFd,
    pub(crate) wheel: Wheel,
    pub(crate) tools: Tools,
    /// Where a hello that lies in several records is put together.
    pub(crate) hello: Vec<u8>,
    /// As of the last wake-up.
    pub(crate) now_ms: u64,
    /// Lines of the access log that are still to be handed over.
    pub(crate) log: Option<String>,
    /// Connections that had more to do than their turn allowed.
    pub(crate) again: Vec<Key>,
    /// Connections that borrowed a pipe since the last look.
    pub(crate) piped: Vec<Key>,
}

impl Context {
    pub(crate) fn new(
        worker: usize,
        shared: Arc<Shared>,
        live: Arc<Live>,
        log: Option<String>,
        outbox: Option<Outbox>,
    ) -> io::Result<Self> {
        Ok(Self {
            worker,
            now_ms: shared.now_ms(),
            shared,
            live,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            wheel: Wheel::new(),
            tools: Tools::new(outbox),
            hello: Vec::new(),
            log,
            again: Vec::new(),
            piped: Vec::new(),
        })
    }

    pub(crate) fn waiting(&self, key: Key) -> Waiting {
        Waiting { worker: self.worker, key }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.live.table.limits
    }

    pub(crate) fn within_rate(&self, source: IpAddr) -> bool {
        match self.limits().per_second_per_source {
            Some(limit) => self.shared.rates.lock().admit(source, limit, self.now_ms),
            None => true,
        }
    }

    pub(crate) fn below(count: &AtomicU32, limit: Option<u32>) -> bool {
        limit.is_none_or(|limit| count.load(Relaxed) <= limit)
    }

    /// Announces what can be read from now on.
    pub(crate) fn watch(&self, fd: &OwnedFd, token: Token) -> io::Result<()> {
        epoll::add(&self.epoll, fd, token.data(), READING)
    }

    /// Announces, again and again, that datagrams are there: who reads only some of them in a turn need not remember it.
    pub(crate) fn watch_datagrams(&self, fd: &OwnedFd, token: Token) -> io::Result<()> {
        epoll::add(&self.epoll, fd, token.data(), epoll::EventFlags::IN)
    }

    /// Announces also when it can be written to: for a socket that is still connecting.
    pub(crate) fn watch_connecting(&self, fd: &OwnedFd, token: Token) -> io::Result<()> {
        epoll::add(&self.epoll, fd, token.data(), WRITING)
    }

    /// The socket was full: asks once for all to be told when it is not. Most sockets are never full, and asking from the start would
    /// cost each of them an event.
    pub(crate) fn watch_full(&self, side: &mut Side, token: Token) -> io::Result<()> {
        if side.writable || side.room_announced {
            return Ok(());
        }
        side.room_announced = true;
        epoll::modify(&self.epoll, &side.fd, token.data(), WRITING)
    }
}
