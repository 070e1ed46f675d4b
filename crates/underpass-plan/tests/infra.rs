//! What an Infra says while its component goes its way.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use serde_json::{Value, json};
use underpass_plan::infra::{self, Observed};
use underpass_plan::{Action, Plan};

fn infra(more: &Value) -> Observed {
    let mut components = json!({
        "dns": { "enabled": false, "baseDomain": "example.com", "clusterName": "mycluster" },
        "proxy": { "serverIP": "192.168.100.4" },
    });
    components.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let observed = json!({
        "object": {
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "Infra",
            "metadata": { "name": "mycluster-infra", "namespace": "hosted-clusters", "uid": "u-1", "generation": 1 },
            "spec": {
                "networkConfig": {
                    "cidr": "192.168.100.0/24", "gateway": "192.168.100.1", "networkAttachmentDefinition": "tenant-vlan-100",
                },
                "infraComponents": components,
            },
        },
        "now": "2026-01-01T00:00:00Z",
    });
    serde_json::from_value(observed).unwrap()
}

/// The ProxyServer as it is asked for, as a server would store it.
fn asked_for(observed: &Observed) -> Value {
    let [Action::ApplyObject { object, .. }] = &infra::plan(observed).actions[..] else { panic!("one object is made") };
    let mut stored = (**object).clone();
    stored["metadata"]["generation"] = json!(3);
    stored["metadata"]["uid"] = json!("u-2");
    stored["spec"]["port"] = json!(443);
    stored
}

fn with_ready(mut proxy: Value, status: &str, generation: i64) -> Value {
    proxy["status"]["conditions"] = json!([
        { "type": "Ready", "status": status, "reason": "Because", "message": "of this", "observedGeneration": generation },
    ]);
    proxy
}

fn ready(plan: &Plan) -> (String, String, String) {
    let condition = &plan.status.as_ref().unwrap()["conditions"][0];
    let word = |field: &str| condition[field].as_str().unwrap().to_owned();
    (word("status"), word("reason"), word("message"))
}

#[test]
fn it_is_ready_when_its_proxy_says_so_of_what_was_asked() {
    let mut observed = infra(&json!({}));
    let proxy = asked_for(&observed);
    for (status, generation, expected, reason) in [
        ("True", 3, "True", "ComponentsReady"),
        ("True", 2, "False", "ProxyNotReady"),
        ("False", 3, "False", "ProxyNotReady"),
    ] {
        observed.found = vec![with_ready(proxy.clone(), status, generation)];
        let plan = infra::plan(&observed);
        assert!(plan.actions.is_empty(), "{plan}");
        let (is_ready, because, message) = ready(&plan);
        assert_eq!((is_ready.as_str(), because.as_str()), (expected, reason));
        assert_eq!(message.ends_with("is not ready: Because: of this"), status == "False", "{message}");
        assert_eq!(plan.status.unwrap()["componentStatus"]["proxyReady"], json!(expected == "True"));
    }
}

#[test]
fn what_is_not_built_yet_is_not_ready() {
    let mut observed = infra(&json!({
        "dhcp": { "serverIP": "192.168.100.2", "rangeStart": "192.168.100.10", "rangeEnd": "192.168.100.20" },
    }));
    observed.found = vec![with_ready(asked_for(&observed), "True", 3)];
    let plan = infra::plan(&observed);
    let (status, reason, message) = ready(&plan);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NotInThisVersion"));
    assert!(
        message.starts_with("the proxy works; this version of underpass does not build the DHCP server yet"),
        "{message}"
    );
    assert_eq!(plan.status.unwrap()["componentStatus"], json!({ "dhcpReady": false, "proxyReady": true }));
}

#[test]
fn what_others_add_stays_and_what_they_change_is_set_back() {
    let mut observed = infra(&json!({}));
    let proxy = with_ready(asked_for(&observed), "True", 3);
    let mut more = proxy.clone();
    more["spec"]["backends"].as_array_mut().unwrap().insert(0, json!({ "name": "theirs", "port": 8443 }));
    more["spec"]["logLevel"] = json!("debug");
    observed.found = vec![more];
    assert!(infra::plan(&observed).actions.is_empty());
    let mut other = proxy;
    other["spec"]["backends"][0]["targetPort"] = json!(1);
    observed.found = vec![other];
    let plan = infra::plan(&observed);
    assert_eq!(plan.actions.len(), 1, "{plan}");
    assert_eq!(ready(&plan).1, "ProxyNotReady", "what stands is not what was asked for");
}

#[test]
fn a_status_that_says_it_already_is_not_written_again() {
    let mut observed = infra(&json!({}));
    observed.found = vec![with_ready(asked_for(&observed), "True", 3)];
    let first = infra::plan(&observed);
    observed.object.status = Some(serde_json::from_value(first.status.unwrap()).unwrap());
    assert!(infra::plan(&observed).changes_nothing());
}
