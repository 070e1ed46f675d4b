//! The relay as its owner sees it: start it, give it tables, drain it.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io;
use underpass_tables::{Expects, Listener, Reject, RelayTable, Transport};

use crate::access_log::{self, Lines, Writing};
use crate::context::Shared;
use crate::listen::{BindError, joined, listeners};
use crate::live::Live;
use crate::outbox::Outbox;
use crate::stock::Stock;
use crate::worker::{Mailbox, Order, Worker};

/// How long workers may take to take a table.
const TAKE_TIME: Duration = Duration::from_secs(2);

/// How a relay runs, as opposed to what it relays.
pub struct Settings {
    pub workers: usize,
    /// Where access log lines go; None: nowhere.
    pub access_log: Option<Box<dyn Write + Send>>,
    /// Sockets of a predecessor, used for listeners at the same address.
    pub inherited: Vec<Socket>,
    /// Whether small messages may be sent together by io_uring, where the kernel allows it.
    pub io_uring: bool,
    /// Where routes that are not dialled take their connections from.
    pub stock: Option<Arc<Stock>>,
    /// Called when a connection has said what it wants, or has ended before: one fewer of those that were handed over stands ready.
    pub taken_up: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Called when an endpoint that could be dialled cannot be any more, or the other way round.
    pub turned: Option<Arc<dyn Fn() + Send + Sync>>,
    /// The listener of this name is let in beyond `limits.connections`: by it the relay's owner looks whether everything works.
    pub beyond_limits: Option<String>,
    /// Whether streams from this machine itself are its owner's, by which it looks whether everything works: they are neither limited nor
    /// counted, so that they take nobody's place.
    pub spares_own: bool,
    /// Told the source of a stream that was refused because there are as many as there may be, in all or of its route.
    pub full: Option<Arc<dyn Fn(IpAddr) + Send + Sync>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            workers: 1,
            access_log: None,
            inherited: Vec::new(),
            io_uring: true,
            stock: None,
            taken_up: None,
            turned: None,
            beyond_limits: None,
            spares_own: false,
            full: None,
        }
    }
}

/// A socket that listens: what a predecessor hands to its successor.
#[derive(Clone)]
pub struct Socket {
    pub transport: Transport,
    pub address: SocketAddr,
    pub fd: Arc<OwnedFd>,
}

impl Socket {
    fn is_at(&self, listener: &Listener) -> bool {
        (self.transport, self.address) == (listener.transport, listener.address)
    }
}

/// Why a relay cannot run, or a table not be applied.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    #[error("a worker cannot be started")]
    Worker(#[source] std::io::Error),
    #[error("the access log has no thread to be written in")]
    AccessLog(#[source] std::io::Error),
    #[error("the table has generation {offered}, but {running} is running already")]
    Older { offered: u64, running: u64 },
    #[error("nothing can be listened on")]
    NothingListens {
        /// Of the table, and of its listeners.
        rejects: Vec<Reject>,
    },
}

/// A running relay. Dropping it without `drain` leaves its threads running.
pub struct Relay {
    shared: Arc<Shared>,
    mailboxes: Vec<Arc<Mailbox>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Of the access log.
    writing: Mutex<Option<Writing>>,
    live: Mutex<Arc<Live>>,
    sockets: Mutex<Sockets>,
    /// The worker that gets the next connection that is handed over.
    next: AtomicUsize,
}

#[derive(Default)]
struct Sockets {
    /// Of a predecessor, not yet asked for.
    inherited: Vec<Socket>,
    open: Vec<Socket>,
}

impl Relay {
    /// Starts the workers, with an empty table.
    pub fn start(settings: Settings) -> Result<Self, RelayError> {
        let shared = Arc::new(Shared {
            taken_up: settings.taken_up,
            beyond_limits: settings.beyond_limits,
            spares_own: settings.spares_own,
            full: settings.full,
            ..Shared::new(settings.stock.clone())
        });
        let live = Arc::new(Live::empty(settings.turned));
        let mut threads = Vec::new();
        let log = settings.access_log.map(|out| access_log::start(out, &shared.log_lines_lost));
        let (lines, writing) = log.transpose().map_err(RelayError::AccessLog)?.unzip();
        let mut mailboxes = Vec::new();
        for number in 0..settings.workers.max(1) {
            let mailbox = Arc::new(Mailbox::new().map_err(|errno| RelayError::Worker(errno.into()))?);
            threads.push(start_worker(number, &shared, &live, &mailbox, lines.clone(), settings.io_uring)?);
            mailboxes.push(mailbox);
        }
        if let Some(stock) = &settings.stock {
            stock.serve(mailboxes.clone());
        }
        let sockets = Mutex::new(Sockets { inherited: settings.inherited, open: Vec::new() });
        let next = AtomicUsize::new(0);
        let (threads, writing) = (Mutex::new(threads), Mutex::new(writing));
        Ok(Self { shared, mailboxes, threads, writing, live: Mutex::new(live), sockets, next })
    }

    /// Puts a table into force: when this returns, every new connection obeys it. Listeners that cannot be opened are left out and told;
    /// everything else is served. Running connections keep what was decided for them.
    pub fn apply(&self, table: RelayTable) -> Result<Vec<Reject>, RelayError> {
        self.put_into_force(table, false)
    }

    /// The same for those who are there to listen: a table of which nothing can be listened on is refused, and the one before stays.
    pub fn apply_to_listen(&self, table: RelayTable) -> Result<Vec<Reject>, RelayError> {
        self.put_into_force(table, true)
    }

    /// Whether this table would have a listener more than the one in force, were it applied now.
    pub fn could_listen_more(&self, wanted: &RelayTable) -> bool {
        let sockets = self.sockets.lock();
        let closed = |listener: &&Listener| !sockets.open.iter().any(|socket| socket.is_at(listener));
        let could = |listener: &Listener| listeners(listener.address, listener.transport, 1).is_ok();
        wanted.listeners.iter().filter(closed).any(could)
    }

    fn put_into_force(&self, mut table: RelayTable, to_listen: bool) -> Result<Vec<Reject>, RelayError> {
        let mut current = self.live.lock();
        if table.generation < current.table.generation {
            return Err(RelayError::Older { offered: table.generation, running: current.table.generation });
        }
        let mut sockets = self.sockets.lock();
        let (opened, rejects) = self.open_new(&mut table, &mut sockets);
        if to_listen && table.listeners.is_empty() {
            return Err(RelayError::NothingListens { rejects: [table.rejects, rejects].concat() });
        }
        // What a predecessor listened on and this table does not: nobody would ever accept there.
        sockets.inherited.clear();
        table.rejects.extend(rejects.iter().cloned());
        let live = Arc::new(Live::new(table, Some(&current)));
        let mut taken = self.shared.taken.lock();
        let all = *taken + self.mailboxes.len() as u64;
        for (worker, mailbox) in self.mailboxes.iter().enumerate() {
            let own = |sockets: &Vec<_>| sockets.iter().skip(worker).step_by(self.mailboxes.len()).cloned().collect();
            mailbox.send(Order::Swap { live: live.clone(), sockets: opened.iter().map(own).collect() });
        }
        let listening = |socket: &Socket| {
            live.listeners.iter().any(|live| (live.transport, live.address) == (socket.transport, socket.address))
        };
        sockets.open.retain(listening);
        *current = live;
        // Bounded, because a worker that is gone will never take it; connections are not touched by the wait.
        self.shared.took.wait_while_for(&mut taken, |taken| *taken < all, TAKE_TIME);
        Ok(rejects)
    }

    /// Takes a connected, non-blocking socket as if the listener of this name had accepted it. False when there is none: the socket is
    /// closed.
    pub fn adopt(&self, listener: &str, socket: OwnedFd, peer: SocketAddr) -> bool {
        let live = self.live.lock().clone();
        let Some(listener) = live.listeners.iter().find(|live| live.name == listener) else { return false };
        let worker = self.next.fetch_add(1, Relaxed) % self.mailboxes.len();
        self.mailboxes[worker].send(Order::Adopt { listener: listener.clone(), socket, peer });
        true
    }

    /// Everything that is listened on, for a successor.
    pub fn sockets(&self) -> Vec<Socket> {
        self.sockets.lock().open.clone()
    }

    /// How many lines of the access log were lost because nobody took them in time, or because they could not be written.
    pub fn log_lines_lost(&self) -> u64 {
        self.shared.log_lines_lost.lines()
    }

    /// The table in force, with its counters.
    pub fn live(&self) -> Arc<Live> {
        self.live.lock().clone()
    }

    /// Milliseconds on the clock by which endpoints are ejected.
    pub fn now_ms(&self) -> u64 {
        self.shared.now_ms()
    }

    pub fn connections(&self) -> u32 {
        self.shared.connections.load(Relaxed)
    }

    pub fn draining(&self) -> bool {
        self.shared.draining.load(Relaxed)
    }

    /// Accepts nothing more, lets connections go on for at most `time`, and returns when the last one has ended.
    pub fn drain(&self, time: Duration) {
        self.shared.draining.store(true, Relaxed);
        *self.sockets.lock() = Sockets::default();
        for mailbox in &self.mailboxes {
            mailbox.send(Order::Drain(time));
        }
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A worker that panicked has nothing left to drain.
            let _ = thread.join();
        }
        if let Some(writing) = self.writing.lock().take() {
            writing.finish();
        }
    }

    /// Whoever is draining has no time left. Does not wait.
    pub fn cut(&self) {
        for mailbox in &self.mailboxes {
            mailbox.send(Order::Drain(Duration::ZERO));
        }
    }

    /// Opens what is not open yet: per listener the new sockets, in order. A listener that cannot be opened is taken out of the table.
    fn open_new(&self, table: &mut RelayTable, sockets: &mut Sockets) -> (Vec<Vec<Arc<OwnedFd>>>, Vec<Reject>) {
        let (mut opened, mut rejects) = (Vec::new(), Vec::new());
        table.listeners.retain_mut(|listener| match sockets.open(listener, self.mailboxes.len()) {
            Ok(fds) => {
                opened.push(fds);
                true
            }
            Err(error) => {
                rejects.push(Reject { entry: format!("listener {}", listener.name), reason: chain(&error) });
                false
            }
        });
        (opened, rejects)
    }
}

impl Sockets {
    /// The sockets of a listener that was not open, or none; a port that was left to the system is filled in.
    fn open(&mut self, listener: &mut Listener, workers: usize) -> Result<Vec<Arc<OwnedFd>>, BindError> {
        if listener.expects == Expects::StreamHeader {
            return Ok(Vec::new());
        }
        if self.open.iter().any(|socket| socket.is_at(listener)) {
            return Ok(Vec::new());
        }
        let inherited: Vec<_> =
            self.inherited.extract_if(.., |socket| socket.is_at(listener)).map(|socket| socket.fd).collect();
        let (address, fds) = if inherited.is_empty() {
            listeners(listener.address, listener.transport, workers)?
        } else {
            (listener.address, joined(inherited, listener.address, listener.transport, workers)?)
        };
        listener.address = address;
        let socket = |fd: &Arc<OwnedFd>| Socket { transport: listener.transport, address, fd: fd.clone() };
        self.open.extend(fds.iter().map(socket));
        Ok(fds)
    }
}

fn start_worker(
    number: usize,
    shared: &Arc<Shared>,
    live: &Arc<Live>,
    mailbox: &Arc<Mailbox>,
    log: Option<Lines>,
    io_uring: bool,
) -> Result<JoinHandle<()>, RelayError> {
    let outbox = if io_uring { Outbox::new() } else { None };
    let worker = Worker::new(number, shared.clone(), live.clone(), mailbox.clone(), log, outbox);
    let worker = worker.map_err(|errno: io::Errno| RelayError::Worker(errno.into()))?;
    std::thread::Builder::new().name(format!("relay-{number}")).spawn(|| worker.run()).map_err(RelayError::Worker)
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
