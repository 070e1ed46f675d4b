//! An object that these controllers do not build: itself is all there is to look at.

use async_trait::async_trait;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use underpass_plan::unbuilt::{self, Lacking, Observed};
use underpass_plan::{Failure, Plan};
use underpass_resources::Kind;

use crate::kinds;
use crate::reconcile::{Key, ObserveError, Reconcile};

pub struct Unbuilt {
    client: Client,
    kind: &'static Kind,
    lacking: Lacking,
}

impl Unbuilt {
    pub fn new(client: Client, kind: &'static Kind, lacking: Lacking) -> Self {
        Self { client, kind, lacking }
    }
}

#[async_trait]
impl Reconcile for Unbuilt {
    type Observed = Observed;

    fn kind(&self) -> &'static str {
        self.kind.kind
    }

    fn stands_alone(&self) -> bool {
        true
    }

    async fn observe(&self, key: &Key, _failure: Option<&Failure>) -> Result<Option<Observed>, ObserveError> {
        let kind = self.kind.kind;
        let object = kinds::api(&self.client, self.kind, key.namespace.as_deref())
            .get_opt(&key.name)
            .await
            .map_err(|source| ObserveError::Object { kind, key: key.clone(), source: source.into() })?;
        let Some(object) = object else { return Ok(None) };
        let object = serde_json::to_value(object)
            .and_then(serde_json::from_value)
            .map_err(|source| ObserveError::Shape { kind, key: key.clone(), source })?;
        Ok(Some(Observed { object, lacking: self.lacking, now: Timestamp::now() }))
    }

    fn plan(observed: &Observed) -> Plan {
        unbuilt::plan(observed)
    }
}
