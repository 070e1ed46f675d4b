//! The way from callers to the writer thread: bounded, waited for without blocking by callers, with blocking by the
//! thread.
//!
//! Rejected: tokio's channel, whose blocking receive cannot be given a time limit outside a runtime, which the writer
//! needs to compact an idle store.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::entry::{Entry, Write, WriteError};

/// How many requests may wait or be under way: more than any batch gains from, few enough to bound memory.
const ROOM: usize = 1024;

pub(crate) enum Request {
    Write(Write, Answer<Arc<Entry>>),
    Compact(u64, Answer<()>),
}

/// Where the result goes; its place in the queue is free again when this is dropped.
pub(crate) struct Answer<T> {
    caller: oneshot::Sender<Result<T, WriteError>>,
    _place: OwnedSemaphorePermit,
}

pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    room: Arc<Semaphore>,
}

#[derive(Default)]
struct Waiting {
    requests: Vec<Request>,
    closing: bool,
}

impl<T> Answer<T> {
    pub(crate) fn send(self, result: Result<T, WriteError>) {
        // The caller may have gone away; what it asked for is done all the same.
        let _ = self.caller.send(result);
    }
}

impl Queue {
    pub(crate) fn new() -> Queue {
        Queue { waiting: Mutex::default(), arrived: Condvar::new(), room: Arc::new(Semaphore::new(ROOM)) }
    }

    /// Waits for room, then for the answer. A caller that stops waiting after the request was queued does not undo it.
    pub(crate) async fn ask<T>(&self, request: impl FnOnce(Answer<T>) -> Request) -> Result<T, WriteError> {
        let place = Arc::clone(&self.room).acquire_owned().await.map_err(|_| WriteError::Closed)?;
        let (caller, answer) = oneshot::channel();
        self.push(request(Answer { caller, _place: place }))?;
        answer.await.unwrap_or(Err(WriteError::Closed))
    }

    /// What is queued already is still done; whoever comes later is refused.
    pub(crate) fn close(&self) {
        self.waiting.lock().closing = true;
        self.arrived.notify_one();
    }

    /// Everything that waits, or nothing once `until` has passed; `None` after the last request of a closed queue.
    pub(crate) fn take(&self, until: Option<Instant>) -> Option<Vec<Request>> {
        let mut waiting = self.waiting.lock();
        while waiting.requests.is_empty() {
            if waiting.closing {
                return None;
            }
            match until {
                None => self.arrived.wait(&mut waiting),
                Some(until) if self.arrived.wait_until(&mut waiting, until).timed_out() => break,
                Some(_) => {}
            }
        }
        Some(std::mem::take(&mut waiting.requests))
    }

    fn push(&self, request: Request) -> Result<(), WriteError> {
        let mut waiting = self.waiting.lock();
        if waiting.closing {
            return Err(WriteError::Closed);
        }
        waiting.requests.push(request);
        drop(waiting);
        self.arrived.notify_one();
        Ok(())
    }
}
