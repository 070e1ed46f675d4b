//! Watchers: complete, woken, cheap, and told when they fell behind.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kit;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake};
use std::time::Duration;

use kit::{create, delete, drain, forever, put};
use underpass_store::{At, ReadError, Store};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_watcher_sees_every_event_once_and_in_order() {
    const WRITES: u64 = 500;
    let store = Store::ephemeral(forever()).unwrap();
    let start = store.revision();
    let watchers: Vec<_> = (0..20)
        .map(|_| {
            let mut watcher = store.watch("things", start).unwrap();
            tokio::spawn(async move {
                let mut seen = Vec::new();
                while seen.len() < usize::try_from(WRITES).unwrap() {
                    // Giving up the wait now and then must lose nothing.
                    if let Ok(event) = tokio::time::timeout(Duration::from_micros(200), watcher.next()).await {
                        seen.push(event.unwrap().revision);
                    }
                }
                seen
            })
        })
        .collect();
    for _ in 0..WRITES {
        put(&store, "things", "a", "x").await;
    }
    for watcher in watchers {
        assert_eq!(watcher.await.unwrap(), (start + 1..=start + WRITES).collect::<Vec<_>>());
    }
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_write_wakes_the_watchers_of_its_bucket_only() {
    let store = Store::ephemeral(forever()).unwrap();
    let (mut same, mut other) = (store.watch("same", 0).unwrap(), store.watch("other", 0).unwrap());
    let (mut same, mut other) = (Box::pin(same.next()), Box::pin(other.next()));
    let (same_wakes, other_wakes) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
    assert!(same.as_mut().poll(&mut Context::from_waker(&same_wakes.clone().into())).is_pending());
    assert!(other.as_mut().poll(&mut Context::from_waker(&other_wakes.clone().into())).is_pending());
    let entry = create(&store, "same", "a", "x").await.unwrap();
    assert_eq!((same_wakes.0.load(Ordering::SeqCst), other_wakes.0.load(Ordering::SeqCst)), (1, 0));
    assert_eq!(same.await.unwrap().revision, entry.revision);
}

#[tokio::test]
async fn seen_follows_the_store_while_the_bucket_is_quiet_and_never_skips_an_event() {
    let store = Store::ephemeral(forever()).unwrap();
    let start = store.revision();
    let mut watcher = store.watch("things", start).unwrap();
    assert_eq!(watcher.seen(), start);
    let other = put(&store, "others", "b", "x").await;
    assert_eq!(watcher.seen(), other.revision);
    let entry = put(&store, "things", "a", "x").await;
    let newest = put(&store, "others", "b", "y").await.revision;
    assert!(watcher.seen() < entry.revision, "an event is waiting");
    assert_eq!(watcher.next().await.unwrap().revision, entry.revision);
    assert_eq!(watcher.seen(), newest);
    assert_eq!(watcher.try_next(), Ok(None));
}

#[tokio::test]
async fn only_a_watcher_that_missed_something_falls_behind() {
    let store = Store::ephemeral(forever()).unwrap();
    let start = store.revision();
    let (mut late, mut idle) = (store.watch("things", start).unwrap(), store.watch("quiet", start).unwrap());
    put(&store, "things", "a", "x").await;
    let newest = put(&store, "others", "b", "x").await.revision;
    store.compact(newest).await.unwrap();
    assert_eq!(late.try_next(), Err(ReadError::Compacted { oldest: newest }));
    assert_eq!(late.next().await, Err(ReadError::Compacted { oldest: newest }));
    let entry = put(&store, "quiet", "c", "x").await;
    assert_eq!(idle.next().await.unwrap().revision, entry.revision, "compaction took nothing of this bucket");
}

#[tokio::test]
async fn watchers_that_never_read_hold_nothing() {
    let store = Store::ephemeral(forever()).unwrap();
    let sleepers: Vec<_> = (0..1000).map(|_| store.watch("things", 0).unwrap()).collect();
    let first = put(&store, "things", "a", "x").await;
    let mut reader = store.watch("things", 0).unwrap();
    let event = reader.next().await.unwrap();
    assert_eq!(Arc::strong_count(&event), 2, "the queue of the bucket and this one, none per watcher");
    drop(event);
    put(&store, "things", "a", "y").await;
    assert_eq!(Arc::strong_count(&first), 2, "this one and the event that replaced it");
    store.compact(store.revision()).await.unwrap();
    assert_eq!(Arc::strong_count(&first), 1, "compaction frees history under the feet of those who sleep");
    drop(sleepers);
}

#[tokio::test]
async fn lists_show_one_moment() {
    let store = Store::ephemeral(forever()).unwrap();
    for name in ["b/2", "a/1", "b/1", "c/1", "b/3"] {
        create(&store, "things", name, "old").await.unwrap();
    }
    let then = store.revision();
    put(&store, "things", "b/1", "new").await;
    delete(&store, "things", "b/2").await;
    create(&store, "things", "b/22", "new").await.unwrap();
    let list = |prefix: &str, after: Option<&str>, at| {
        let listing = store.list("things", prefix, after, at).unwrap();
        let text =
            |entry: &Arc<underpass_store::Entry>| format!("{}={}", entry.name, String::from_utf8_lossy(&entry.value));
        listing.entries.iter().map(text).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(list("b/", None, At::Now), "b/1=new b/22=new b/3=old");
    assert_eq!(list("b/", None, At::Revision(then)), "b/1=old b/2=old b/3=old");
    assert_eq!(list("b/", Some("b/1"), At::Now), "b/22=new b/3=old");
    assert_eq!(list("b/", Some("b/1"), At::Revision(then)), "b/2=old b/3=old");
    assert_eq!(list("", Some("b/3"), At::Revision(then)), "c/1=old");
    assert_eq!(list("b/", Some("a"), At::Revision(then)), "b/1=old b/2=old b/3=old");
    assert_eq!(list("x", None, At::Revision(then)), "");
    let newest = store.revision();
    assert_eq!(store.list("things", "", None, At::Revision(newest + 1)), Err(ReadError::Future { newest }));
    store.compact(newest).await.unwrap();
    let refused = Err(ReadError::Compacted { oldest: newest });
    assert_eq!(store.list("things", "", None, At::Revision(then)), refused);
    assert_eq!(store.list("nothing", "", None, At::Revision(then)), refused);
    assert_eq!(store.buckets(), ["things".into()] as [Arc<str>; 1]);
}

/// A list says which revision it shows; the events after that revision must lead from it to every later list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_then_watch_has_no_gap_and_no_repeat_while_others_write() {
    let store = Store::ephemeral(forever()).unwrap();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..200 {
                    let name = format!("{writer}-{}", round % 5);
                    match store.get("things", &name) {
                        Some(_) if round % 3 == 0 => drop(delete(&store, "things", &name).await),
                        _ => drop(put(&store, "things", &name, &format!("{round}")).await),
                    }
                    put(&store, "others", &name, "noise").await;
                }
            })
        })
        .collect();
    let mut listings = Vec::new();
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
        listings.push(store.list("things", "", None, At::Now).unwrap());
        tokio::task::yield_now().await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let every = listings.len() / 40 + 1;
    for listing in listings.into_iter().step_by(every) {
        assert_eq!(store.list("things", "", None, At::Revision(listing.revision)).unwrap(), listing);
        let mut names: std::collections::BTreeMap<_, _> =
            listing.entries.iter().map(|entry| (entry.name.clone(), entry.value.clone())).collect();
        for event in drain(&mut store.watch("things", listing.revision).unwrap()) {
            match event.change {
                underpass_store::Changed::Put => names.insert(event.name.clone(), event.value.clone()),
                underpass_store::Changed::Deleted => names.remove(&event.name),
            };
        }
        let last = store.list("things", "", None, At::Now).unwrap().entries;
        assert!(names.into_iter().eq(last.iter().map(|entry| (entry.name.clone(), entry.value.clone()))));
    }
}
