//! Connections that stand ready, for routes that are not dialled: the other half of a tunnel made them, and only it can.
//!
//! Whoever finds the stock empty waits in line, and gets the next connection that is put into it. One lock for all workers: it is
//! taken once per connection, not per byte.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::slab::Key;
use crate::worker::{Mailbox, Order};

pub struct Stock {
    shelves: Mutex<Shelves>,
    wanted: Box<dyn Fn(usize) + Send + Sync>,
    workers: OnceLock<Vec<Arc<Mailbox>>>,
}

#[derive(Default)]
struct Shelves {
    idle: VecDeque<OwnedFd>,
    waiting: VecDeque<Waiting>,
}

/// A connection that waits for one from the stock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) worker: usize,
    pub(crate) key: Key,
}

impl Stock {
    /// `wanted` is told how many wait, whenever one more has to. It is called by those who carry traffic, so it must not wait itself.
    pub fn new(wanted: impl Fn(usize) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { shelves: Mutex::default(), wanted: Box::new(wanted), workers: OnceLock::new() })
    }

    /// Adds a connected, non-blocking socket on which nothing was said yet.
    pub fn put(&self, socket: OwnedFd) {
        let mut shelves = self.shelves.lock();
        let Some(first) = shelves.waiting.pop_front() else {
            return shelves.idle.push_back(socket);
        };
        drop(shelves);
        if let Some(mailbox) = self.workers.get().and_then(|workers| workers.get(first.worker)) {
            mailbox.send(Order::Stocked { key: first.key, socket });
        }
    }

    /// How many stand ready.
    pub fn idle(&self) -> usize {
        self.shelves.lock().idle.len()
    }

    /// Forgets those that stand ready: they belong to somebody who is gone.
    pub fn clear(&self) {
        self.shelves.lock().idle.clear();
    }

    /// The workers that may have to wait.
    pub(crate) fn serve(&self, workers: Vec<Arc<Mailbox>>) {
        // Once per relay, and a stock has one.
        let _ = self.workers.set(workers);
    }

    /// A connection whose other end is there, or a place in the line.
    pub(crate) fn take(&self, waiting: Waiting) -> Option<OwnedFd> {
        let mut shelves = self.shelves.lock();
        while let Some(socket) = shelves.idle.pop_front() {
            if is_open(&socket) {
                return Some(socket);
            }
        }
        shelves.waiting.push_back(waiting);
        let count = shelves.waiting.len();
        drop(shelves);
        (self.wanted)(count);
        None
    }

    pub(crate) fn leave(&self, waiting: Waiting) {
        self.shelves.lock().waiting.retain(|other| *other != waiting);
    }
}

/// Nobody speaks on it before we do, so anything that can be read is its end.
fn is_open(socket: &OwnedFd) -> bool {
    matches!(recv(socket, &mut [0; 1], RecvFlags::PEEK), Err(Errno::AGAIN))
}
