//! The words of the store: what is kept, what a write asks for, what a watcher is told, and how either is refused.

use std::sync::Arc;

use bytes::Bytes;

/// One live object: immutable, shared by readers, lists and events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: Arc<str>,
    /// The revision that created it; stays the same until it is deleted.
    pub created: u64,
    /// The revision that wrote this value.
    pub revision: u64,
    pub value: Bytes,
}

/// A value that may contain its own revision, which is known only when the writer's turn comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pub bytes: Vec<u8>,
    /// Where the revision goes, in decimal digits; at most `bytes.len()`.
    pub hole: Option<usize>,
}

/// What must hold at the moment of the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Absent,
    /// The entry exists and this is its current revision.
    Revision(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Put(Template),
    /// The template is the last state, which watchers are shown.
    Delete(Template),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub bucket: Arc<str>,
    pub name: Arc<str>,
    pub expect: Expect,
    pub change: Change,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    Put,
    Deleted,
}

/// One write as watchers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub revision: u64,
    pub name: Arc<str>,
    pub change: Changed,
    /// The value written, or the last state of what was deleted.
    pub value: Bytes,
    /// The entry before this write: tells what left a selector, and lets a list at an older revision be made.
    pub previous: Option<Arc<Entry>>,
}

/// The moment a list shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Now,
    Revision(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The entries are exactly those of this revision of the store.
    pub revision: u64,
    /// In the order of their names.
    pub entries: Vec<Arc<Entry>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("this revision was compacted: the oldest that can be read is {oldest}")]
    Compacted { oldest: u64 },
    #[error("this revision does not exist yet: the newest is {newest}")]
    Future { newest: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    #[error("{}", conflict(current.as_deref()))]
    Conflict { current: Option<Arc<Entry>> },
    /// The sentence that [`crate::Store::failed`] gives too.
    #[error("{0}")]
    Storage(Arc<str>),
    #[error("the store is closed")]
    Closed,
}

impl Template {
    /// The bytes with `revision` written into the hole.
    pub(crate) fn fill(self, revision: u64) -> Bytes {
        let Some(hole) = self.hole else { return self.bytes.into_boxed_slice().into() };
        let digits = revision.to_string();
        let mut filled = Vec::with_capacity(self.bytes.len() + digits.len());
        filled.extend_from_slice(&self.bytes[..hole]);
        filled.extend_from_slice(digits.as_bytes());
        filled.extend_from_slice(&self.bytes[hole..]);
        filled.into()
    }
}

impl Change {
    pub(crate) fn template(&self) -> &Template {
        let (Change::Put(template) | Change::Delete(template)) = self;
        template
    }
}

impl Event {
    /// Bytes of values that nothing but history holds on to because of this event.
    pub(crate) fn superseded_bytes(&self) -> u64 {
        let previous = self.previous.as_ref().map_or(0, |entry| entry.value.len());
        let last_state = if self.change == Changed::Deleted { self.value.len() } else { 0 };
        (previous + last_state) as u64
    }

    /// Rows of the log that nobody needs once this event is compacted.
    pub(crate) fn superseded_rows(&self) -> impl Iterator<Item = u64> {
        let tombstone = (self.change == Changed::Deleted).then_some(self.revision);
        self.previous.as_ref().map(|entry| entry.revision).into_iter().chain(tombstone)
    }
}

fn conflict(current: Option<&Entry>) -> String {
    match current {
        Some(entry) => format!("{} has changed: it is now at revision {}", entry.name, entry.revision),
        None => "it does not exist any more".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_revision_is_spliced_where_the_hole_is() {
        let filled = |bytes: &str, hole| Template { bytes: bytes.into(), hole }.fill(1207);
        assert_eq!(filled(r#"{"v":""}"#, Some(6)), r#"{"v":"1207"}"#);
        assert_eq!(filled("", Some(0)), "1207");
        assert_eq!(filled("end:", Some(4)), "end:1207");
        assert_eq!(filled("as it is", None), "as it is");
    }
}
