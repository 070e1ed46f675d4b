//! What one Envoy is to have, and what of it changed.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

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

/// One resource as it goes over the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// A hash of the content: the same over restarts, and for every process that translates the same table.
    pub version: Arc<str>,
    pub body: Any,
}

impl Resource {
    pub fn new<M: Message + Name>(message: &M) -> Self {
        let body = Any { type_url: M::type_url(), value: message.encode_to_vec() };
        Self { version: hash([body.value.as_slice()]).into(), body }
    }
}

impl Resource {
    /// One of which only the version is known: what a client has from somewhere else.
    pub(crate) fn of_version(version: Arc<str>) -> Arc<Self> {
        Arc::new(Self { version, body: Any::default() })
    }
}

/// All resources of one kind, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resources {
    /// A hash of all versions.
    pub version: Arc<str>,
    pub by_name: BTreeMap<Arc<str>, Arc<Resource>>,
}

impl Resources {
    pub fn new(by_name: BTreeMap<Arc<str>, Arc<Resource>>) -> Self {
        let parts = by_name.iter().flat_map(|(name, resource)| [name.as_bytes(), resource.version.as_bytes()]);
        Self { version: hash(parts).into(), by_name }
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

/// The first half of a SHA-256 in hexadecimal; lengths are hashed too, so that parts cannot run into each other.
fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
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
