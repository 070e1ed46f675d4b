//! Controllers that were killed: whoever is left says so of the objects that they built here, whose status nobody keeps true any more.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use underpass_plan::tunnel_proxy::OWNER_LABEL;
use underpass_plan::{Plan, container_network, tunnel_proxy};
use underpass_resources::{ContainerNetwork, ContainerNetworkTunnelProxy};

use crate::answer::Answer;
use crate::apply::{Applier, ApplyError};
use crate::metrics::Metrics;

#[derive(Debug, thiserror::Error)]
pub enum AbandonError {
    #[error("cannot list {0}")]
    List(&'static str, #[source] Answer),
    #[error(transparent)]
    Write(#[from] ApplyError),
}

/// Networks first: what the tunnel proxies say is also about theirs.
pub async fn abandon(client: &Client, why: &str) -> Result<(), AbandonError> {
    let applier = Applier::new(client.clone(), None, Metrics::default());
    for plan in networks(client, why).await? {
        applier.apply(&plan).await?;
    }
    for plan in tunnel_proxies(client, why).await? {
        applier.apply(&plan).await?;
    }
    Ok(())
}

async fn networks(client: &Client, why: &str) -> Result<Vec<Plan>, AbandonError> {
    let networks: Vec<ContainerNetwork> = list(client, "ContainerNetworks", &ListParams::default()).await?;
    Ok(networks.into_iter().map(|object| container_network::abandon(object, why, Timestamp::now())).collect())
}

async fn tunnel_proxies(client: &Client, why: &str) -> Result<Vec<Plan>, AbandonError> {
    let all = ListParams::default();
    let networks: Vec<ContainerNetwork> = list(client, "ContainerNetworks", &all).await?;
    let ours = ListParams::default().labels(OWNER_LABEL);
    let slices: Vec<EndpointSlice> = list(client, "EndpointSlices", &ours).await?;
    let proxies: Vec<ContainerNetworkTunnelProxy> = list(client, "ContainerNetworkTunnelProxies", &all).await?;
    let plan = |object: ContainerNetworkTunnelProxy| {
        let network = networks.iter().find(|network| network.name_any() == *object.spec.container_network_name);
        let uid = object.uid();
        let own = slices.iter().filter(|slice| slice.labels().get(OWNER_LABEL) == uid.as_ref());
        tunnel_proxy::abandon(object, network.cloned(), own.cloned().collect(), why, Timestamp::now())
    };
    Ok(proxies.into_iter().map(plan).collect())
}

async fn list<K>(client: &Client, what: &'static str, params: &ListParams) -> Result<Vec<K>, AbandonError>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let listed = Api::<K>::all(client.clone()).list(params).await;
    listed.map(|page| page.items).map_err(|error| AbandonError::List(what, error.into()))
}
