//! The newest snapshot of every Envoy that is served, by the id that it calls itself.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::snapshot::Snapshot;

/// None: nothing is known yet, so whoever asks waits.
pub(crate) type Newest = watch::Receiver<Option<Arc<Snapshot>>>;

#[derive(Default)]
pub struct Published {
    nodes: Mutex<HashMap<String, watch::Sender<Option<Arc<Snapshot>>>>>,
}

impl Published {
    pub fn publish(&self, node: &str, snapshot: Arc<Snapshot>) {
        let mut nodes = self.nodes.lock();
        let known = nodes.entry(node.to_owned()).or_insert_with(|| watch::Sender::new(None));
        known.send_replace(Some(snapshot));
    }

    /// Nothing is left of what this one had.
    pub fn withdraw(&self, node: &str) {
        if let Some(known) = self.nodes.lock().remove(node) {
            known.send_replace(Some(Arc::default()));
        }
    }

    pub(crate) fn follow(&self, node: &str) -> Newest {
        let mut nodes = self.nodes.lock();
        // Whoever was waited for in vain is forgotten with those who waited.
        nodes.retain(|_, known| known.receiver_count() > 0 || known.borrow().is_some());
        nodes.entry(node.to_owned()).or_insert_with(|| watch::Sender::new(None)).subscribe()
    }
}
