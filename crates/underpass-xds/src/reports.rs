//! What the Envoys said to what they were told.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::snapshot::{Kind, Snapshot};

/// What one Envoy made of everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Streams on which it listens.
    pub streams: usize,
    pub clusters: Outcome,
    pub endpoints: Outcome,
    pub listeners: Outcome,
}

/// What it made of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The newest version that it took.
    pub accepted: Option<Arc<str>>,
    /// What it refused since.
    pub rejected: Option<Rejection>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub version: Arc<str>,
    /// In its own words.
    pub reason: String,
}

impl Report {
    pub fn of(&self, kind: Kind) -> &Outcome {
        match kind {
            Kind::Cluster => &self.clusters,
            Kind::Endpoints => &self.endpoints,
            Kind::Listener => &self.listeners,
        }
    }

    /// Whether it runs all of this.
    pub fn runs(&self, snapshot: &Snapshot) -> bool {
        // Endpoints that nobody asks for any more are not told to be gone.
        [Kind::Cluster, Kind::Listener].into_iter().all(|kind| {
            let outcome = self.of(kind);
            outcome.rejected.is_none() && outcome.accepted.as_ref() == Some(&snapshot.of(kind).version)
        })
    }

    /// What it refused, in its own words.
    pub fn refusal(&self) -> Option<&str> {
        let refused = Kind::ALL.into_iter().find_map(|kind| self.of(kind).rejected.as_ref());
        refused.map(|rejection| rejection.reason.as_str())
    }

    fn of_mut(&mut self, kind: Kind) -> &mut Outcome {
        match kind {
            Kind::Cluster => &mut self.clusters,
            Kind::Endpoints => &mut self.endpoints,
            Kind::Listener => &mut self.listeners,
        }
    }
}

pub struct Reports {
    nodes: Mutex<HashMap<String, Report>>,
    changes: watch::Sender<u64>,
}

impl Default for Reports {
    fn default() -> Self {
        Self { nodes: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl Reports {
    /// Of an Envoy that is connected, or was a moment ago.
    pub fn of(&self, node: &str) -> Option<Report> {
        self.nodes.lock().get(node).cloned()
    }

    /// Whether every Envoy that is connected runs all of this.
    pub(crate) fn all_run(&self, snapshot: &Snapshot) -> bool {
        self.nodes.lock().values().filter(|report| report.streams > 0).all(|report| report.runs(snapshot))
    }

    /// Whether one that is connected refuses something.
    pub(crate) fn any_refusal(&self) -> bool {
        self.nodes.lock().values().any(|report| report.streams > 0 && report.refusal().is_some())
    }

    /// Counts changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(crate) fn connected(&self, node: &str) {
        self.note(node, |report| report.streams += 1);
    }

    pub(crate) fn disconnected(&self, node: &str) {
        self.note(node, |report| report.streams = report.streams.saturating_sub(1));
    }

    /// Nothing is known of one that has no stream. Whoever invents names is forgotten by it too.
    pub(crate) fn forget_if_gone(&self, node: &str) {
        let mut nodes = self.nodes.lock();
        if nodes.get(node).is_some_and(|report| report.streams == 0) {
            nodes.remove(node);
            drop(nodes);
            self.changes.send_modify(|count| *count += 1);
        }
    }

    pub(crate) fn answered(&self, node: &str, kind: Kind, version: Arc<str>, refusal: Option<String>) {
        self.note(node, |report| {
            let outcome = report.of_mut(kind);
            match refusal {
                None => *outcome = Outcome { accepted: Some(version), rejected: None },
                Some(reason) => outcome.rejected = Some(Rejection { version, reason }),
            }
        });
    }

    /// It has everything of this version. What it refused before is no more, or it would not have everything.
    pub(crate) fn settled(&self, node: &str, kind: Kind, version: &Arc<str>) {
        let outcome = Outcome { accepted: Some(version.clone()), rejected: None };
        if self.of(node).is_none_or(|report| *report.of(kind) != outcome) {
            self.note(node, |report| *report.of_mut(kind) = outcome);
        }
    }

    /// It asks anew and does not have everything: what it took was taken by another process of the same name, or is not the newest. A refusal
    /// stands until it says something else to what it is told now.
    pub(crate) fn begins_anew(&self, node: &str, kind: Kind) {
        if self.of(node).is_some_and(|report| report.of(kind).accepted.is_some()) {
            self.note(node, |report| report.of_mut(kind).accepted = None);
        }
    }

    fn note(&self, node: &str, change: impl FnOnce(&mut Report)) {
        change(self.nodes.lock().entry(node.to_owned()).or_default());
        self.changes.send_modify(|count| *count += 1);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use std::sync::Arc;

    use super::{Outcome, Reports};
    use crate::snapshot::Kind;

    #[test]
    fn a_refusal_is_over_when_there_is_nothing_that_the_client_does_not_have() {
        let (reports, version) = (Reports::default(), |text: &str| Arc::<str>::from(text));
        reports.answered("node", Kind::Listener, version("1"), None);
        reports.answered("node", Kind::Listener, version("2"), Some("no".into()));
        assert_eq!(reports.of("node").unwrap().refusal(), Some("no"));
        reports.settled("node", Kind::Listener, &version("1"));
        let expected = Outcome { accepted: Some(version("1")), rejected: None };
        assert_eq!(reports.of("node").unwrap().listeners, expected);
        let count = *reports.changes().borrow();
        reports.settled("node", Kind::Listener, &version("1"));
        assert_eq!(*reports.changes().borrow(), count, "nothing new is no change");
    }
}
