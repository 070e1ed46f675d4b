//! All resources of one kind, sorted by name, in blocks that stay the same when nothing in them changed.
//!
//! What is told next is what two of these differ in, and blocks that both share are not looked at: with fifty thousand resources, a change
//! of one costs each client a look at some dozens. Blocks begin at names, and which ones begin a block is decided by the name alone, so
//! that the same resources are cut the same way whatever was there before, and have the same version in every process.
//!
//! A sorted map for each client was rejected: every client then goes through everything at every change, and holds a copy of it.

use std::cmp::Ordering;
use std::fmt::Write;
use std::sync::Arc;

use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};
use sha2::{Digest, Sha256};

use crate::snapshot::Kind;

/// One name in so many begins a block.
const BLOCK: u64 = 64;

/// One resource as it goes over the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// A hash of the content, and of what it is told along with: the same over restarts, and for every process that translates the same table.
    pub version: Arc<str>,
    kind: Option<Kind>,
    pub value: Vec<u8>,
}

impl Resource {
    pub fn new<M: Message + Name>(kind: Kind, message: &M) -> Self {
        debug_assert_eq!(kind.type_url(), M::type_url(), "the kind of the message");
        let value = message.encode_to_vec();
        Self { version: hash([value.as_slice()]).into(), kind: Some(kind), value }
    }

    /// To be told anew whenever the other is told anew: who has this version of it was told it after that version of the other.
    pub(crate) fn along_with(self, other: &Self) -> Self {
        Self { version: hash([self.version.as_bytes(), other.version.as_bytes()]).into(), ..self }
    }

    /// One of which only the version is known: what a client has from somewhere else.
    pub(crate) fn of_version(version: Arc<str>) -> Arc<Self> {
        Arc::new(Self { version, kind: None, value: Vec::new() })
    }

    /// As an answer holds it. Kept apart, because there may be fifty thousand with the same few types.
    pub fn packed(&self) -> Any {
        Any { type_url: self.kind.map_or("", Kind::type_url).to_owned(), value: self.value.clone() }
    }
}

/// All resources of one kind, by name. A copy costs nothing.
#[derive(Clone, Debug, Default)]
pub struct Resources {
    /// A hash of all versions.
    pub version: Arc<str>,
    blocks: Arc<[Arc<Block>]>,
}

type Entry = (Arc<str>, Arc<Resource>);

/// Never empty.
#[derive(Debug)]
struct Block {
    version: String,
    entries: Vec<Entry>,
}

/// The same versions are the same resources.
impl PartialEq for Resources {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version
    }
}

impl FromIterator<Entry> for Resources {
    fn from_iter<T: IntoIterator<Item = Entry>>(entries: T) -> Self {
        let sorted: std::collections::BTreeMap<_, _> = entries.into_iter().collect();
        Self::default().followed_by(&sorted.iter().collect::<Vec<_>>())
    }
}

impl Resources {
    /// Those that come after these: sorted by name. Blocks that would be the same are taken over.
    pub(crate) fn followed_by(&self, sorted: &[(&Arc<str>, &Arc<Resource>)]) -> Self {
        debug_assert!(sorted.is_sorted_by(|one, other| one.0 < other.0), "names are sorted, and each is there once");
        let mut before = self.blocks.iter().peekable();
        let blocks: Vec<Arc<Block>> = sorted
            .chunk_by(|_, (name, _)| !begins_block(name))
            .map(|entries| {
                while before.next_if(|block| *block.first() < **entries[0].0).is_some() {}
                let same = before.next_if(|block| block.is(entries));
                same.map_or_else(|| Arc::new(Block::new(entries)), Arc::clone)
            })
            .collect();
        let is_same = blocks.len() == self.blocks.len()
            && blocks.iter().zip(&*self.blocks).all(|(one, other)| Arc::ptr_eq(one, other));
        // No resources at all have a version, too.
        if is_same && !self.version.is_empty() {
            return self.clone();
        }
        let version = hash(blocks.iter().map(|block| block.version.as_bytes())).into();
        Self { version, blocks: blocks.into() }
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Resource>> {
        self.entry(name).map(|(_, resource)| resource)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Resource>)> {
        self.blocks.iter().flat_map(|block| block.entries.iter().map(|(name, resource)| (name, resource)))
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.iter().map(|block| block.entries.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The name as it is kept here; one that is not is made.
    pub(crate) fn name(&self, name: &str) -> Arc<str> {
        self.entry(name).map_or_else(|| name.into(), |(name, _)| name.clone())
    }

    /// The names of what is here and not there, or there and not here, or not the same here and there; sorted.
    pub(crate) fn differences<'a>(&'a self, other: &'a Self) -> Vec<&'a Arc<str>> {
        if Arc::ptr_eq(&self.blocks, &other.blocks) {
            return Vec::new();
        }
        let (mut mine, mut theirs) = (Vec::new(), Vec::new());
        walk(
            &self.blocks,
            &other.blocks,
            |block| block.first(),
            |one, other| {
                if !one.zip(other).is_some_and(|(one, other)| Arc::ptr_eq(one, other)) {
                    mine.extend(one.into_iter().flat_map(|block| &block.entries));
                    theirs.extend(other.into_iter().flat_map(|block| &block.entries));
                }
            },
        );
        let mut names = Vec::new();
        walk(
            &mine,
            &theirs,
            |(name, _)| name,
            |one, other| {
                if !one.zip(other).is_some_and(|(one, other)| Arc::ptr_eq(&one.1, &other.1)) {
                    names.extend(one.or(other).map(|(name, _)| name));
                }
            },
        );
        names
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        let after = self.blocks.partition_point(|block| *block.first() <= *name);
        let block = &self.blocks[after.checked_sub(1)?];
        let place = block.entries.binary_search_by(|(entry, _)| (**entry).cmp(name)).ok()?;
        block.entries.get(place)
    }
}

impl Block {
    fn new(entries: &[(&Arc<str>, &Arc<Resource>)]) -> Self {
        let parts = entries.iter().flat_map(|(name, resource)| [name.as_bytes(), resource.version.as_bytes()]);
        let entries = entries.iter().map(|(name, resource)| (Arc::clone(name), Arc::clone(resource))).collect();
        Self { version: hash(parts), entries }
    }

    fn first(&self) -> &str {
        &self.entries[0].0
    }

    fn is(&self, entries: &[(&Arc<str>, &Arc<Resource>)]) -> bool {
        let same = |(mine, theirs): (&Entry, &(&Arc<str>, &Arc<Resource>))| {
            Arc::ptr_eq(&mine.1, theirs.1) && (Arc::ptr_eq(&mine.0, theirs.0) || mine.0 == *theirs.0)
        };
        self.entries.len() == entries.len() && self.entries.iter().zip(entries).all(same)
    }
}

/// Along two sorted lists at once: what stands under one key in either, or in both.
fn walk<'a, T>(
    mut one: &'a [T],
    mut other: &'a [T],
    key: impl Fn(&'a T) -> &'a str,
    mut meet: impl FnMut(Option<&'a T>, Option<&'a T>),
) {
    loop {
        let order = match (one.first(), other.first()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(other)) => key(one).cmp(key(other)),
        };
        meet(one.first().filter(|_| order.is_le()), other.first().filter(|_| order.is_ge()));
        one = &one[usize::from(order.is_le())..];
        other = &other[usize::from(order.is_ge())..];
    }
}

/// By FNV-1a, of which the bits in the middle depend on every byte.
fn begins_block(name: &str) -> bool {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    (name.bytes().fold(0xcbf2_9ce4_8422_2325, mix) >> 40).is_multiple_of(BLOCK)
}

/// The first half of a SHA-256 in hexadecimal; lengths are hashed too, so that parts cannot run into each other.
pub(crate) fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().iter().take(16).fold(String::with_capacity(32), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Named = BTreeMap<u16, u8>;

    fn resources(before: &Resources, named: &Named) -> Resources {
        let owned: BTreeMap<Arc<str>, Arc<Resource>> = named
            .iter()
            .map(|(name, version)| {
                let name = format!("backend-{name:05}");
                let same = before.get(&name).filter(|it| *it.version == *version.to_string()).cloned();
                (name.into(), same.unwrap_or_else(|| Resource::of_version(version.to_string().into())))
            })
            .collect();
        before.followed_by(&owned.iter().collect::<Vec<_>>())
    }

    fn said(resources: &Resources) -> Vec<(String, String)> {
        resources.iter().map(|(name, resource)| (name.to_string(), resource.version.to_string())).collect()
    }

    #[test]
    fn a_change_makes_one_block_anew_however_many_there_are() {
        let mut named: Named = (0..20_000).map(|name| (name, 0)).collect();
        let before = resources(&Resources::default(), &named);
        assert!((200..450).contains(&before.blocks.len()), "{} blocks", before.blocks.len());
        named.insert(7_777, 1);
        let after = resources(&before, &named);
        let kept = after.blocks.iter().filter(|block| before.blocks.iter().any(|old| Arc::ptr_eq(old, block))).count();
        assert_eq!(kept, before.blocks.len() - 1);
        assert_eq!(before.differences(&after), [&Arc::from("backend-07777")]);
        assert!(Arc::ptr_eq(&resources(&after, &named).blocks, &after.blocks), "nothing changed, nothing is made");
    }

    #[test]
    fn nothing_has_a_version_too() {
        let nothing = Resources::default().followed_by(&[]);
        assert!(!nothing.version.is_empty() && nothing.is_empty() && nothing.get("a").is_none());
    }

    proptest! {
        /// The same resources are the same whatever was there before, and differences are what a look at everything would find.
        #[test]
        fn history_leaves_no_trace(
            one in prop::collection::btree_map(0..400_u16, 0..3_u8, 0..300),
            changes in prop::collection::vec((0..400_u16, prop::option::of(0..3_u8)), 0..12),
        ) {
            let mut other = one.clone();
            for (name, version) in changes {
                match version {
                    Some(version) => other.insert(name, version),
                    None => other.remove(&name),
                };
            }
            let before = resources(&Resources::default(), &one);
            let (after, anew) = (resources(&before, &other), resources(&Resources::default(), &other));
            prop_assert_eq!(said(&after), said(&anew));
            prop_assert_eq!(&after.version, &anew.version);
            prop_assert_eq!(before.version == after.version, one == other);
            let found: Vec<String> = before.differences(&after).into_iter().map(ToString::to_string).collect();
            let expected: Vec<String> = (0..400_u16).filter(|name| one.get(name) != other.get(name)).map(|name| format!("backend-{name:05}")).collect();
            prop_assert_eq!(found, expected);
            for (name, version) in said(&after) {
                prop_assert_eq!(&*after.get(&name).unwrap().version, version.as_str());
            }
        }
    }
}
