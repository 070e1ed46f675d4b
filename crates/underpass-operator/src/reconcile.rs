//! What a kind brings to the loop.

use std::fmt;

use async_trait::async_trait;
use underpass_plan::{Failure, Plan};

use crate::answer::Answer;
use crate::pairs::PairError;

/// Where to look. Never data: whoever gets a key reads the object again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub namespace: Option<String>,
    pub name: String,
}

/// One kind's part of the pattern. `plan` has no `self`, so it cannot reach a client, an engine or a clock.
#[async_trait]
pub trait Reconcile: Send + Sync + 'static {
    type Observed: Send + Sync;

    /// The name of the kind, for logs and metrics.
    fn kind(&self) -> &'static str;

    /// Whether nothing but a change of the object itself can change its plan. Then its watch is all that has to wake it, and nothing is
    /// remembered of it between two passes.
    fn stands_alone(&self) -> bool {
        false
    }

    /// Gathers all that the decision may look at; `None` when there is no such object (any more). `failure` is how the last action for
    /// this key failed, if it did.
    async fn observe(&self, key: &Key, failure: Option<&Failure>) -> Result<Option<Self::Observed>, ObserveError>;

    fn plan(observed: &Self::Observed) -> Plan;
}

#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    #[error("cannot read {kind} {key} from the API server")]
    Object {
        kind: &'static str,
        key: Key,
        #[source]
        source: Answer,
    },
    #[error("{kind} {key} as the API server returned it has another shape than this version knows")]
    Shape {
        kind: &'static str,
        key: Key,
        #[source]
        source: serde_json::Error,
    },
    #[error("cannot look at the pair of proxies")]
    Pair(#[source] PairError),
}

impl Key {
    pub fn cluster(name: impl Into<String>) -> Self {
        Self { namespace: None, name: name.into() }
    }

    pub fn namespaced(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}
