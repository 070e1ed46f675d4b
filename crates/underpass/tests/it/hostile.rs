//! Requests that mean harm, or amount to it: each is refused or survived, and the server goes on.

use http::{Method, Request, StatusCode};
use kube::Client;
use serde_json::{Value, json};
use underpass_testbed::{PATIENCE, wait_until};

use crate::server::embedded_apiserver;

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// One request; the code and the answer's body.
pub(crate) async fn ask(
    client: &Client,
    method: Method,
    path: &str,
    body: &Value,
    content_type: &str,
) -> (StatusCode, Value) {
    send(client, method, path, serde_json::to_vec(body).unwrap(), content_type).await
}

/// The same, with a body that need not be JSON.
pub(crate) async fn send(
    client: &Client,
    method: Method,
    path: &str,
    body: Vec<u8>,
    content_type: &str,
) -> (StatusCode, Value) {
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    match client.request::<Value>(request.body(body).unwrap()).await {
        Ok(answer) => (StatusCode::OK, answer),
        Err(kube::Error::Api(status)) => (StatusCode::from_u16(status.code).unwrap(), json!(status.message)),
        Err(error) => panic!("{path}: {error}"),
    }
}

pub(crate) async fn post(client: &Client, path: &str, body: &Value) -> (StatusCode, Value) {
    ask(client, Method::POST, path, body, "application/json").await
}

pub(crate) async fn get(client: &Client, path: &str) -> (StatusCode, Value) {
    ask(client, Method::GET, path, &Value::Null, "application/json").await
}

pub(crate) fn definition(plural: &str, group: &str, kind: &str, versions: &[Value]) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": { "group": group, "scope": "Namespaced", "names": { "plural": plural, "kind": kind }, "versions": versions },
    })
}

fn version(name: &str, storage: bool) -> Value {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({ "name": name, "served": true, "storage": storage, "schema": { "openAPIV3Schema": schema } })
}

#[tokio::test]
async fn what_could_not_be_read_back_is_not_stored() {
    let server = embedded_apiserver();
    let client = server.client().await;
    let (code, why) = post(&client, DEFINITIONS, &definition("wells", "x.io", "Well", &[version("v1", true)])).await;
    assert_eq!(code, 200, "{why}");
    server.kubectl().ok("wait --for=condition=Established crd/wells.x.io --timeout=60s");
    let deep = (0..123).fold(json!(1), |below, _| json!({ "a": below }));
    let well = json!({ "apiVersion": "x.io/v1", "kind": "Well", "metadata": { "name": "w" }, "spec": deep });
    let (code, why) = post(&client, "/apis/x.io/v1/namespaces/default/wells", &well).await;
    assert_eq!(code, 400, "{why}");
    assert!(why.to_string().contains("nested more than 120 levels"), "{why}");
    assert_eq!(
        server.kubectl().ok("delete crd wells.x.io"),
        "customresourcedefinition.apiextensions.k8s.io \"wells.x.io\" deleted\n"
    );
}

#[tokio::test]
async fn a_small_patch_cannot_make_a_large_document() {
    let server = embedded_apiserver();
    let client = server.client().await;
    post(&client, MAPS, &json!({ "metadata": { "name": "m" }, "data": { "a": "b" } })).await;
    let doubling: Vec<Value> = (0..60).map(|n| json!({ "op": "copy", "from": "", "path": format!("/x{n}") })).collect();
    let (code, why) =
        ask(&client, Method::PATCH, &format!("{MAPS}/m"), &json!(doubling), "application/json-patch+json").await;
    assert_eq!(code, 422, "{why}");
    assert!(why.to_string().contains("larger or deeper than is allowed"), "{why}");
}

#[tokio::test]
async fn a_definition_cannot_take_the_place_of_a_kind_of_kubernetes() {
    let server = embedded_apiserver();
    let client = server.client().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    post(&client, leases, &json!({ "metadata": { "name": "kept" } })).await;
    let mut thief = definition("leases", "coordination.k8s.io", "Lease", &[version("v1", true)]);
    thief["metadata"]["annotations"] = json!({ "api-approved.kubernetes.io": "unapproved, as thieves are" });
    post(&client, DEFINITIONS, &thief).await;
    server.kubectl().ok("wait --for=condition=NamesAccepted=False crd/leases.coordination.k8s.io --timeout=60s");
    server.kubectl().ok("delete crd leases.coordination.k8s.io");
    assert_eq!(get(&client, &format!("{leases}/kept")).await.0, 200);
}

#[tokio::test]
async fn the_storage_version_of_a_definition_can_change() {
    let server = embedded_apiserver();
    let client = server.client().await;
    post(&client, DEFINITIONS, &definition("wells", "y.io", "Well", &[version("v1", true)])).await;
    server.kubectl().ok("wait --for=condition=Established crd/wells.y.io --timeout=60s");
    let moved = json!({ "spec": { "versions": [version("v1", false), version("v2", true)] } });
    let path = format!("{DEFINITIONS}/wells.y.io");
    let (code, changed) = ask(&client, Method::PATCH, &path, &moved, "application/merge-patch+json").await;
    assert_eq!(code, 200, "{changed}");
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
}

#[tokio::test]
async fn a_kind_is_not_deleted_in_all_namespaces_at_once() {
    let server = embedded_apiserver();
    let client = server.client().await;
    post(&client, "/api/v1/namespaces/default/secrets", &json!({ "metadata": { "name": "kept" } })).await;
    for path in ["/api/v1/secrets", "/api/v1/namespaces"] {
        assert_eq!(ask(&client, Method::DELETE, path, &json!({}), "application/json").await.0, 405, "{path}");
    }
    assert_eq!(get(&client, "/api/v1/namespaces/default/secrets/kept").await.0, 200);
}

#[tokio::test]
async fn a_spoilt_certificate_map_comes_back_and_holds_nothing_up() {
    let server = embedded_apiserver();
    let client = server.client().await;
    let path = format!("{MAPS}/kube-root-ca.crt");
    let spoilt = json!({ "immutable": true, "data": { "ca.crt": "x" } });
    assert_eq!(ask(&client, Method::PATCH, &path, &spoilt, "application/merge-patch+json").await.0, 200);
    let kubectl = server.kubectl();
    wait_until("the certificate", PATIENCE, || {
        kubectl.run("get cm kube-root-ca.crt -o 'jsonpath={.data}'").stdout.contains("BEGIN CERTIFICATE").then_some(())
    });
    kubectl.ok("create namespace next");
    wait_until("the next namespace", PATIENCE, || {
        (kubectl.run("get sa default -n next").code == Some(0)).then_some(())
    });
}

#[tokio::test]
async fn an_owner_that_cannot_be_named_is_no_reason_to_delete() {
    let server = embedded_apiserver();
    let client = server.client().await;
    let (_, map) = post(&client, MAPS, &json!({ "metadata": { "name": "owner" } })).await;
    let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": map["metadata"]["uid"] });
    let owned = json!({ "metadata": { "name": "owned", "ownerReferences": [owner] } });
    assert_eq!(post(&client, "/api/v1/nodes", &owned).await.0, 200);
    // Collected in order: when this one has gone, the one before it has been looked at.
    let absent = json!({ "apiVersion": "v1", "kind": "Node", "name": "absent", "uid": "0" });
    post(&client, "/api/v1/nodes", &json!({ "metadata": { "name": "marker", "ownerReferences": [absent] } })).await;
    server.kubectl().ok("wait --for=delete node/marker --timeout=60s");
    assert_eq!(get(&client, "/api/v1/nodes/owned").await.0, 200);
}

#[tokio::test]
async fn small_words_are_read_as_kubernetes_reads_them() {
    let server = embedded_apiserver();
    let client = server.client().await;
    post(&client, MAPS, &json!({ "metadata": { "name": "m" } })).await;
    let (code, why) = post(&client, &format!("{MAPS}?dryRun=All"), &json!({ "metadata": { "name": "m" } })).await;
    assert_eq!(code, 409, "{why}");
    assert_eq!(get(&client, &format!("{MAPS}?watch=False")).await.1["kind"], "ConfigMapList");
    server.kubectl().ok("create deployment d --image=i --replicas=2");
    let scale = "/apis/apps/v1/namespaces/default/deployments/d/scale";
    let text = json!({ "spec": { "replicas": "5" } });
    assert_eq!(ask(&client, Method::PATCH, scale, &text, "application/merge-patch+json").await.0, 422);
    assert_eq!(get(&client, scale).await.1["spec"]["replicas"], 2);
}

#[tokio::test]
async fn nobody_acts_as_somebody_else() {
    let server = embedded_apiserver();
    let client = server.client().await;
    let as_bob = Request::get("/api/v1/secrets").header("impersonate-user", "bob").body(Vec::new()).unwrap();
    let Err(kube::Error::Api(refused)) = client.request::<Value>(as_bob).await else { panic!("bob was let in") };
    assert_eq!((refused.code, refused.message.contains("impersonation is not supported")), (403, true), "{refused:?}");
    assert_eq!(get(&client, &format!("{MAPS}/kube-root-ca.crt?resourceVersion=abc")).await.0, 400);
}
