//! Small answers that clients rely on, as kube-apiserver gives them: codes, statuses, warnings, and what a deletion leaves.

use futures::AsyncBufReadExt;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use underpass_testbed::{PATIENCE, wait_until};

use crate::apiserver;
use crate::server::Own;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn send(client: &Client, method: Method, path: &str, body: Option<&Value>) -> Response<Body> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string().into_bytes()));
    client.send(request.body(body).unwrap()).await.unwrap()
}

/// The code and the body, whatever the code is.
async fn ask(client: &Client, method: Method, path: &str, body: Option<&Value>) -> (u16, Value) {
    let response = send(client, method, path, body).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await.unwrap();
    (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes))))
}

async fn get(client: &Client, path: &str) -> (u16, Value) {
    ask(client, Method::GET, path, None).await
}

async fn warnings(client: &Client, method: Method, path: &str, body: Option<&Value>) -> Vec<String> {
    let response = send(client, method, path, body).await;
    assert!(response.status().is_success(), "{path}: {}", response.status());
    response.headers().get_all("warning").iter().map(|value| value.to_str().unwrap().to_owned()).collect()
}

fn version(name: &str, storage: bool, format: &str) -> Value {
    let spec = json!({ "type": "object", "properties": { "text": { "type": "string", "format": format } } });
    let schema = json!({ "type": "object", "properties": { "spec": spec } });
    json!({ "name": name, "served": true, "storage": storage, "schema": { "openAPIV3Schema": schema } })
}

fn definition(versions: &[Value]) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": "wells.a.io" },
        "spec": {
            "group": "a.io", "scope": "Namespaced", "names": { "plural": "wells", "kind": "Well" }, "versions": versions,
        },
    })
}

/// With kubectl, which does not try again as kube-rs does.
#[test]
fn the_future_is_not_read() {
    let server = apiserver();
    for path in [
        "/kube-root-ca.crt?resourceVersion=999999",
        "?resourceVersion=999999",
        "?resourceVersion=999999&resourceVersionMatch=Exact",
    ] {
        let why = server.kubectl().fails(&format!("get --raw '{MAPS}{path}'"));
        assert!(
            why.starts_with("Error from server (Timeout): Timeout: Too large resource version: 999999, current: "),
            "{why}"
        );
    }
}

#[tokio::test]
async fn the_beginning_is_read_and_limits_below_zero_are_none() {
    let server = apiserver();
    let client = server.client().await;
    let (code, list) = get(&client, &format!("{MAPS}?resourceVersion=1&resourceVersionMatch=Exact")).await;
    assert_eq!((code, &list["metadata"], &list["items"]), (200, &json!({ "resourceVersion": "1" }), &json!([])));
    let (code, list) = get(&client, &format!("{MAPS}?limit=-1")).await;
    assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 1));
    let (code, status) = get(&client, &format!("{MAPS}?watch=true&continue=x")).await;
    assert_eq!((code, &status["details"]["kind"]), (422, &json!("ListOptions")));
}

#[tokio::test]
async fn a_watch_of_the_future_waits_for_it() {
    let server = apiserver();
    let client = server.client().await;
    let (_, list) = get(&client, MAPS).await;
    let now: u64 = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    let path = format!("{MAPS}?watch=true&resourceVersion={}", now + 2);
    let mut lines = Box::pin(client.request_stream(Request::get(path).body(Vec::new()).unwrap()).await.unwrap());
    for name in ["a", "b", "c"] {
        ask(&client, Method::POST, MAPS, Some(&json!({ "metadata": { "name": name } }))).await;
    }
    let mut line = String::new();
    tokio::time::timeout(PATIENCE, lines.read_line(&mut line)).await.expect("an event in time").unwrap();
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("c")));
}

#[tokio::test]
async fn paths_are_meant_as_written() {
    let server = apiserver();
    let client = server.client().await;
    for path in ["/version", "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1"] {
        let refused = !["/apis", "/apis/apps"].contains(&path) || Own::MethodsAtApis.holds();
        for method in [Method::POST, Method::PUT, Method::DELETE].into_iter().filter(|_| refused) {
            let (code, status) = ask(&client, method, path, None).await;
            assert_eq!((code, &status["details"]), (405, &json!({})), "{path}: {status}");
        }
        assert_eq!(get(&client, path).await.0, 200, "{path}");
    }
    for path in ["//api/v1", "/api//v1", "/api/v1//pods", "/livez/other", "/livez/"] {
        assert_eq!(get(&client, path).await.0, 404, "{path}");
    }
    for path in ["/livez/ping", "/readyz/ping", "/healthz/ping"] {
        assert_eq!(get(&client, path).await, (200, json!("ok")), "{path}");
    }
    let platform = get(&client, "/version").await.1["platform"].as_str().unwrap().to_owned();
    assert!(!platform.contains("x86_64") && platform.contains('/'), "{platform}");
}

#[tokio::test]
async fn a_status_tells_only_what_there_is() {
    let server = apiserver();
    let client = server.client().await;
    let (_, status) = get(&client, &format!("{MAPS}/none")).await;
    assert_eq!(status["details"], json!({ "name": "none", "kind": "configmaps" }));
    let (_, map) = ask(&client, Method::POST, MAPS, Some(&json!({ "metadata": { "name": "m" } }))).await;
    let (_, status) = ask(&client, Method::DELETE, &format!("{MAPS}/m"), None).await;
    assert_eq!(status["details"], json!({ "name": "m", "kind": "configmaps", "uid": map["metadata"]["uid"] }));
}

#[tokio::test]
async fn nobody_owns_the_finalizers_of_a_namespace() {
    let server = apiserver();
    let client = server.client().await;
    let namespace = json!({ "metadata": { "name": "n" } });
    let (_, made) = ask(&client, Method::POST, "/api/v1/namespaces?fieldManager=me", Some(&namespace)).await;
    let labels = json!({ "f:metadata": { "f:labels": { ".": {}, "f:kubernetes.io/metadata.name": {} } } });
    assert_eq!(made["metadata"]["managedFields"][0]["fieldsV1"], labels);
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    let (_, ending) = ask(&client, Method::DELETE, "/api/v1/namespaces/n", None).await;
    assert_eq!(ending["metadata"].get("deletionGracePeriodSeconds"), None, "{ending}");
}

#[tokio::test]
async fn authors_of_definitions_are_warned() {
    let server = apiserver();
    let client = server.client().await;
    let mut old = version("v1beta1", false, "date-time");
    old["deprecated"] = json!(true);
    let mut made = definition(&[old, version("v1", true, "colour")]);
    let found = warnings(&client, Method::POST, DEFINITIONS, Some(&made)).await;
    assert_eq!(found, [r#"299 - "unrecognized format \"colour\"""#]);
    server.kubectl().ok("wait --for=condition=Established crd/wells.a.io --timeout=60s");
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["text"]["format"] =
        json!("taste");
    let path = format!("{DEFINITIONS}/wells.a.io");
    made["metadata"]["resourceVersion"] = get(&client, &path).await.1["metadata"]["resourceVersion"].clone();
    let found = warnings(&client, Method::PUT, &path, Some(&made)).await;
    assert_eq!(found, [r#"299 - "unrecognized format \"taste\"""#], "only what is new");
    let found = warnings(&client, Method::GET, "/apis/a.io/v1beta1/namespaces/default/wells", None).await;
    assert_eq!(found, [r#"299 - "a.io/v1beta1 Well is deprecated; use a.io/v1 Well""#]);
}

#[tokio::test]
async fn the_end_of_a_definition_is_no_change_of_it() {
    let server = apiserver();
    let client = server.client().await;
    ask(&client, Method::POST, DEFINITIONS, Some(&definition(&[version("v1", true, "date")]))).await;
    server.kubectl().ok("wait --for=condition=Established crd/wells.a.io --timeout=60s");
    let well =
        json!({ "apiVersion": "a.io/v1", "kind": "Well", "metadata": { "name": "w", "finalizers": ["a.io/held"] } });
    assert_eq!(ask(&client, Method::POST, "/apis/a.io/v1/namespaces/default/wells", Some(&well)).await.0, 201);
    let (_, ending) = ask(&client, Method::DELETE, &format!("{DEFINITIONS}/wells.a.io"), None).await;
    let metadata = &ending["metadata"];
    assert!(metadata["deletionTimestamp"].is_string(), "{metadata}");
    assert_eq!((&metadata["generation"], metadata.get("deletionGracePeriodSeconds")), (&json!(1), None));
}

/// Each owns the next, and the last owns the first.
#[tokio::test]
async fn owners_in_a_circle_go_in_the_foreground() {
    let server = apiserver();
    let client = server.client().await;
    for names in [&["self"][..], &["a", "b"], &["c", "d", "e"]] {
        if names.len() == 1 && !Own::SelfOwnersEnd.holds() {
            continue;
        }
        let mut uids = Vec::new();
        for name in names {
            let (_, map) = ask(&client, Method::POST, MAPS, Some(&json!({ "metadata": { "name": name } }))).await;
            uids.push(map["metadata"]["uid"].clone());
        }
        for (index, name) in names.iter().enumerate() {
            let owner = (index + names.len() - 1) % names.len();
            let reference = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "name": names[owner], "uid": uids[owner], "blockOwnerDeletion": true,
            });
            let owned = json!({ "metadata": { "name": name, "ownerReferences": [reference] } });
            let (code, why) = ask(&client, Method::PUT, &format!("{MAPS}/{name}"), Some(&owned)).await;
            assert_eq!(code, 200, "{why}");
        }
        let foreground = json!({ "propagationPolicy": "Foreground" });
        ask(&client, Method::DELETE, &format!("{MAPS}/{}", names[0]), Some(&foreground)).await;
        let kubectl = server.kubectl();
        wait_until("the circle's end", PATIENCE, || {
            kubectl
                .run(&format!("get cm {} -o name --ignore-not-found", names.join(" ")))
                .stdout
                .is_empty()
                .then_some(())
        });
    }
}

#[test]
fn fields_that_hold_one_of_a_few_words_say_which() {
    let server = apiserver();
    let told = server.kubectl().ok("explain service.spec.sessionAffinity");
    crate::assert_contains(&told, &["ENUM:\n    ClientIP\n    None\n"]);
}
