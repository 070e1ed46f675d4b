//! The plan for an object that no server has seen yet: what `underpass plan -f` shows.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use underpass_resources::container_network::NetworkState;
use underpass_resources::{
    ContainerNetwork, ContainerNetworkSpec, ContainerNetworkStatus, ContainerNetworkTunnelProxy, ProxyServer,
};

use crate::container_network::{self, Engine};
use crate::plan::Plan;
use crate::proxy_deployment::{self, Attachment, Site};
use crate::{infra, tunnel_proxy, unbuilt};

/// The fields of a status that say when.
const TIMES: [&str; 2] = ["lastTransitionTime", "timestamp"];

#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    #[error("the object has another shape than its kind")]
    Shape(#[source] serde_json::Error),
}

/// Plans for `object`, which is validated and carries its defaults, as if it had just been created together with `all`: an engine that
/// can be driven, or a cluster, and nothing made yet. It has no time in it: two plans of one file are equal.
pub fn preview(object: &Value, all: &[Value]) -> Result<Plan, PreviewError> {
    let mut plan = with_times(object, all, Timestamp::UNIX_EPOCH)?;
    plan.status.iter_mut().for_each(remove_times);
    Ok(plan)
}

fn remove_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !TIMES.contains(&name.as_str()));
            fields.values_mut().for_each(remove_times);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_times),
        _ => {}
    }
}

fn with_times(object: &Value, all: &[Value], now: Timestamp) -> Result<Plan, PreviewError> {
    let mut object = object.clone();
    object["metadata"]["generation"] = 1.into();
    if object["kind"] == "ContainerNetwork" {
        let object = serde_json::from_value(object).map_err(PreviewError::Shape)?;
        let engine = Engine::Available { network: None };
        return Ok(container_network::plan(&container_network::Observed { object, engine, failure: None, now }));
    }
    if object["kind"] == "ContainerNetworkTunnelProxy" {
        let object = serde_json::from_value(object).map_err(PreviewError::Shape)?;
        return Ok(tunnel_proxy::plan(&on_a_running_network(object, all, now)));
    }
    if object["kind"] == "Infra" {
        let object = serde_json::from_value(object).map_err(PreviewError::Shape)?;
        return Ok(infra::plan(&infra::Observed { object, found: Vec::new(), failure: None, now }));
    }
    if object["kind"] == "ProxyServer" {
        let object = serde_json::from_value(object).map_err(PreviewError::Shape)?;
        return Ok(proxy_deployment::plan(&on_a_cluster(object, now)));
    }
    let object = serde_json::from_value(object).map_err(PreviewError::Shape)?;
    Ok(unbuilt::plan(&unbuilt::Observed { object, lacking: unbuilt::Lacking::default(), now }))
}

/// One that has everything that the object speaks of, and nothing of its own.
fn on_a_cluster(object: ProxyServer, now: Timestamp) -> proxy_deployment::Observed {
    proxy_deployment::Observed {
        found: Vec::new(),
        namespaces: proxy_deployment::target_namespaces(&object),
        pods: Vec::new(),
        attachment: Attachment::Found { config: None },
        address_owner: None,
        site: Site { image: "<the operator's own image>".to_owned(), openshift: false },
        failure: None,
        object,
        now,
    }
}

/// The first step that is the object's own: its network is there, and so is the image.
fn on_a_running_network(object: ContainerNetworkTunnelProxy, all: &[Value], now: Timestamp) -> tunnel_proxy::Observed {
    let name = object.spec.container_network_name.to_string();
    let is_it = |object: &&Value| object["kind"] == "ContainerNetwork" && object["metadata"]["name"] == *name;
    let declared = all.iter().find(is_it).and_then(|network| serde_json::from_value(network.clone()).ok());
    let in_engine =
        declared.as_ref().map_or_else(|| format!("<of the ContainerNetwork {name}>"), container_network::network_name);
    let mut network = declared.unwrap_or_else(|| ContainerNetwork::new(&name, ContainerNetworkSpec::default()));
    network.status = Some(ContainerNetworkStatus {
        state: Some(NetworkState::Running),
        id: Some(format!("<id of {name}>")),
        network_name: Some(in_engine),
        ..ContainerNetworkStatus::default()
    });
    tunnel_proxy::Observed {
        object,
        network: Some(network),
        neighbours: Vec::new(),
        bystanders: Vec::new(),
        engine: tunnel_proxy::Engine::Available { containers: Vec::new() },
        image: tunnel_proxy::Image::Ready { reference: "<the client proxy's image>".to_owned() },
        folder: None,
        pair: tunnel_proxy::Pair::NotAsked,
        silent_for: None,
        preparing: Vec::new(),
        unwritten: Vec::new(),
        refusals: BTreeMap::new(),
        services: Vec::new(),
        slices: Vec::new(),
        own_slices: Vec::new(),
        failure: None,
        now,
    }
}
