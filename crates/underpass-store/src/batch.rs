//! Decides the writes of one batch: each against the state plus the writes before it in the same batch.

use std::collections::HashMap;
use std::sync::Arc;

use crate::bucket::Bucket;
use crate::entry::{Change, Changed, Entry, Event, Expect, Write, WriteError};
use crate::state::{Accepted, State};

/// Bucket and name.
type Place = (Arc<str>, Arc<str>);

pub(crate) struct Batch<'a> {
    state: &'a State,
    revision: u64,
    /// What the accepted writes leave behind; `None` is deleted.
    pending: HashMap<Place, Option<Arc<Entry>>>,
    accepted: Vec<Accepted>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(state: &'a State) -> Batch<'a> {
        Batch { state, revision: state.revision(), pending: HashMap::new(), accepted: Vec::new() }
    }

    /// Accepts the write and gives it the next revision, or refuses it; nothing is durable or visible yet.
    pub(crate) fn decide(&mut self, write: Write) -> Result<Arc<Entry>, WriteError> {
        let bucket = self.state.bucket_or_new(&write.bucket);
        let place: Place = (Arc::clone(&bucket.name), Arc::clone(&write.name));
        let current = match self.pending.get(&place) {
            Some(pending) => pending.clone(),
            None => bucket.content.read().get(&write.name).map(Arc::clone),
        };
        if !allowed(&write, current.as_deref()) {
            return Err(WriteError::Conflict { current });
        }
        let accepted = accept(bucket, write, current, self.revision + 1);
        let entry = Arc::clone(&accepted.entry);
        let left = (accepted.event.change == Changed::Put).then(|| Arc::clone(&entry));
        self.revision += 1;
        self.pending.insert(place, left);
        self.accepted.push(accepted);
        Ok(entry)
    }

    pub(crate) fn into_accepted(self) -> Vec<Accepted> {
        self.accepted
    }
}

/// Deleting what is absent is refused even if absence is expected: there is nothing to tell watchers.
fn allowed(write: &Write, current: Option<&Entry>) -> bool {
    match (write.expect, current) {
        (Expect::Absent, None) => matches!(write.change, Change::Put(_)),
        (Expect::Revision(revision), Some(current)) => current.revision == revision,
        _ => false,
    }
}

fn accept(bucket: Arc<Bucket>, write: Write, previous: Option<Arc<Entry>>, revision: u64) -> Accepted {
    let (change, template) = match write.change {
        Change::Put(template) => (Changed::Put, template),
        Change::Delete(template) => (Changed::Deleted, template),
    };
    let name = previous.as_ref().map_or(write.name, |previous| Arc::clone(&previous.name));
    let created = previous.as_ref().map_or(revision, |previous| previous.created);
    let value = template.fill(revision);
    let entry = Arc::new(Entry { name: Arc::clone(&name), created, revision, value: value.clone() });
    let event = Arc::new(Event { revision, name, change, value, previous });
    Accepted { bucket, entry, event }
}
