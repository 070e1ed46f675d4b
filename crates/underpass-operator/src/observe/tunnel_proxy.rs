//! A ContainerNetworkTunnelProxy, its network, its pair, and the Services that its tunnels lead to.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client};
use underpass_engines::{Container as Seen, ContainerState, EngineError, Port, labels};
use underpass_plan::tunnel_proxy::{
    self, Bystander, CONTROL_PORT, Container, DATA_PORT, Engine, Folder, Observed, Pair,
};
use underpass_plan::{Failure, Plan};
use underpass_resources::tunnel_proxy::{ServerReference, Tunnel};
use underpass_resources::{ContainerNetwork, ContainerNetworkTunnelProxy};

use super::engine::ask;
use crate::act::Outside;
use crate::interests::{Interest, Interests};
use crate::last_words::last_words;
use crate::reconcile::{Key, ObserveError, Reconcile};

const KIND: &str = "ContainerNetworkTunnelProxy";
/// Lines of a dead container that reach the status.
const LAST_LINES: usize = 20;

pub struct TunnelProxies {
    client: Client,
    outside: Outside,
    interests: Arc<Interests>,
}

impl TunnelProxies {
    pub fn new(client: Client, outside: Outside, interests: Arc<Interests>) -> Self {
        Self { client, outside, interests }
    }

    async fn engine_view(&self, uid: &str) -> Engine {
        let mine = [(labels::UID, uid)];
        let seen = match ask("the client proxy's container", || self.outside.engine.list_containers(&mine)).await {
            Ok(seen) => seen,
            Err(why) => return Engine::Unavailable { why },
        };
        let mut containers = Vec::new();
        for container in &seen {
            containers.push(self.describe(container).await);
        }
        Engine::Available { containers }
    }

    async fn describe(&self, seen: &Seen) -> Container {
        let running = matches!(seen.state, ContainerState::Running | ContainerState::Changing | ContainerState::Paused);
        let port = |number| seen.published_at(Port::tcp(number)).map(|address| address.port());
        Container {
            id: seen.id.clone(),
            name: seen.name.clone(),
            running,
            changing: seen.state == ContainerState::Changing,
            removing: seen.state == ContainerState::Removing,
            created: seen.created,
            exit_code: seen.exit_code,
            last_words: if running { None } else { self.last_words(seen).await },
            control_port: port(CONTROL_PORT),
            data_port: port(DATA_PORT),
            addresses: seen.networks.values().flat_map(|network| network.addresses.clone()).collect(),
            aliases: seen.networks.iter().map(|(name, network)| (name.clone(), network.aliases.clone())).collect(),
        }
    }

    /// Other people's containers that answer to names on the network of an object that wants some.
    async fn bystanders(
        &self,
        engine: Engine,
        object: &ContainerNetworkTunnelProxy,
        network: Option<&ContainerNetwork>,
        folder: Option<&Folder>,
    ) -> (Engine, Vec<Bystander>) {
        if object.spec.aliases.is_empty() || matches!(engine, Engine::Unavailable { .. }) {
            return (engine, Vec::new());
        }
        match ask("the containers on the network", || self.others_on(network, folder)).await {
            Ok(bystanders) => (engine, bystanders),
            Err(why) => (Engine::Unavailable { why }, Vec::new()),
        }
    }

    async fn others_on(
        &self,
        network: Option<&ContainerNetwork>,
        folder: Option<&Folder>,
    ) -> Result<Vec<Bystander>, EngineError> {
        let started = folder.and_then(|folder| folder.client.as_ref());
        // Beside a pair that stands only another instance's matters, which may have been made at the same time.
        let label = started.map(|_| labels::UID);
        let status = network.and_then(|network| network.status.as_ref());
        let id = started.map(|client| client.network_id.clone()).or_else(|| status?.id.clone());
        let (Some(id), Some(name)) = (id, status.and_then(|status| status.network_name.as_ref())) else {
            return Ok(Vec::new());
        };
        let seen = match self.outside.engine.list_containers_on(&id, label).await {
            Err(EngineError::NotFound(_)) => Vec::new(),
            seen => seen?,
        };
        let instance = self.outside.pairs.instance();
        let others = seen.into_iter().filter(|one| one.labels.get(labels::INSTANCE).is_none_or(|its| its != instance));
        Ok(others.filter_map(|one| bystander(one, name)).collect())
    }

    async fn last_words(&self, seen: &Seen) -> Option<String> {
        if seen.error.is_some() {
            return seen.error.clone();
        }
        let logs = self.outside.engine.container_logs(&seen.id, LAST_LINES).await.ok()?;
        last_words(&logs)
    }

    async fn services(&self, wanted: &BTreeSet<(String, String)>) -> kube::Result<(Vec<Service>, Vec<EndpointSlice>)> {
        let (mut services, mut slices) = (Vec::new(), Vec::new());
        for (namespace, name) in wanted {
            services.extend(Api::namespaced(self.client.clone(), namespace).get_opt(name).await?);
            let params = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
            slices.extend(Api::namespaced(self.client.clone(), namespace).list(&params).await?.items);
        }
        Ok((services, slices))
    }

    async fn own_slices(&self, uid: &str) -> kube::Result<Vec<EndpointSlice>> {
        let params = ListParams::default().labels(&format!("{}={uid}", tunnel_proxy::OWNER_LABEL));
        Ok(Api::all(self.client.clone()).list(&params).await?.items)
    }

    /// The network that the object names, and all other tunnel proxies on it: several ContainerNetworks may stand for one network.
    async fn network(
        &self,
        object: &ContainerNetworkTunnelProxy,
    ) -> kube::Result<(Option<ContainerNetwork>, Vec<ContainerNetworkTunnelProxy>)> {
        let all = ListParams::default();
        let networks = Api::<ContainerNetwork>::all(self.client.clone()).list(&all).await?.items;
        let mut others = Api::<ContainerNetworkTunnelProxy>::all(self.client.clone()).list(&all).await?.items;
        let id = |name: &str| {
            let network = networks.iter().find(|network| network.metadata.name.as_deref() == Some(name));
            network.and_then(|network| network.status.as_ref()?.id.clone())
        };
        let own = &object.spec.container_network_name;
        let same = |name: &str| *name == **own || id(own).is_some_and(|own| id(name) == Some(own));
        others.retain(|other| other.metadata.uid != object.metadata.uid && same(&other.spec.container_network_name));
        let network = networks.iter().find(|network| network.metadata.name.as_deref() == Some(&**own)).cloned();
        Ok((network, others))
    }

    async fn pair(&self, uid: &str, folder: Option<&Folder>) -> Pair {
        let server = folder.and_then(|folder| folder.server.as_ref()).filter(|server| server.ended.is_none());
        match server {
            Some(server) => self.outside.pairs.ask(uid, server.control_port).await,
            None => Pair::NotAsked,
        }
    }
}

#[async_trait]
impl Reconcile for TunnelProxies {
    type Observed = Observed;

    fn kind(&self) -> &'static str {
        KIND
    }

    async fn observe(&self, key: &Key, failure: Option<&Failure>) -> Result<Option<Observed>, ObserveError> {
        let unreadable =
            |source: kube::Error| ObserveError::Object { kind: KIND, key: key.clone(), source: source.into() };
        let objects: Api<ContainerNetworkTunnelProxy> = Api::all(self.client.clone());
        let Some(object) = objects.get_opt(&key.name).await.map_err(unreadable)? else {
            self.interests.forget(key);
            return Ok(None);
        };
        let uid = object.metadata.uid.clone().unwrap_or_default();
        let folder = self.outside.pairs.look(&uid, key).map_err(ObserveError::Pair)?;
        let services = services_of(&object);
        self.interests.set(key, interests(&object, folder.as_ref(), &services));
        let (network, engine, pair, services, own_slices) = tokio::join!(
            self.network(&object),
            self.engine_view(&uid),
            self.pair(&uid, folder.as_ref()),
            self.services(&services),
            self.own_slices(&uid),
        );
        let (services, slices) = services.map_err(unreadable)?;
        let (network, neighbours) = network.map_err(unreadable)?;
        let (engine, bystanders) = self.bystanders(engine, &object, network.as_ref(), folder.as_ref()).await;
        if is_alive(folder.as_ref(), &engine) {
            self.outside.pairs.note_alive(&uid);
        }
        let now = Timestamp::now();
        Ok(Some(Observed {
            image: self.outside.images.state(object.spec.base_image.as_deref(), now),
            network,
            neighbours,
            bystanders,
            engine,
            refusals: self.outside.pairs.refusals(&uid),
            preparing: self.outside.pairs.preparing(&uid),
            unwritten: self.outside.pairs.unwritten(&uid),
            silent_for: self.outside.pairs.silent_for(&uid),
            own_slices: own_slices.map_err(unreadable)?,
            object,
            folder,
            pair,
            services,
            slices,
            failure: failure.cloned(),
            now,
        }))
    }

    fn plan(observed: &Observed) -> Plan {
        tunnel_proxy::plan(observed)
    }
}

/// Whether both halves were seen to live.
fn is_alive(folder: Option<&Folder>, engine: &Engine) -> bool {
    let started = folder.and_then(|folder| Some((folder.client.as_ref()?, folder.server.as_ref()?)));
    let (Some((client, server)), Engine::Available { containers }) = (started, engine) else { return false };
    let runs = |container: &Container| container.running && container.id == client.container_id;
    server.ended.is_none() && containers.iter().any(runs)
}

/// One that answers to its names, or will in a moment: a client proxy is started as soon as it is made.
fn bystander(seen: Seen, network: &str) -> Option<Bystander> {
    let client_proxy = seen.labels.contains_key(labels::UID);
    let answers = match seen.state {
        ContainerState::Running | ContainerState::Paused | ContainerState::Changing => true,
        ContainerState::Created => client_proxy,
        ContainerState::Removing | ContainerState::Ended => false,
    };
    let aliases = seen.networks.get(network).map(|attachment| attachment.aliases.clone()).unwrap_or_default();
    let Seen { id, name, created, .. } = seen;
    answers.then_some(Bystander { id, name, created, aliases, client_proxy })
}

fn services_of(object: &ContainerNetworkTunnelProxy) -> BTreeSet<(String, String)> {
    let servers = object.spec.tunnels.iter().filter_map(Tunnel::server);
    let service = |server| match server {
        ServerReference::Service { namespace, name, .. } => Some((namespace.to_owned(), name.to_owned())),
        ServerReference::Address { .. } => None,
    };
    servers.filter_map(service).collect()
}

fn interests(
    object: &ContainerNetworkTunnelProxy,
    folder: Option<&Folder>,
    services: &BTreeSet<(String, String)>,
) -> Vec<Interest> {
    let network = Interest::ContainerNetwork(object.spec.container_network_name.to_string());
    let client = folder.and_then(|folder| folder.client.as_ref());
    let container = client.map(|client| Interest::Container(client.container_id.clone()));
    let services = services.iter().map(|(namespace, name)| Interest::Service(namespace.clone(), name.clone()));
    services.chain([network]).chain(container).collect()
}
