//! An Infra and the object that is made of it, on the embedded API server: there is no cluster here that could carry it.

use serde_json::{Value, json};
use underpass_testbed::{Kubectl, PATIENCE, wait_until};

use crate::{root, up};

fn infra(kubectl: &Kubectl) {
    kubectl.ok(&format!("apply -f {}", root().join("examples/hosted-cluster.yaml").display()));
}

/// Its ProxyServer, if it has one.
fn proxy(kubectl: &Kubectl) -> Option<Value> {
    let found = kubectl.json("get proxyservers -n hosted-clusters");
    found["items"].as_array().unwrap().first().cloned()
}

fn merge(kubectl: &Kubectl, object: &str, patch: &Value) {
    kubectl.ok(&format!("patch {object} -n hosted-clusters --type=merge -p '{patch}'"));
}

/// Waits until its condition Ready has that reason, for what it says now. The rest of the condition.
fn becomes(kubectl: &Kubectl, reason: &str) -> (String, String) {
    wait_until(&format!("an Infra that says {reason}"), PATIENCE, || {
        let infra = kubectl.json("get infra mycluster-infra -n hosted-clusters");
        let ready = &infra["status"]["conditions"][0];
        let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
        (ready["reason"] == reason && ready["observedGeneration"] == infra["metadata"]["generation"])
            .then(|| (text("status"), text("message")))
    })
}

#[test]
fn its_proxy_comes_follows_and_goes() {
    let server = up();
    let kubectl = server.kubectl();
    infra(&kubectl);
    let (status, message) = becomes(&kubectl, "ProxyNotReady");
    let wanted = "ProxyServer hosted-clusters/mycluster-infra-proxy is not ready: ";
    assert!(status == "False" && message.starts_with(wanted), "{status} {message}");
    let made = proxy(&kubectl).unwrap();
    assert_eq!(made["spec"]["networkConfig"]["serverIP"], "192.168.100.4/24");
    assert_eq!(made["metadata"]["ownerReferences"][0]["name"], "mycluster-infra");
    let names: Vec<&str> =
        made["spec"]["backends"].as_array().unwrap().iter().map(|one| one["hostname"].as_str().unwrap()).collect();
    let of_cluster = ["api", "api-int", "kubernetes", "oauth", "ignition", "konnectivity"];
    assert_eq!(names, of_cluster.map(|label| format!("{label}.mycluster.example.com")));

    merge(&kubectl, "infra mycluster-infra", &json!({ "spec": { "infraComponents": { "proxy": { "replicas": 2 } } } }));
    let replicas = || proxy(&kubectl).filter(|proxy| proxy["spec"]["replicas"] == 2);
    wait_until("a change that reaches the ProxyServer", PATIENCE, replicas);
    merge(&kubectl, "proxyserver mycluster-infra-proxy", &json!({ "spec": { "replicas": 5, "logLevel": "debug" } }));
    let set_back = wait_until("what others change to be set back", PATIENCE, replicas);
    assert_eq!(set_back["spec"]["logLevel"], "debug", "the Infra has no word about that");

    merge(
        &kubectl,
        "infra mycluster-infra",
        &json!({ "spec": { "infraComponents": { "dhcp": null, "dns": { "enabled": false }, "proxy": { "enabled": false } } } }),
    );
    assert_eq!(becomes(&kubectl, "NothingWanted").0, "True");
    assert_eq!(proxy(&kubectl), None);
    merge(
        &kubectl,
        "infra mycluster-infra",
        &json!({ "spec": { "infraComponents": { "proxy": { "enabled": true } } } }),
    );
    wait_until("a ProxyServer again", PATIENCE, || proxy(&kubectl));
    kubectl.ok("delete infra mycluster-infra -n hosted-clusters --timeout=60s");
    wait_until("its ProxyServer to go after it", PATIENCE, || proxy(&kubectl).is_none().then_some(()));
}

#[test]
fn an_object_of_others_stays_as_it_is() {
    let server = up();
    let kubectl = server.kubectl();
    kubectl.ok(&format!("apply -f {}", root().join("examples/proxy-server.yaml").display()));
    let mut theirs = proxy(&kubectl).unwrap();
    kubectl.ok("delete proxyserver mycluster-proxy -n hosted-clusters --timeout=60s");
    theirs["metadata"] = json!({ "name": "mycluster-infra-proxy", "namespace": "hosted-clusters" });
    kubectl.ok_with("create -f -", &theirs.to_string());
    infra(&kubectl);
    assert_eq!(becomes(&kubectl, "NameTaken").0, "False");
    assert_eq!(proxy(&kubectl).unwrap()["spec"], theirs["spec"]);
    kubectl.ok("delete proxyserver mycluster-infra-proxy -n hosted-clusters --timeout=60s");
    becomes(&kubectl, "ProxyNotReady");
    kubectl.ok("delete infra mycluster-infra -n hosted-clusters --timeout=60s");
}
