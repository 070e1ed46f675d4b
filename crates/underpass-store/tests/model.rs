//! The store against a naive model: the list of all writes ever accepted, replayed for every question.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kit;

use std::collections::BTreeMap;

use kit::{drain, forever, template};
use proptest::prelude::*;
use tempfile::TempDir;
use underpass_store::{At, Change, Changed, Expect, ReadError, Store, Write, WriteError};

const BUCKETS: [&str; 2] = ["left", "right"];
const NAMES: [&str; 5] = ["a", "a/x", "a/y", "b", "ba"];

#[derive(Debug, Clone)]
enum Step {
    /// `guess` is how wrong the expected revision is: mostly not at all.
    Put {
        bucket: usize,
        name: usize,
        guess: u64,
    },
    Delete {
        bucket: usize,
        name: usize,
        guess: u64,
    },
    Compact {
        back: u64,
    },
    Reopen,
    /// As a kill leaves it: from a copy of the open file.
    Crash,
}

struct Written {
    revision: u64,
    bucket: usize,
    name: usize,
    /// `None` is a delete.
    value: Option<String>,
}

#[derive(Default)]
struct Model {
    history: Vec<Written>,
    revision: u64,
    compacted: u64,
}

fn step() -> impl Strategy<Value = Step> {
    let guess = prop_oneof![9 => Just(0u64), 1 => 1u64..3];
    let place = (0..BUCKETS.len(), 0..NAMES.len(), guess);
    prop_oneof![
        8 => place.clone().prop_map(|(bucket, name, guess)| Step::Put { bucket, name, guess }),
        4 => place.prop_map(|(bucket, name, guess)| Step::Delete { bucket, name, guess }),
        1 => (0u64..12).prop_map(|back| Step::Compact { back }),
        1 => Just(Step::Reopen),
        1 => Just(Step::Crash),
    ]
}

impl Model {
    /// Name to (created, revision, value) of one bucket at a revision.
    fn at(&self, bucket: usize, revision: u64) -> BTreeMap<&str, (u64, u64, &str)> {
        let mut live: BTreeMap<&str, (u64, u64, &str)> = BTreeMap::new();
        for written in self.history.iter().filter(|w| w.bucket == bucket && w.revision <= revision) {
            let name = NAMES[written.name];
            match &written.value {
                Some(value) => {
                    let created = live.get(name).map_or(written.revision, |entry| entry.0);
                    live.insert(name, (created, written.revision, value));
                }
                None => drop(live.remove(name)),
            }
        }
        live
    }

    fn current(&self, bucket: usize, name: usize) -> Option<u64> {
        self.at(bucket, self.revision).get(NAMES[name]).map(|entry| entry.1)
    }

    /// The revision that the write gets, or `None` if it is refused.
    fn write(&mut self, bucket: usize, name: usize, expect: Expect, value: Option<String>) -> Option<u64> {
        let fits = match (expect, self.current(bucket, name)) {
            (Expect::Absent, None) => value.is_some(),
            (Expect::Revision(expected), Some(current)) => expected == current,
            _ => false,
        };
        fits.then(|| {
            self.revision += 1;
            self.history.push(Written { revision: self.revision, bucket, name, value });
            self.revision
        })
    }
}

fn expectation(model: &Model, bucket: usize, name: usize, guess: u64) -> Expect {
    match (model.current(bucket, name), guess) {
        (None, 0) => Expect::Absent,
        (Some(_), 2) => Expect::Absent,
        (current, guess) => Expect::Revision(current.unwrap_or(0) + guess),
    }
}

async fn write(store: &Store, model: &mut Model, bucket: usize, name: usize, expect: Expect, value: Option<String>) {
    let change = match &value {
        Some(value) => Change::Put(template(value)),
        None => Change::Delete(template("last")),
    };
    let request = Write { bucket: BUCKETS[bucket].into(), name: NAMES[name].into(), expect, change };
    let before = model.current(bucket, name);
    match (store.write(request).await, model.write(bucket, name, expect, value)) {
        (Ok(entry), Some(revision)) => assert_eq!(entry.revision, revision),
        (Err(WriteError::Conflict { current }), None) => assert_eq!(current.map(|entry| entry.revision), before),
        (got, expected) => panic!("{got:?} where the model says {expected:?}"),
    }
}

fn compare_list(store: &Store, model: &Model, bucket: usize, at: u64) {
    for (prefix, after) in [("", None), ("a", None), ("a/", Some("a/x")), ("", Some("a/x")), ("b", Some("a"))] {
        let result = store.list(BUCKETS[bucket], prefix, after, At::Revision(at));
        if at < model.compacted {
            assert_eq!(result, Err(ReadError::Compacted { oldest: model.compacted }));
            continue;
        }
        let listing = result.unwrap();
        let got =
            listing.entries.iter().map(|e| (&*e.name, (e.created, e.revision, str::from_utf8(&e.value).unwrap())));
        let expected = model.at(bucket, at);
        let expected =
            expected.into_iter().filter(|(name, _)| name.starts_with(prefix) && after.is_none_or(|a| *name > a));
        assert!(got.eq(expected), "list of {prefix:?} after {after:?} at {at}");
    }
}

fn compare_watch(store: &Store, model: &Model, bucket: usize, after: u64) {
    let watcher = store.watch(BUCKETS[bucket], after);
    if after < model.compacted {
        assert_eq!(watcher.err(), Some(ReadError::Compacted { oldest: model.compacted }));
        return;
    }
    let mut watcher = watcher.unwrap();
    let events = drain(&mut watcher);
    assert_eq!(watcher.seen(), model.revision);
    let expected: Vec<_> = model.history.iter().filter(|w| w.bucket == bucket && w.revision > after).collect();
    assert_eq!(events.len(), expected.len());
    for (event, written) in events.iter().zip(expected) {
        let change = if written.value.is_some() { Changed::Put } else { Changed::Deleted };
        let value = written.value.as_deref().unwrap_or("last");
        assert_eq!((event.revision, &*event.name, event.change), (written.revision, NAMES[written.name], change));
        assert_eq!(event.value, value);
        let before = model.at(bucket, written.revision - 1);
        let previous = event.previous.as_ref().map(|e| (e.created, e.revision, str::from_utf8(&e.value).unwrap()));
        assert_eq!(previous, before.get(NAMES[written.name]).copied(), "previous of {}", event.revision);
    }
}

fn compare(store: &Store, model: &Model) {
    assert_eq!((store.revision(), store.compacted()), (model.revision, model.compacted));
    for (bucket, name) in BUCKETS.iter().enumerate() {
        for revision in model.compacted.saturating_sub(1)..=model.revision {
            compare_list(store, model, bucket, revision);
            compare_watch(store, model, bucket, revision);
        }
        let live = !model.at(bucket, model.revision).is_empty();
        assert_eq!(store.buckets().iter().any(|listed| **listed == **name), live);
    }
}

async fn reopen(folder: &mut TempDir, store: Store, in_order: bool) -> Store {
    let next = TempDir::new().unwrap();
    if in_order {
        store.close().await;
    }
    std::fs::copy(folder.path().join("objects.redb"), next.path().join("objects.redb")).unwrap();
    drop(store);
    *folder = next;
    Store::open(folder.path(), forever()).unwrap()
}

async fn run(steps: Vec<Step>) {
    let mut folder = TempDir::new().unwrap();
    let mut store = Store::open(folder.path(), forever()).unwrap();
    let mut model = Model { revision: store.revision(), ..Model::default() };
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Put { bucket, name, guess } => {
                let expect = expectation(&model, bucket, name, guess);
                write(&store, &mut model, bucket, name, expect, Some(format!("step {number}"))).await;
            }
            Step::Delete { bucket, name, guess } => {
                let expect = expectation(&model, bucket, name, guess);
                write(&store, &mut model, bucket, name, expect, None).await;
            }
            Step::Compact { back } => {
                let upto = model.revision.saturating_sub(back);
                store.compact(upto).await.unwrap();
                model.compacted = model.compacted.max(upto);
            }
            Step::Reopen => store = reopen(&mut folder, store, true).await,
            Step::Crash => store = reopen(&mut folder, store, false).await,
        }
        compare(&store, &model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_answers_as_the_model_does(steps in proptest::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(run(steps));
    }
}
