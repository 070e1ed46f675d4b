//! The handle that everybody holds.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use tokio::sync::watch;

use crate::entry::{At, Entry, Event, Listing, ReadError, Write, WriteError};
use crate::open::{self, OpenError, Opened};
use crate::queue::{Queue, Request};
use crate::retention::{Options, Retention};
use crate::state::State;
use crate::watcher::Watcher;
use crate::writer::Writer;

/// A store of revisions. Cheap to clone; when the last clone is dropped, queued writes are finished and the file is
/// closed.
#[derive(Clone)]
pub struct Store(Arc<Handle>);

/// What the handles and the writer thread share.
pub(crate) struct Shared {
    pub(crate) state: Arc<State>,
    pub(crate) queue: Queue,
    pub(crate) commits: AtomicU64,
    pub(crate) failure: watch::Sender<Option<Arc<str>>>,
    pub(crate) closed: watch::Sender<bool>,
}

struct Handle {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

impl Store {
    /// Opens the file `objects.redb` in `folder`, or makes both. A file that is refused is left as it was.
    pub fn open(folder: &Path, options: Options) -> Result<Store, OpenError> {
        Store::start(options, |history| open::file(folder, history))
    }

    /// A store that is gone when it is closed.
    pub fn ephemeral(options: Options) -> Result<Store, OpenError> {
        Store::start(options, |history| open::memory(history))
    }

    fn start(
        options: Options,
        open: impl FnOnce(&mut dyn FnMut(&Event)) -> Result<Opened, OpenError>,
    ) -> Result<Store, OpenError> {
        let (mut retention, now) = (Retention::new(options), Instant::now());
        let opened = open(&mut |event| retention.note(now, event.revision, event.superseded_bytes()));
        let Opened { log, state, path } = opened?;
        retention.compacted(state.compacted(), 0);
        let shared = Arc::new(Shared {
            state: Arc::new(state),
            queue: Queue::new(),
            commits: AtomicU64::new(0),
            failure: watch::Sender::new(None),
            closed: watch::Sender::new(false),
        });
        let writer = Writer { shared: Arc::clone(&shared), log, path: path.clone(), retention, failure: None };
        let thread = thread::Builder::new().name("store".to_owned()).spawn(|| writer.run());
        let writer = Some(thread.map_err(|source| OpenError::Io { path, source })?);
        Ok(Store(Arc::new(Handle { shared, writer })))
    }

    /// The newest revision. Everything up to it is durable and visible.
    pub fn revision(&self) -> u64 {
        self.state().revision()
    }

    /// The oldest revision that can be listed or watched from.
    pub fn compacted(&self) -> u64 {
        self.state().compacted()
    }

    pub fn get(&self, bucket: &str, name: &str) -> Option<Arc<Entry>> {
        self.state().get(bucket, name)
    }

    /// The entries whose names start with `prefix` and come after `after`, in order.
    pub fn list(&self, bucket: &str, prefix: &str, after: Option<&str>, at: At) -> Result<Listing, ReadError> {
        self.state().list(bucket, prefix, after, at)
    }

    /// Returns when the write is durable and visible: the entry as written; for a delete, its last state.
    ///
    /// # Panics
    /// If the hole of the template is outside its bytes.
    pub async fn write(&self, write: Write) -> Result<Arc<Entry>, WriteError> {
        let template = write.change.template();
        assert!(template.hole.is_none_or(|hole| hole <= template.bytes.len()), "the hole is outside the bytes");
        self.0.shared.queue.ask(|answer| Request::Write(write, answer)).await
    }

    /// Sees exactly the events of the bucket with a revision greater than `after`.
    pub fn watch(&self, bucket: &str, after: u64) -> Result<Watcher, ReadError> {
        Watcher::new(&self.0.shared.state, bucket, after)
    }

    /// Lets go of history: revisions before `upto` can no longer be listed or watched from. Live entries stay.
    pub async fn compact(&self, upto: u64) -> Result<(), WriteError> {
        self.0.shared.queue.ask(|answer| Request::Compact(upto, answer)).await
    }

    /// The buckets that have live entries, in order.
    pub fn buckets(&self) -> Vec<Arc<str>> {
        let mut buckets = self.state().buckets();
        buckets.retain(|bucket| bucket.content.read().has_entries());
        buckets.iter().map(|bucket| Arc::clone(&bucket.name)).collect()
    }

    /// How many commits were made durable so far: one for a whole batch of writes, one per compaction.
    pub fn commits(&self) -> u64 {
        self.0.shared.commits.load(Ordering::Relaxed)
    }

    /// Waits until storage breaks (disk full, I/O error), and returns the sentence to tell the user.
    pub async fn failed(&self) -> String {
        let mut failure = self.0.shared.failure.subscribe();
        match failure.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(failure)) => failure.to_string(),
            _ => std::future::pending().await,
        }
    }

    /// Finishes what is queued, refuses what comes later, and returns when the file is closed.
    pub async fn close(&self) {
        self.0.shared.queue.close();
        // The sender lives as long as this handle, so the wait cannot fail.
        let _ = self.0.shared.closed.subscribe().wait_for(|closed| *closed).await;
    }

    fn state(&self) -> &State {
        &self.0.shared.state
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.queue.close();
        if let Some(writer) = self.writer.take() {
            // It catches its own panics; there is nobody left to tell of another.
            let _ = writer.join();
        }
    }
}
