//! What `underpass plan` shows for an object that no server has seen.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use serde_json::{Value, json};
use underpass_plan::preview;

fn shown(object: &Value) -> String {
    preview(object, &[]).unwrap().to_string()
}

#[test]
fn a_network_without_a_name_says_where_its_name_will_come_from() {
    let network = json!({
        "apiVersion": "underpass.dev/v1alpha1", "kind": "ContainerNetwork", "metadata": { "name": "dev" }, "spec": {},
    });
    let text = shown(&network);
    assert!(
        text.contains("action      create the network dev-<from its uid> (IPv4, owned by this object)\n"),
        "{text}"
    );
}

/// A person looks for that name among the engine's networks.
#[test]
fn a_tunnel_proxy_says_how_the_engine_calls_its_network() {
    let network = |spec: Value| {
        json!({
            "apiVersion": "underpass.dev/v1alpha1", "kind": "ContainerNetwork", "metadata": { "name": "web" }, "spec": spec,
        })
    };
    let proxy = json!({
        "apiVersion": "underpass.dev/v1alpha1", "kind": "ContainerNetworkTunnelProxy", "metadata": { "name": "p" },
        "spec": { "containerNetworkName": "web" },
    });
    let started = |all: &[Value]| {
        let text = preview(&proxy, all).unwrap().to_string();
        let (_, rest) = text.split_once("on the network ").unwrap_or_else(|| panic!("{text}"));
        rest.split_once(" (").unwrap().0.to_owned()
    };
    assert_eq!(started(&[network(json!({}))]), "web-<from its uid>");
    assert_eq!(started(&[network(json!({ "networkName": "compose_web" }))]), "compose_web");
    assert_eq!(started(&[]), "<of the ContainerNetwork web>");
}

#[test]
fn a_kind_that_is_not_built_yet_promises_nothing() {
    let dhcp = json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "DHCPServer",
        "metadata": { "name": "d", "namespace": "default" }, "spec": {},
    });
    let text = shown(&dhcp);
    assert!(text.contains("Ready=False NotInThisVersion") && !text.contains("action"), "{text}");
}
