//! The embedded server and a kube-apiserver get the same requests, one after another, and every answer is compared whole: code, warnings
//! and body, but for what must differ (`compare`). Where they may differ, `known` says why.

mod compare;
mod known;
mod requests;

use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use underpass_testbed::PATIENCE;

use crate::manifests::path;
use crate::server::{embedded_apiserver, kubernetes};
use requests::Ask;

#[tokio::test]
#[ignore = "wants a kube-apiserver: scripts/test-lab"]
async fn answers_are_the_same_object_by_object() {
    let (embedded, kubernetes) = (embedded_apiserver(), kubernetes());
    let (ours, theirs) = (embedded.client().await, kubernetes.client().await);
    described(&theirs).await;
    let (mut asked, mut unknown, mut found) = (0, Vec::new(), Vec::new());
    for ask in requests::all() {
        asked += 1;
        let (ours, theirs) = (answer(&ours, &ask).await, answer(&theirs, &ask).await);
        for difference in compare::differences(&ask, &ours, &theirs) {
            match known::reason(&difference) {
                Some(number) => found.push(number),
                None => unknown.push(difference.to_string()),
            }
        }
    }
    assert!(asked > 1000, "only {asked} requests");
    assert!(unknown.is_empty(), "{} differences in {asked} answers:\n{}", unknown.len(), unknown.join("\n"));
    let stale = known::KNOWN.iter().enumerate().filter(|(number, _)| !found.contains(number));
    let stale: Vec<_> = stale.map(|(_, known)| known).collect();
    assert!(stale.is_empty(), "these differences are none any more: {stale:#?}");
}

/// kube-apiserver describes custom resources a moment after it serves them.
async fn described(client: &Client) {
    let kinds = underpass_resources::KINDS.iter();
    let wanted: Vec<String> = kinds.map(|kind| format!("{}\",\"version", kind.kind)).collect();
    let known = async {
        loop {
            let request = Request::get("/openapi/v2").body(Vec::new()).unwrap();
            let text = client.request_text(request).await.unwrap();
            if wanted.iter().all(|kind| text.contains(kind)) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, known).await.expect("our kinds are described in time");
}

/// What the server says, as one value.
async fn answer(client: &Client, ask: &Ask) -> Value {
    let mut body = ask.body.clone();
    if ask.replaces {
        let (_, stored) = send(client, &Ask::get(path(&body)), &Value::Null).await;
        body["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
    }
    let (code, body) = send(client, ask, &body).await;
    json!({ "code": code.0, "warnings": code.1, "body": ask.part(&body) })
}

async fn send(client: &Client, ask: &Ask, body: &Value) -> ((u16, Vec<String>), Value) {
    let request = Request::builder().method(ask.method.clone()).uri(&ask.path);
    let request = request.header("content-type", ask.content).header("accept", ask.accept);
    let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
    let response = client.send(request.body(Body::from(body)).unwrap()).await.unwrap();
    let warnings = response.headers().get_all("warning").iter();
    let code = (response.status().as_u16(), warnings.map(|value| value.to_str().unwrap().to_owned()).collect());
    let bytes = response.into_body().collect_bytes().await.unwrap();
    (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes))))
}
