//! A ContainerNetwork, and the network of its name on the engine.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client};
use underpass_engines::ContainerEngine;
use underpass_plan::container_network::{self, Engine, Observed};
use underpass_plan::{Failure, Plan};
use underpass_resources::ContainerNetwork;

use super::engine::ask;
use crate::interests::{Interest, Interests};
use crate::reconcile::{Key, ObserveError, Reconcile};

const KIND: &str = "ContainerNetwork";

pub struct ContainerNetworks {
    objects: Api<ContainerNetwork>,
    engine: Arc<dyn ContainerEngine>,
    interests: Arc<Interests>,
}

impl ContainerNetworks {
    pub fn new(client: Client, engine: Arc<dyn ContainerEngine>, interests: Arc<Interests>) -> Self {
        Self { objects: Api::all(client), engine, interests }
    }

    async fn engine_view(&self, network: &str) -> Engine {
        let find = || async {
            self.engine.health().await?;
            self.engine.find_network(network).await
        };
        match ask(&format!("the network {network}"), find).await {
            Ok(network) => Engine::Available { network },
            Err(why) => Engine::Unavailable { why },
        }
    }
}

#[async_trait]
impl Reconcile for ContainerNetworks {
    type Observed = Observed;

    fn kind(&self) -> &'static str {
        KIND
    }

    async fn observe(&self, key: &Key, failure: Option<&Failure>) -> Result<Option<Observed>, ObserveError> {
        let object = self.objects.get_opt(&key.name).await.map_err(|source| ObserveError::Object {
            kind: KIND,
            key: key.clone(),
            source: source.into(),
        })?;
        let Some(object) = object else {
            self.interests.forget(key);
            return Ok(None);
        };
        let name = container_network::network_name(&object);
        self.interests.set(key, [Interest::EngineNetwork(name.clone())]);
        let engine = self.engine_view(&name).await;
        if let Engine::Available { network: Some(network) } = &engine {
            let containers = network.containers.keys().cloned().map(Interest::Container);
            self.interests.set(key, containers.chain([Interest::EngineNetwork(name)]));
        }
        Ok(Some(Observed { object, engine, failure: failure.cloned(), now: Timestamp::now() }))
    }

    fn plan(observed: &Observed) -> Plan {
        container_network::plan(observed)
    }
}
