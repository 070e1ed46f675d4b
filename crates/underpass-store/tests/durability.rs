//! What must hold across a restart, and how writes share commits.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kit;

use std::fs;
use std::path::Path;
use std::time::Duration;

use kit::{create, delete, drain, forever, names, put, put_as};
use tempfile::TempDir;
use underpass_store::{At, Change, Changed, Expect, Options, ReadError, Store, Template, Write, WriteError};

fn open(folder: &Path) -> Store {
    Store::open(folder, forever()).unwrap()
}

/// The store as a process finds it after the last one was killed: the file is copied while it is open.
fn after_a_kill(folder: &Path) -> (TempDir, Store) {
    let copy = TempDir::new().unwrap();
    fs::copy(folder.join("objects.redb"), copy.path().join("objects.redb")).unwrap();
    let store = open(copy.path());
    (copy, store)
}

#[tokio::test]
async fn every_acknowledged_write_is_there_after_a_kill() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    for round in 0..20 {
        let entry = put(&store, "things", &format!("n{}", round % 7), &format!("round {round}")).await;
        let (_copy, found) = after_a_kill(folder.path());
        assert_eq!(found.revision(), entry.revision);
        assert_eq!(found.list("things", "", None, At::Now), store.list("things", "", None, At::Now));
        assert_eq!(create(&found, "things", "next", "").await.unwrap().revision, entry.revision + 1);
    }
}

#[tokio::test]
async fn a_revision_is_never_used_twice_even_if_nothing_is_left_of_it() {
    let folder = TempDir::new().unwrap();
    let mut highest = 0;
    for _ in 0..4 {
        let store = open(folder.path());
        assert!(store.revision() >= highest);
        let created = create(&store, "things", "a", "x").await.unwrap();
        assert!(created.revision > highest);
        highest = delete(&store, "things", "a").await.revision;
        store.compact(store.revision()).await.unwrap();
        assert_eq!((store.revision(), store.compacted(), store.buckets().len()), (highest, highest, 0));
        store.close().await;
    }
}

#[tokio::test]
async fn a_watcher_resumes_exactly_after_a_restart() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    let start = store.revision();
    for round in 0..10 {
        put(&store, "things", "a", &format!("a{round}")).await;
        put(&store, "others", "b", "not watched").await;
    }
    delete(&store, "things", "a").await;
    put(&store, "things", "a", "again").await;
    store.compact(start + 4).await.unwrap();
    let before = drain(&mut store.watch("things", start + 4).unwrap());
    store.close().await;
    let reopened = open(folder.path());
    assert_eq!(reopened.compacted(), start + 4);
    for after in start + 4..=reopened.revision() {
        let events = drain(&mut reopened.watch("things", after).unwrap());
        let expected: Vec<_> = before.iter().filter(|event| event.revision > after).cloned().collect();
        assert_eq!(events, expected, "from {after}, previous entries included");
    }
    assert_eq!(reopened.watch("things", start + 3).err(), Some(ReadError::Compacted { oldest: start + 4 }));
    let newest = reopened.revision();
    assert_eq!(reopened.watch("things", newest + 1).err(), Some(ReadError::Future { newest }));
}

#[tokio::test]
async fn compaction_takes_rows_out_of_the_file() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    let large = "x".repeat(100_000);
    for round in 0..200 {
        put(&store, "things", &format!("n{}", round % 3), &large).await;
    }
    store.compact(store.revision()).await.unwrap();
    store.close().await;
    let length = || fs::metadata(folder.path().join("objects.redb")).unwrap().len();
    let reopened = open(folder.path());
    reopened.close().await;
    assert!(length() < 4 << 20, "three live values of 100 kB take {} bytes", length());
    let entries = open(folder.path()).list("things", "", None, At::Now).unwrap().entries;
    assert_eq!(names(&entries), ["n0", "n1", "n2"]);
    assert!(entries.iter().all(|entry| entry.value == large));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writers_share_commits() {
    const WRITERS: usize = 64;
    const EACH: usize = 20;
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    let tasks: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..EACH {
                    put(&store, "things", &format!("w{writer}"), &format!("{round}")).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let writes = (WRITERS * EACH) as u64;
    assert_eq!(drain(&mut store.watch("things", 0).unwrap()).len() as u64, writes, "one revision per write");
    assert!(store.commits() < writes / 4, "{} commits for {writes} writes", store.commits());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_expect_the_same_revision_exactly_one_wins() {
    let store = Store::ephemeral(forever()).unwrap();
    for round in 0..20 {
        let expect = kit::current(&store, "things", "a");
        let tasks: Vec<_> = (0..16)
            .map(|writer| {
                let (store, write) = (store.clone(), put_as("things", "a", expect, &format!("{round}/{writer}")));
                tokio::spawn(async move { store.write(write).await })
            })
            .collect();
        let mut winner = None;
        let mut shown = Vec::new();
        for task in tasks {
            match task.await.unwrap() {
                Ok(entry) => assert!(winner.replace(entry).is_none(), "two winners"),
                Err(WriteError::Conflict { current }) => shown.push(current),
                Err(error) => panic!("{error}"),
            }
        }
        assert!(shown.iter().all(|current| *current == winner), "losers are shown the winner");
        assert_eq!(store.get("things", "a"), winner);
    }
}

#[tokio::test]
async fn values_hold_their_own_revision() {
    let store = Store::ephemeral(forever()).unwrap();
    let hole = |text: &str| Template { bytes: text.into(), hole: Some(2) };
    let write = |expect, change| Write { bucket: "things".into(), name: "a".into(), expect, change };
    let made = store.write(write(Expect::Absent, Change::Put(hole("v=.")))).await.unwrap();
    assert_eq!(made.value, format!("v={}.", made.revision));
    let gone = store.write(write(Expect::Revision(made.revision), Change::Delete(hole("d=.")))).await.unwrap();
    assert_eq!((gone.created, gone.value.clone()), (made.revision, format!("d={}.", gone.revision).into()));
    let events = drain(&mut store.watch("things", made.revision).unwrap());
    assert_eq!((events[0].change, &events[0].value), (Changed::Deleted, &gone.value));
    assert_eq!(events[0].previous, Some(made));
}

#[tokio::test]
async fn what_is_expected_must_hold() {
    let store = Store::ephemeral(forever()).unwrap();
    let conflict = |current| Err(WriteError::Conflict { current });
    let remove =
        |expect| Write { bucket: "things".into(), name: "a".into(), expect, change: Change::Delete(kit::template("")) };
    assert_eq!(store.write(put_as("things", "a", Expect::Revision(1), "")).await, conflict(None));
    assert_eq!(store.write(remove(Expect::Revision(1))).await, conflict(None));
    assert_eq!(store.write(remove(Expect::Absent)).await, conflict(None));
    let made = create(&store, "things", "a", "").await.unwrap();
    assert_eq!(create(&store, "things", "a", "").await, conflict(Some(made.clone())));
    assert_eq!(store.write(remove(Expect::Revision(made.revision + 1))).await, conflict(Some(made.clone())));
    assert_eq!(store.revision(), made.revision, "a refused write takes no revision");
    assert_eq!(store.commits(), 1, "and no commit");
}

#[tokio::test]
async fn closing_finishes_what_is_queued_and_refuses_the_rest() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    let names: Vec<_> = (0..50).map(|n| format!("n{n:02}")).collect();
    let mut queued: Vec<_> = names.iter().map(|name| Box::pin(create(&store, "things", name, "x"))).collect();
    for write in &mut queued {
        // One poll queues the request.
        let now = std::future::poll_fn(|context| std::task::Poll::Ready(write.as_mut().poll(context))).await;
        assert!(now.is_pending());
    }
    store.close().await;
    for write in queued {
        write.await.unwrap();
    }
    assert_eq!(create(&store, "things", "late", "x").await, Err(WriteError::Closed));
    assert_eq!(store.list("things", "", None, At::Now).unwrap().entries.len(), 50, "reads go on");
    assert_eq!(open(folder.path()).list("things", "", None, At::Now).unwrap().entries.len(), 50);
}

#[tokio::test]
async fn history_is_let_go_by_count_and_by_age() {
    let store = Store::ephemeral(Options { keep_events: 50, ..forever() }).unwrap();
    for _ in 0..200 {
        put(&store, "things", "a", "x").await;
    }
    // The compaction of the last write may still be under way; asking for another one waits for it.
    store.compact(0).await.unwrap();
    assert!(store.revision() - store.compacted() <= 51, "{} of {}", store.compacted(), store.revision());

    let store = Store::ephemeral(Options { keep_for: Duration::from_millis(50), ..forever() }).unwrap();
    let entry = put(&store, "things", "a", "x").await;
    while store.compacted() < entry.revision {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.get("things", "a"), Some(entry), "an idle store lets go of history, never of entries");
}
