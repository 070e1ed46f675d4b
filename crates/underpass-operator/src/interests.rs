//! Who wants to know of what: the way from something that changed to the objects that depend on it.
//!
//! An observer says what it is about to look at before it looks, so that no change falls between the two.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;

use crate::reconcile::Key;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Interest {
    /// The ContainerNetwork of this name.
    ContainerNetwork(String),
    /// The Service of this namespace and name, and its endpoints.
    Service(String, String),
    /// The engine's container of this id.
    Container(String),
    /// The engine's network of this name.
    EngineNetwork(String),
}

/// Of one kind's objects.
#[derive(Debug, Default)]
pub struct Interests {
    by_key: Mutex<HashMap<Key, BTreeSet<Interest>>>,
}

impl Interests {
    /// Replaces what the object wanted to know before.
    pub fn set(&self, key: &Key, interests: impl IntoIterator<Item = Interest>) {
        self.by_key.lock().insert(key.clone(), interests.into_iter().collect());
    }

    pub fn forget(&self, key: &Key) {
        self.by_key.lock().remove(key);
    }

    pub fn who_wants(&self, interest: &Interest) -> Vec<Key> {
        let map = self.by_key.lock();
        map.iter().filter(|(_, interests)| interests.contains(interest)).map(|(key, _)| key.clone()).collect()
    }

    pub fn everybody(&self) -> Vec<Key> {
        self.by_key.lock().keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts() {
        let interests = Interests::default();
        let (one, other) = (Key::cluster("one"), Key::cluster("other"));
        let container = |id: &str| Interest::Container(id.to_owned());
        interests.set(&one, [container("a"), Interest::ContainerNetwork("n".into())]);
        interests.set(&other, [container("a")]);
        interests.set(&other, [container("b")]);
        assert_eq!(interests.who_wants(&container("a")), std::slice::from_ref(&one));
        assert_eq!(interests.everybody().len(), 2);
        interests.forget(&one);
        assert_eq!(interests.who_wants(&container("a")), []);
    }
}
