//! Whether every object that was there at the start has been looked at. Until then its status is the word of a process that is gone.
//!
//! Apart from `Health`, and only for those who wait for it: it holds a key per object until then, which is little for the objects of one
//! machine and too much for those of a cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::watch;

use crate::reconcile::Key;

/// Cheap to clone; all clones are the same.
#[derive(Debug, Clone, Default)]
pub struct FirstLook(Arc<watch::Sender<Progress>>);

#[derive(Debug, Default)]
struct Progress {
    /// Whether every watch has begun.
    begun: bool,
    /// The kinds whose objects are not all known.
    unlisted: BTreeSet<&'static str>,
    unseen: BTreeSet<(&'static str, Key)>,
}

impl FirstLook {
    /// Until nothing is left to look at.
    pub async fn over(&self) {
        // The sender is this value.
        let _ = self.0.subscribe().wait_for(Progress::is_over).await;
    }

    /// Before that nothing can have been looked at.
    pub fn has_begun(&self) -> bool {
        self.0.borrow().begun
    }

    /// The objects that are known and have not been looked at.
    pub fn left(&self) -> Vec<(&'static str, Key)> {
        self.0.borrow().unseen.iter().cloned().collect()
    }

    /// A watch of that kind begins: to be said before its first object can come.
    pub fn watches(&self, kind: &'static str) {
        self.0.send_modify(|progress| {
            progress.unlisted.insert(kind);
        });
    }

    /// All watches have begun.
    pub fn began(&self) {
        self.0.send_modify(|progress| progress.begun = true);
    }

    /// An object of the first list of its kind: to be said before it can be looked at. Later lists bring nothing of before the start.
    pub(crate) fn found(&self, kind: &'static str, key: Key) {
        self.0.send_if_modified(|progress| progress.unlisted.contains(kind) && progress.unseen.insert((kind, key)));
    }

    pub(crate) fn found_all(&self, kind: &'static str) {
        self.0.send_if_modified(|progress| progress.unlisted.remove(kind));
    }

    /// Its status says what is seen now.
    pub(crate) fn looked_at(&self, kind: &'static str, key: &Key) {
        self.0.send_if_modified(|progress| !progress.unseen.is_empty() && progress.unseen.remove(&(kind, key.clone())));
    }
}

impl Progress {
    fn is_over(&self) -> bool {
        self.begun && self.unlisted.is_empty() && self.unseen.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn is_over(look: &FirstLook) -> bool {
        look.over().now_or_never().is_some()
    }

    #[test]
    fn it_is_over_when_all_that_was_found_was_looked_at() {
        let look = FirstLook::default();
        look.watches("Infra");
        look.found("Infra", Key::cluster("a"));
        look.looked_at("Infra", &Key::cluster("a"));
        look.found("Infra", Key::cluster("b"));
        look.found_all("Infra");
        look.looked_at("Infra", &Key::cluster("b"));
        assert!(!is_over(&look), "another watch may begin");
        look.watches("DNSServer");
        look.began();
        assert!(!is_over(&look), "its objects are not known");
        look.found("DNSServer", Key::cluster("b"));
        look.found_all("DNSServer");
        look.looked_at("Infra", &Key::cluster("b"));
        assert!(!is_over(&look), "that was another kind");
        assert_eq!(look.left(), [("DNSServer", Key::cluster("b"))]);
        look.looked_at("DNSServer", &Key::cluster("b"));
        assert!(is_over(&look));
    }

    #[test]
    fn what_comes_later_is_not_waited_for() {
        let look = FirstLook::default();
        look.watches("Infra");
        look.found_all("Infra");
        look.began();
        look.found("Infra", Key::cluster("later"));
        assert!(is_over(&look));
    }
}
