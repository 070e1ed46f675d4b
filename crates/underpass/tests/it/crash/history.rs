//! What clients asked for and what they were told: the evidence that the checker judges.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

pub(crate) type Revision = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    ConfigMap,
    Widget,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    pub(crate) name: String,
}

/// An object as a client saw it. Nobody sends the same payload twice, so it tells which operation made this state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct State {
    pub(crate) key: Key,
    pub(crate) uid: String,
    pub(crate) revision: Revision,
    pub(crate) payload: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

/// One event of a watch. The state of a deleted object is its last one, at the revision of the deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) change: Change,
    pub(crate) state: State,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    /// Replaces the object if it is still at this revision.
    Update {
        at: Revision,
    },
    Patch,
    /// Deletes the object if it is still this one at this revision.
    Delete {
        at: Revision,
        uid: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Acknowledged; the answer to a deletion names no revision.
    Done { revision: Option<Revision> },
    /// Answered with an error of this code: it must not have happened.
    Refused { code: u16 },
    /// The connection broke: it may have happened, once.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) key: Key,
    pub(crate) verb: Verb,
    /// Empty for a deletion.
    pub(crate) payload: String,
    /// When it was sent and when its outcome was known, on one clock for all clients.
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) outcome: Outcome,
}

/// All events that one watch saw after a revision, however often it had to reconnect.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) events: Vec<Seen>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    pub(crate) operations: Vec<Operation>,
    /// What single reads showed.
    pub(crate) reads: Vec<State>,
    pub(crate) watched: Vec<Watched>,
    /// All objects at the end.
    pub(crate) listed: Vec<State>,
}

/// Where clients write down what they do, while they do it.
pub(crate) struct Recorder {
    clock: AtomicU64,
    operations: Mutex<Vec<Operation>>,
    reads: Mutex<Vec<State>>,
    acknowledged: watch::Sender<usize>,
}

impl Kind {
    pub(crate) const ALL: [Kind; 2] = [Kind::ConfigMap, Kind::Widget];

    /// The field that holds the payload.
    pub(crate) fn payload_field(self) -> (&'static str, &'static str) {
        match self {
            Kind::ConfigMap => ("data", "payload"),
            Kind::Widget => ("spec", "payload"),
        }
    }
}

impl State {
    /// An object of the API, read; `None` when something is missing that every object of ours has.
    pub(crate) fn of(kind: Kind, object: &Value) -> Option<State> {
        let metadata = &object["metadata"];
        let (part, field) = kind.payload_field();
        Some(State {
            key: Key { kind, name: metadata["name"].as_str()?.to_owned() },
            uid: metadata["uid"].as_str()?.to_owned(),
            revision: metadata["resourceVersion"].as_str()?.parse().ok()?,
            payload: object[part][field].as_str()?.to_owned(),
        })
    }
}

impl Recorder {
    pub(crate) fn new() -> Recorder {
        Recorder {
            clock: AtomicU64::new(0),
            operations: Mutex::default(),
            reads: Mutex::default(),
            acknowledged: watch::Sender::new(0),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn read(&self, state: State) {
        self.reads.lock().push(state);
    }

    pub(crate) fn ended(&self, operation: Operation) {
        let done = matches!(operation.outcome, Outcome::Done { .. });
        self.operations.lock().push(operation);
        if done {
            self.acknowledged.send_modify(|count| *count += 1);
        }
    }

    pub(crate) fn acknowledged(&self) -> usize {
        *self.acknowledged.borrow()
    }

    pub(crate) async fn reaches(&self, acknowledged: usize) {
        let mut count = self.acknowledged.subscribe();
        count.wait_for(|count| *count >= acknowledged).await.expect("the recorder holds the sender");
    }

    pub(crate) fn operations(&self) -> Vec<Operation> {
        self.operations.lock().clone()
    }

    pub(crate) fn reads(&self) -> Vec<State> {
        self.reads.lock().clone()
    }
}
