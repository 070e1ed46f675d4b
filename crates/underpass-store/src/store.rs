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

    /// Whether there is such a file.
    pub fn is_in(folder: &Path) -> bool {
        folder.join(open::FILE).exists()
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
        let sentence =
            failure.wait_for(Option::is_some).await.ok().and_then(|failure| failure.as_deref().map(str::to_owned));
        match sentence {
            Some(sentence) => sentence,
            None => std::future::pending().await,
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

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io;
    use std::ops::Bound;
    use std::sync::atomic::AtomicBool;

    use redb::backends::FileBackend;
    use redb::{BackendError, StorageBackend};
    use tempfile::TempDir;

    use super::*;
    use crate::{Change, Expect, Template};

    /// A file on a disk that can be made full, or broken, at any moment.
    #[derive(Debug)]
    struct Disk {
        file: FileBackend,
        trouble: Arc<Trouble>,
    }

    #[derive(Debug, Default)]
    struct Trouble {
        full: AtomicBool,
        sync_fails: AtomicBool,
    }

    impl Disk {
        fn room(&self) -> io::Result<()> {
            let full = self.trouble.full.load(Ordering::SeqCst);
            if full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        }
    }

    impl StorageBackend for Disk {
        fn len(&self) -> io::Result<u64> {
            self.file.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.file.read(offset, out)
        }

        fn set_len(&self, length: u64) -> io::Result<()> {
            self.room().and_then(|()| self.file.set_len(length))
        }

        fn sync_data(&self) -> io::Result<()> {
            let fails = self.trouble.sync_fails.load(Ordering::SeqCst);
            if fails { Err(io::Error::other("the cable fell out")) } else { self.file.sync_data() }
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.room().and_then(|()| self.file.write(offset, data))
        }

        fn close(&self) -> io::Result<()> {
            self.file.close()
        }

        fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
            self.file.try_lock_range(start, end)
        }

        fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
            self.file.unlock_range(start, end)
        }
    }

    /// Opens the store of a folder on a disk with this trouble.
    fn open_on(trouble: &Arc<Trouble>, folder: &TempDir) -> Result<Store, OpenError> {
        let path = folder.path().join("objects.redb");
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let disk = Disk { file: FileBackend::new(file).unwrap(), trouble: Arc::clone(trouble) };
        Store::start(Options::default(), |history| open::opened(path, Box::new(disk), history))
    }

    fn create(name: &str) -> Write {
        let change = Change::Put(Template { bytes: vec![b'x'; 5000], hole: None });
        Write { bucket: "things".into(), name: name.into(), expect: Expect::Absent, change }
    }

    async fn fails_for_good(cause: impl FnOnce(&Trouble), cure: impl FnOnce(&Trouble), reason: &str) {
        let folder = TempDir::new().unwrap();
        drop(Store::open(folder.path(), Options::default()).unwrap());
        let trouble = Arc::default();
        let store = open_on(&trouble, &folder).unwrap();
        let kept = store.write(create("kept")).await.unwrap();
        let mut watcher = store.watch("things", kept.revision).unwrap();

        cause(&trouble);
        let (lost, lost_too) = (create("lost"), create("lost too"));
        let (first, second) = tokio::join!(store.write(lost), store.write(lost_too));
        let failure = store.failed().await;
        assert!(failure.contains(reason) && failure.contains("objects.redb"), "{failure}");
        let refused = WriteError::Storage(failure.as_str().into());
        assert_eq!((first, second), (Err(refused.clone()), Err(refused.clone())));
        assert_eq!(store.revision(), kept.revision);
        assert_eq!(watcher.try_next(), Ok(None), "nobody sees a write that is not durable");
        assert_eq!(store.list("things", "", None, At::Now).unwrap().entries, [Arc::clone(&kept)]);

        cure(&trouble);
        assert_eq!(store.write(create("late")).await, Err(refused.clone()), "not before the file is opened again");
        assert_eq!(store.write(create("kept")).await, Err(refused.clone()), "not even a conflict is certain");
        assert_eq!(store.compact(kept.revision).await, Err(refused));
        store.close().await;

        let again = Store::open(folder.path(), Options::default()).unwrap();
        assert_eq!(again.get("things", "kept"), Some(kept));
        again.write(create("new")).await.unwrap();
    }

    #[tokio::test]
    async fn a_full_disk_loses_nothing_that_was_acknowledged() {
        let full = |full| move |trouble: &Trouble| trouble.full.store(full, Ordering::SeqCst);
        fails_for_good(full(true), full(false), "the disk is full").await;
    }

    #[tokio::test]
    async fn a_failed_sync_is_a_failed_write() {
        let fails = |fails| move |trouble: &Trouble| trouble.sync_fails.store(fails, Ordering::SeqCst);
        fails_for_good(fails(true), fails(false), "the cable fell out").await;
    }

    #[tokio::test]
    async fn a_store_cannot_be_opened_on_a_full_disk_but_stays_whole() {
        let folder = TempDir::new().unwrap();
        let store = Store::open(folder.path(), Options::default()).unwrap();
        let kept = store.write(create("kept")).await.unwrap();
        store.close().await;
        let trouble = Arc::new(Trouble { full: true.into(), ..Trouble::default() });
        assert!(matches!(open_on(&trouble, &folder).err(), Some(OpenError::DiskFull { .. })));
        let again = Store::open(folder.path(), Options::default()).unwrap();
        assert_eq!(again.get("things", "kept"), Some(kept));
    }
}
