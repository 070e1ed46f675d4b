//! Programs written for Kubernetes, against the embedded API server: kube-rs with all that its runtime offers, and Python's client.

mod controller;
mod dynamic;
mod election;
mod patches;
mod python;
mod reflector;

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use underpass_resources::{EgressGateway, EgressGatewaySpec};
use underpass_testbed::PATIENCE;

/// Every namespace that these tests use is there from the start.
const NAMESPACE: &str = "default";

fn config_map(name: &str, value: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some([("v".to_owned(), value.to_owned())].into()), ..ConfigMap::default() }
}

fn value(config_map: &ConfigMap) -> &str {
    config_map.data.as_ref().map_or("", |data| &data["v"])
}

fn gateway(name: &str, replicas: u32) -> EgressGateway {
    let spec: EgressGatewaySpec = serde_json::from_value(serde_json::json!({ "replicas": replicas })).unwrap();
    EgressGateway::new(name, spec)
}

fn config_maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), NAMESPACE)
}

fn gateways(client: &Client) -> Api<EgressGateway> {
    Api::namespaced(client.clone(), NAMESPACE)
}

async fn create(api: &Api<ConfigMap>, name: &str, value: &str) -> ConfigMap {
    api.create(&PostParams::default(), &config_map(name, value)).await.unwrap()
}

/// The status code and the reason with which the server refused.
fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.reason),
        other => panic!("this should have been refused: {other:?}"),
    }
}

/// Waits for something that must come about; panics with `what` when it does not.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(result) => result,
        Err(_) => panic!("after {PATIENCE:?} still waiting for: {what}"),
    }
}

/// Looks until `condition` holds.
async fn until<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    soon(what, async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}
