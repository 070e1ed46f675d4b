//! An Infra, and what stands where its components belong.

use async_trait::async_trait;
use futures::future::try_join_all;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client};
use underpass_plan::infra::{self, Observed, places};
use underpass_plan::{Failure, Plan};
use underpass_resources::Infra;

use crate::objects;
use crate::reconcile::{Key, ObserveError, Reconcile};

const KIND: &str = "Infra";

pub(crate) struct Infras {
    client: Client,
}

impl Infras {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }
}

#[async_trait]
impl Reconcile for Infras {
    type Observed = Observed;

    fn kind(&self) -> &'static str {
        KIND
    }

    async fn observe(&self, key: &Key, failure: Option<&Failure>) -> Result<Option<Observed>, ObserveError> {
        let unreadable =
            |source: kube::Error| ObserveError::Object { kind: KIND, key: key.clone(), source: source.into() };
        let namespace = key.namespace.as_deref().unwrap_or("default");
        let infras: Api<Infra> = Api::namespaced(self.client.clone(), namespace);
        let Some(object) = infras.get_opt(&key.name).await.map_err(unreadable)? else { return Ok(None) };
        let places = places(&object);
        let found = try_join_all(places.iter().map(|place| objects::read(&self.client, place)));
        let found = found.await.map_err(unreadable)?.into_iter().flatten().collect();
        Ok(Some(Observed { object, found, failure: failure.cloned(), now: Timestamp::now() }))
    }

    fn plan(observed: &Observed) -> Plan {
        infra::plan(observed)
    }
}
