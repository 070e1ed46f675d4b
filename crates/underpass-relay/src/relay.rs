//! The relay as its owner sees it: start it, give it tables, drain it.

use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io;
use underpass_tables::{Reject, RelayTable, Transport};

use crate::context::Shared;
use crate::listen::listeners;
use crate::live::Live;
use crate::worker::{Mailbox, Order, Worker};

/// How a relay runs, as opposed to what it relays.
pub struct Settings {
    pub workers: usize,
    /// Where access log lines go; None: nowhere.
    pub access_log: Option<Box<dyn Write + Send>>,
}

/// Why a relay cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    #[error("a worker cannot be started")]
    Worker(#[source] std::io::Error),
    #[error("the table has generation {offered}, but {running} is running already")]
    Older { offered: u64, running: u64 },
}

/// A running relay. Dropping it without `drain` leaves its threads running.
pub struct Relay {
    shared: Arc<Shared>,
    mailboxes: Vec<Arc<Mailbox>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    live: Mutex<Arc<Live>>,
}

type Address = (Transport, SocketAddr);

impl Relay {
    /// Starts the workers, with an empty table.
    pub fn start(settings: Settings) -> Result<Self, RelayError> {
        let shared = Arc::new(Shared::new());
        let live = Arc::new(Live::new(RelayTable::default(), None));
        let mut threads = Vec::new();
        let log = settings.access_log.map(|out| {
            let (lines_tx, lines_rx) = channel();
            threads.push(std::thread::spawn(move || write_log(&lines_rx, out)));
            lines_tx
        });
        let mut mailboxes = Vec::new();
        for number in 0..settings.workers.max(1) {
            let mailbox = Arc::new(Mailbox::new().map_err(|errno| RelayError::Worker(errno.into()))?);
            threads.push(start_worker(number, &shared, &live, &mailbox, log.clone())?);
            mailboxes.push(mailbox);
        }
        Ok(Self { shared, mailboxes, threads: Mutex::new(threads), live: Mutex::new(live) })
    }

    /// Puts a table into force. Listeners that cannot be opened are left out and told; everything else is served. Running connections
    /// keep what was decided for them.
    pub fn apply(&self, mut table: RelayTable) -> Result<Vec<Reject>, RelayError> {
        let mut current = self.live.lock();
        if table.generation < current.table.generation {
            return Err(RelayError::Older { offered: table.generation, running: current.table.generation });
        }
        let (mut sockets, rejects) = self.open_new(&mut table, &current);
        table.rejects.extend(rejects.iter().cloned());
        let live = Arc::new(Live::new(table, Some(&current)));
        for (worker, mailbox) in self.mailboxes.iter().enumerate() {
            let own = live.table.listeners.iter().map(|listener| {
                sockets.get_mut(&(listener.transport, listener.address)).and_then(|sockets| sockets[worker].take())
            });
            mailbox.send(Order::Swap { live: live.clone(), sockets: own.collect() });
        }
        *current = live;
        Ok(rejects)
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
        for mailbox in &self.mailboxes {
            mailbox.send(Order::Drain(time));
        }
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A worker that panicked has nothing left to drain.
            let _ = thread.join();
        }
    }

    /// Opens what the current table does not have. What cannot be opened is taken out of the new one.
    #[expect(clippy::type_complexity, reason = "sockets by address, one per worker")]
    fn open_new(&self, table: &mut RelayTable, current: &Live) -> (HashMap<Address, Vec<Option<OwnedFd>>>, Vec<Reject>) {
        let mut sockets = HashMap::new();
        let mut rejects = Vec::new();
        let open: Vec<Address> =
            current.table.listeners.iter().map(|listener| (listener.transport, listener.address)).collect();
        table.listeners.retain_mut(|listener| {
            if open.contains(&(listener.transport, listener.address)) {
                return true;
            }
            match listeners(listener.address, listener.transport, self.mailboxes.len()) {
                Ok((address, opened)) => {
                    listener.address = address;
                    sockets.insert((listener.transport, address), opened.into_iter().map(Some).collect());
                    true
                }
                Err(error) => {
                    rejects.push(Reject { entry: format!("listener {}", listener.name), reason: chain(&error) });
                    false
                }
            }
        });
        (sockets, rejects)
    }
}

fn start_worker(
    number: usize,
    shared: &Arc<Shared>,
    live: &Arc<Live>,
    mailbox: &Arc<Mailbox>,
    log: Option<Sender<String>>,
) -> Result<JoinHandle<()>, RelayError> {
    let worker = Worker::new(shared.clone(), live.clone(), mailbox.clone(), log);
    let worker = worker.map_err(|errno: io::Errno| RelayError::Worker(errno.into()))?;
    std::thread::Builder::new().name(format!("relay-{number}")).spawn(|| worker.run()).map_err(RelayError::Worker)
}

/// Whoever reads the log may be slow or gone; connections are not to suffer from it.
fn write_log(lines_rx: &Receiver<String>, mut out: Box<dyn Write + Send>) {
    while let Ok(lines) = lines_rx.recv() {
        if out.write_all(lines.as_bytes()).and_then(|()| out.flush()).is_err() {
            return;
        }
    }
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
