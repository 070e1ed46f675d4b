//! What readers see: all buckets and the two revisions that bound history.
//!
//! Every bucket has its own lock. A batch is shown by locking all buckets it touches, applying it, and raising the
//! revision before the first lock is let go. So whoever holds a bucket's lock and reads the revision knows: the bucket
//! holds everything up to that revision and nothing after it. Only the writer thread ever holds more than one lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;

use crate::bucket::{Bucket, Content};
use crate::entry::{At, Changed, Entry, Event, Listing, ReadError};
use crate::row::Row;

/// The revision of a store that was never written to. Not 0, which Kubernetes' clients read as "any revision".
const UNWRITTEN: u64 = 1;

pub(crate) struct State {
    buckets: RwLock<BTreeMap<Arc<str>, Arc<Bucket>>>,
    revision: AtomicU64,
    compacted: AtomicU64,
}

/// A write that was accepted: the bucket it goes to, the entry as written and what watchers are told.
pub(crate) struct Accepted {
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) entry: Arc<Entry>,
    pub(crate) event: Arc<Event>,
}

/// Rebuilds the state from the rows of the log, in order.
pub(crate) struct Rebuild {
    buckets: BTreeMap<Arc<str>, Content>,
    revision: u64,
    compacted: u64,
}

impl State {
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    pub(crate) fn compacted(&self) -> u64 {
        self.compacted.load(Ordering::Acquire)
    }

    pub(crate) fn bucket(&self, name: &str) -> Option<Arc<Bucket>> {
        self.buckets.read().get(name).map(Arc::clone)
    }

    pub(crate) fn bucket_or_new(&self, name: &str) -> Arc<Bucket> {
        if let Some(bucket) = self.bucket(name) {
            return bucket;
        }
        let name: Arc<str> = name.into();
        let new = || Bucket::new(Arc::clone(&name), Content::default());
        Arc::clone(self.buckets.write().entry(Arc::clone(&name)).or_insert_with(new))
    }

    pub(crate) fn buckets(&self) -> Vec<Arc<Bucket>> {
        self.buckets.read().values().map(Arc::clone).collect()
    }

    pub(crate) fn get(&self, bucket: &str, name: &str) -> Option<Arc<Entry>> {
        self.bucket(bucket)?.content.read().get(name).map(Arc::clone)
    }

    pub(crate) fn list(&self, bucket: &str, prefix: &str, after: Option<&str>, at: At) -> Result<Listing, ReadError> {
        let bucket = self.bucket_or_new(bucket);
        let content = bucket.content.read();
        let newest = self.revision();
        match at {
            At::Revision(revision) if revision != newest => {
                self.readable(revision)?;
                Ok(Listing { revision, entries: content.list_at(revision, prefix, after) })
            }
            _ => Ok(Listing { revision: newest, entries: content.list(prefix, after) }),
        }
    }

    /// Whether history reaches back to `revision`. To be asked under the lock of the bucket that will be read.
    pub(crate) fn readable(&self, revision: u64) -> Result<(), ReadError> {
        let (oldest, newest) = (self.compacted(), self.revision());
        match revision {
            revision if revision < oldest => Err(ReadError::Compacted { oldest }),
            revision if revision > newest => Err(ReadError::Future { newest }),
            _ => Ok(()),
        }
    }

    /// Shows a durable batch to readers, all of it at once, and wakes those who watch its buckets.
    pub(crate) fn publish(&self, batch: Vec<Accepted>) {
        let Some(last) = batch.last().map(|accepted| accepted.event.revision) else { return };
        let touched: BTreeMap<Arc<str>, Arc<Bucket>> =
            batch.iter().map(|accepted| (Arc::clone(&accepted.bucket.name), Arc::clone(&accepted.bucket))).collect();
        let mut locked: BTreeMap<&str, _> =
            touched.iter().map(|(name, bucket)| (&**name, bucket.content.write())).collect();
        for Accepted { bucket, entry, event } in batch {
            if let Some(content) = locked.get_mut(&*bucket.name) {
                content.apply(entry, event);
            }
        }
        self.revision.store(last, Ordering::Release);
        drop(locked);
        for bucket in touched.values() {
            bucket.changed.notify_waiters();
        }
    }

    /// Rows of the log that hold nothing which was live at `upto` or came later.
    pub(crate) fn superseded_rows(&self, upto: u64) -> Vec<u64> {
        let mut rows = Vec::new();
        for bucket in self.buckets() {
            let content = bucket.content.read();
            rows.extend(content.events_upto(upto).flat_map(|event| event.superseded_rows()));
        }
        rows.sort_unstable();
        rows
    }

    /// Forgets the events up to `upto`; returns how many bytes of old values went with them.
    pub(crate) fn trim(&self, upto: u64) -> u64 {
        // First, so that whoever finds a bucket trimmed also finds the reason.
        self.compacted.store(upto, Ordering::Release);
        let mut bytes = 0;
        for bucket in self.buckets() {
            let trimmed = bucket.content.write().trim(upto);
            bytes += trimmed.iter().map(|event| event.superseded_bytes()).sum::<u64>();
        }
        self.buckets.write().retain(|_, bucket| Arc::strong_count(bucket) > 1 || !bucket.content.read().is_unused());
        bytes
    }
}

impl Rebuild {
    pub(crate) fn new(compacted: u64) -> Rebuild {
        Rebuild { buckets: BTreeMap::new(), revision: compacted.max(UNWRITTEN), compacted }
    }

    /// Takes the next row. What it returns is the event it stands for, unless that is compacted; an error says what is
    /// wrong with the row.
    pub(crate) fn take(&mut self, revision: u64, row: &Row<'_>) -> Result<Option<Arc<Event>>, &'static str> {
        let name: Arc<str> = row.name.into();
        let value = Bytes::copy_from_slice(row.value);
        let entry = Arc::new(Entry { name: Arc::clone(&name), created: row.created, revision, value: value.clone() });
        let content = content_of(&mut self.buckets, row.bucket);
        if revision <= self.compacted {
            let alone = row.change == Changed::Put && content.restore(entry).is_none();
            return if alone { Ok(None) } else { Err("should have been compacted") };
        }
        let previous = content.get(&name).map(Arc::clone);
        let born = previous.as_ref().map_or(revision, |previous| previous.created);
        if revision != self.revision + 1 {
            return Err("does not follow the one before it");
        }
        if row.created != born || (previous.is_none() && row.change == Changed::Deleted) {
            return Err("does not fit what it changes");
        }
        let event = Arc::new(Event { revision, name, change: row.change, value, previous });
        content.apply(entry, Arc::clone(&event));
        self.revision = revision;
        Ok(Some(event))
    }

    pub(crate) fn finish(self) -> State {
        let bucket = |(name, content): (Arc<str>, Content)| (Arc::clone(&name), Bucket::new(name, content));
        State {
            buckets: RwLock::new(self.buckets.into_iter().map(bucket).collect()),
            revision: AtomicU64::new(self.revision),
            compacted: AtomicU64::new(self.compacted),
        }
    }
}

/// Does not allocate the name of a bucket that is already there.
fn content_of<'a>(buckets: &'a mut BTreeMap<Arc<str>, Content>, name: &str) -> &'a mut Content {
    if !buckets.contains_key(name) {
        buckets.insert(name.into(), Content::default());
    }
    buckets.get_mut(name).expect("inserted above if it was missing")
}
