//! What one Envoy is to have, and what of it changed.

use std::sync::Arc;

use tokio::sync::watch;

use crate::resources::{Resources, hash};

/// The kinds of resources that we hand out, in the order in which an Envoy needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Cluster,
    Endpoints,
    Listener,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Cluster, Self::Endpoints, Self::Listener];

    pub fn type_url(self) -> &'static str {
        match self {
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
        }
    }

    pub fn of_type_url(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.type_url() == url)
    }
}

/// What one Envoy is to have. Whole: it replaces the one before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    pub clusters: Resources,
    pub endpoints: Resources,
    pub listeners: Resources,
}

/// The newest one. None: nothing is known yet, so whoever asks waits.
pub type Newest = watch::Receiver<Option<Arc<Snapshot>>>;

impl Snapshot {
    pub fn of(&self, kind: Kind) -> &Resources {
        match kind {
            Kind::Cluster => &self.clusters,
            Kind::Endpoints => &self.endpoints,
            Kind::Listener => &self.listeners,
        }
    }

    /// A hash of everything.
    pub fn version(&self) -> String {
        hash(Kind::ALL.map(|kind| self.of(kind).version.as_bytes()))
    }
}
