//! What `underpass plan` shows for an object that no server has seen.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use underpass_plan::preview;

fn shown(object: &Value) -> String {
    preview(object, Timestamp::UNIX_EPOCH).unwrap().to_string()
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

#[test]
fn a_kind_that_is_not_built_yet_promises_nothing() {
    let infra = json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "Infra",
        "metadata": { "name": "i", "namespace": "default" }, "spec": {},
    });
    let text = shown(&infra);
    assert!(text.contains("Ready=False NotInThisVersion") && !text.contains("action"), "{text}");
}
