//! One bucket: its live entries, and the events that led to them since the last compaction.
//!
//! Watchers are cursors into the shared queue of events, so one that never reads costs nothing but its own few words.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::Notify;

use crate::entry::{Changed, Entry, Event};

pub(crate) struct Bucket {
    pub(crate) name: Arc<str>,
    pub(crate) content: RwLock<Content>,
    /// Woken after events were added.
    pub(crate) changed: Notify,
}

#[derive(Default)]
pub(crate) struct Content {
    entries: BTreeMap<Arc<str>, Arc<Entry>>,
    events: VecDeque<Arc<Event>>,
    /// The newest event that compaction took: a cursor before it has missed something.
    trimmed: u64,
}

impl Bucket {
    pub(crate) fn new(name: Arc<str>, content: Content) -> Arc<Bucket> {
        Arc::new(Bucket { name, content: RwLock::new(content), changed: Notify::new() })
    }
}

impl Content {
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Entry>> {
        self.entries.get(name)
    }

    pub(crate) fn has_entries(&self) -> bool {
        !self.entries.is_empty()
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.entries.is_empty() && self.events.is_empty()
    }

    pub(crate) fn trimmed(&self) -> u64 {
        self.trimmed
    }

    /// Takes an entry that needs no event: it was there before the oldest revision that can be watched.
    pub(crate) fn restore(&mut self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        self.entries.insert(Arc::clone(&entry.name), entry)
    }

    pub(crate) fn apply(&mut self, entry: Arc<Entry>, event: Arc<Event>) {
        match event.change {
            Changed::Put => self.entries.insert(Arc::clone(&entry.name), entry),
            Changed::Deleted => self.entries.remove(&entry.name),
        };
        self.events.push_back(event);
    }

    pub(crate) fn first_after(&self, revision: u64) -> Option<&Arc<Event>> {
        self.events.get(self.events.partition_point(|event| event.revision <= revision))
    }

    pub(crate) fn events_upto(&self, revision: u64) -> impl Iterator<Item = &Arc<Event>> {
        self.events.iter().take_while(move |event| event.revision <= revision)
    }

    /// Gives the events back so that they are freed after the lock is.
    pub(crate) fn trim(&mut self, upto: u64) -> Vec<Arc<Event>> {
        let count = self.events.partition_point(|event| event.revision <= upto);
        let trimmed: Vec<_> = self.events.drain(..count).collect();
        if let Some(last) = trimmed.last() {
            self.trimmed = last.revision;
            self.events.shrink_to(self.events.len() * 2);
        }
        trimmed
    }

    pub(crate) fn list(&self, prefix: &str, after: Option<&str>) -> Vec<Arc<Entry>> {
        self.range(prefix, after).map(|(_, entry)| Arc::clone(entry)).collect()
    }

    /// The list as it was at `revision`: what changed since is taken from the oldest later event of each name.
    pub(crate) fn list_at(&self, revision: u64, prefix: &str, after: Option<&str>) -> Vec<Arc<Entry>> {
        let later = self.events.partition_point(|event| event.revision <= revision);
        let mut before: BTreeMap<&str, Option<&Arc<Entry>>> = BTreeMap::new();
        for event in self.events.range(later..) {
            before.entry(&event.name).or_insert(event.previous.as_ref());
        }
        let unchanged = self.range(prefix, after).filter(|(name, _)| !before.contains_key(&***name));
        let mut listed: Vec<_> = unchanged.map(|(_, entry)| Arc::clone(entry)).collect();
        let shown = |name: &str| name.starts_with(prefix) && after.is_none_or(|after| name > after);
        let undone = before.iter().filter(|(name, _)| shown(name)).filter_map(|(_, entry)| entry.cloned());
        listed.extend(undone);
        // Two sorted runs: the stable sort merges them in one pass.
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        listed
    }

    fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<Entry>)> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.entries.range::<str, _>((start, Bound::Unbounded)).take_while(move |(name, _)| name.starts_with(prefix))
    }
}
