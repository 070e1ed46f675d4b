//! The objects of a server that does not run, for whoever has to clean up after it.

use std::path::Path;

use serde_json::Value;
use underpass_store::{At, OpenError, Options, Store};

use crate::object;

/// Open until dropped. The data directory has to be the caller's alone.
pub struct Dormant(Store);

impl Dormant {
    /// Whether a server has ever kept its objects there.
    pub fn is_in(data_dir: &Path) -> bool {
        Store::is_in(data_dir)
    }

    pub fn open(data_dir: &Path) -> Result<Self, OpenError> {
        Store::open(data_dir, Options::default()).map(Self)
    }

    /// What everything that was made for its objects is labelled with: the uid of kube-system. `None`: it ended before it had one.
    pub fn identity(&self) -> Option<String> {
        let namespace = self.0.get("namespaces", &object::key("", "kube-system"))?;
        let namespace: Value = serde_json::from_slice(&namespace.value).ok()?;
        namespace.pointer("/metadata/uid")?.as_str().map(str::to_owned)
    }

    /// How many objects of a defined kind there are.
    pub fn count(&self, plural: &str, group: &str) -> usize {
        self.0.list(&format!("{plural}.{group}"), "", None, At::Now).map_or(0, |listing| listing.entries.len())
    }
}
