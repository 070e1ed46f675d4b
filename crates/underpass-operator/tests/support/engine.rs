use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use underpass_operator::engine::{ContainerEngine, EngineError};
use underpass_plan::NetworkRequest;
use underpass_plan::container_network::Network;

use super::Diary;

/// An engine whose networks are entries of a map, and whose troubles are ordered.
#[derive(Clone, Default)]
pub(crate) struct MemoryEngine {
    networks: Arc<Mutex<BTreeMap<String, Network>>>,
    trouble: Arc<Mutex<Option<EngineError>>>,
    diary: Diary,
}

impl MemoryEngine {
    pub(crate) fn new(diary: Diary) -> Self {
        Self { diary, ..Self::default() }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.networks.lock().unwrap().contains_key(name)
    }

    /// Every action fails with this until it is taken back with `None`; `Unavailable` concerns every call.
    pub(crate) fn trouble(&self, error: Option<EngineError>) {
        *self.trouble.lock().unwrap() = error;
    }

    fn act(&self, deed: String) -> Result<(), EngineError> {
        self.diary.note(deed);
        self.trouble.lock().unwrap().clone().map_or(Ok(()), Err)
    }
}

#[async_trait]
impl ContainerEngine for MemoryEngine {
    async fn health(&self) -> Result<(), EngineError> {
        match self.trouble.lock().unwrap().clone() {
            Some(error @ EngineError::Unavailable(_)) => Err(error),
            _ => Ok(()),
        }
    }

    async fn find_network(&self, name: &str) -> Result<Option<Network>, EngineError> {
        Ok(self.networks.lock().unwrap().get(name).cloned())
    }

    async fn create_network(&self, request: &NetworkRequest) -> Result<(), EngineError> {
        self.act(format!("create {}", request.name))?;
        let network = Network {
            id: format!("id-of-{}", request.name),
            name: request.name.clone(),
            driver: "bridge".to_owned(),
            ipv6: request.ipv6,
            subnets: vec!["10.89.0.0/24".into()],
            gateways: vec!["10.89.0.1".into()],
            container_ids: Vec::new(),
            owner: request.owner.clone(),
        };
        self.networks.lock().unwrap().insert(request.name.clone(), network);
        Ok(())
    }

    async fn remove_network(&self, id: &str) -> Result<(), EngineError> {
        self.act(format!("remove {id}"))?;
        self.networks.lock().unwrap().retain(|_, network| network.id != id);
        Ok(())
    }
}
