//! What the tests of the store share: short ways to say a write.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::sync::Arc;
use std::time::Duration;

use underpass_store::{Change, Entry, Event, Expect, Options, Store, Template, Watcher, Write, WriteError};

pub(crate) fn forever() -> Options {
    Options { keep_for: Duration::MAX, keep_events: usize::MAX, keep_bytes: u64::MAX }
}

pub(crate) fn template(text: &str) -> Template {
    Template { bytes: text.into(), hole: None }
}

pub(crate) fn put_as(bucket: &str, name: &str, expect: Expect, text: &str) -> Write {
    Write { bucket: bucket.into(), name: name.into(), expect, change: Change::Put(template(text)) }
}

/// Puts whatever is there now.
pub(crate) async fn put(store: &Store, bucket: &str, name: &str, text: &str) -> Arc<Entry> {
    store.write(put_as(bucket, name, current(store, bucket, name), text)).await.unwrap()
}

pub(crate) async fn delete(store: &Store, bucket: &str, name: &str) -> Arc<Entry> {
    let expect = current(store, bucket, name);
    let change = Change::Delete(template("gone"));
    store.write(Write { bucket: bucket.into(), name: name.into(), expect, change }).await.unwrap()
}

pub(crate) fn current(store: &Store, bucket: &str, name: &str) -> Expect {
    store.get(bucket, name).map_or(Expect::Absent, |entry| Expect::Revision(entry.revision))
}

pub(crate) async fn create(store: &Store, bucket: &str, name: &str, text: &str) -> Result<Arc<Entry>, WriteError> {
    store.write(put_as(bucket, name, Expect::Absent, text)).await
}

/// All events that are there already.
pub(crate) fn drain(watcher: &mut Watcher) -> Vec<Arc<Event>> {
    std::iter::from_fn(|| watcher.try_next().unwrap()).collect()
}

pub(crate) fn names(entries: &[Arc<Entry>]) -> Vec<&str> {
    entries.iter().map(|entry| &*entry.name).collect()
}
