use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, pending};
use underpass_engines::{
    BuildRequest, Change, Container, ContainerEngine, ContainerRequest, Description, EngineError, EngineKind, File,
    Image, Volume,
};
use underpass_plan::NetworkRequest;
use underpass_plan::container_network::Network;

use super::Diary;

/// An engine whose networks are entries of a map, and whose troubles are ordered.
#[derive(Clone, Default)]
pub(crate) struct MemoryEngine {
    networks: Arc<Mutex<BTreeMap<String, Network>>>,
    trouble: Arc<Mutex<Option<EngineError>>>,
    refusals: Arc<AtomicUsize>,
    is_silent_about_others: Arc<AtomicBool>,
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

    /// So many questions from now on are refused.
    pub(crate) fn refuse_questions(&self, count: usize) {
        self.refusals.store(count, Ordering::SeqCst);
    }

    /// Who is on a network beside one's own is refused from now on.
    pub(crate) fn refuse_to_tell_of_others(&self) {
        self.is_silent_about_others.store(true, Ordering::SeqCst);
    }

    fn ask(&self) -> Result<(), EngineError> {
        let one_less = |left: usize| left.checked_sub(1);
        match self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less) {
            Ok(_) => Err(EngineError::Refused("not now".into())),
            Err(_) => Ok(()),
        }
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
        self.ask()?;
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
            containers: BTreeMap::new(),
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

    async fn describe(&self) -> Result<Description, EngineError> {
        let kind = EngineKind::Podman;
        Ok(Description { kind, version: "0".into(), address: "memory".into(), because: "test".into() })
    }

    async fn list_networks(&self, _labels: &[(&str, &str)]) -> Result<Vec<Network>, EngineError> {
        Ok(self.networks.lock().unwrap().values().cloned().collect())
    }

    async fn find_image(&self, _reference: &str) -> Result<Option<Image>, EngineError> {
        no_part_of_it()
    }

    async fn load_image(&self, _archive: Bytes) -> Result<(), EngineError> {
        no_part_of_it()
    }

    /// From a registry that never answers.
    async fn pull_image(&self, reference: &str) -> Result<(), EngineError> {
        self.diary.note(format!("pull {reference}"));
        std::future::pending().await
    }

    async fn build_image(&self, _request: BuildRequest) -> Result<(), EngineError> {
        no_part_of_it()
    }

    async fn list_images(&self, _labels: &[(&str, &str)]) -> Result<Vec<Image>, EngineError> {
        no_part_of_it()
    }

    async fn remove_image(&self, _id: &str) -> Result<(), EngineError> {
        no_part_of_it()
    }

    async fn create_container(&self, _request: &ContainerRequest) -> Result<String, EngineError> {
        no_part_of_it()
    }

    async fn put_files(&self, _id: &str, _folder: &str, _files: &[File]) -> Result<(), EngineError> {
        no_part_of_it()
    }

    async fn start_container(&self, _id: &str) -> Result<(), EngineError> {
        no_part_of_it()
    }

    async fn find_container(&self, _id: &str) -> Result<Option<Container>, EngineError> {
        no_part_of_it()
    }

    async fn list_containers(&self, _labels: &[(&str, &str)]) -> Result<Vec<Container>, EngineError> {
        self.ask()?;
        Ok(Vec::new())
    }

    async fn list_containers_on(&self, _network: &str, _label: Option<&str>) -> Result<Vec<Container>, EngineError> {
        if self.is_silent_about_others.load(Ordering::SeqCst) {
            return Err(EngineError::Refused("not now".into()));
        }
        self.ask()?;
        Ok(Vec::new())
    }

    async fn remove_container(&self, _id: &str) -> Result<(), EngineError> {
        no_part_of_it()
    }

    async fn list_volumes(&self, _labels: &[(&str, &str)]) -> Result<Vec<Volume>, EngineError> {
        no_part_of_it()
    }

    async fn remove_volume(&self, _name: &str) -> Result<(), EngineError> {
        no_part_of_it()
    }

    async fn container_logs(&self, _id: &str, _lines: usize) -> Result<String, EngineError> {
        no_part_of_it()
    }

    fn changes(&self) -> BoxStream<'static, Change> {
        pending().boxed()
    }
}

/// What no kind under test here asks for.
fn no_part_of_it<T>() -> Result<T, EngineError> {
    Err(EngineError::Refused("the engine in memory has networks only".into()))
}
