//! Every good manifest is accepted as written, every bad one is refused where and because it says (`testdata/README.md` has the
//! format). The schemas alone are tested with them too, in `underpass-resources`; here a running server judges.

use std::path::Path;

use http::{Method, Request};
use kube::core::response::StatusCause;
use kube::{Client, Error};
use serde_json::Value;
use underpass_resources::Kind;

use crate::{apiserver, root};

/// The examples, and the seeds' manifests of our kinds: paths below the project's folder.
pub(crate) fn good() -> Vec<String> {
    let seeds = files("testdata/seeds").into_iter().filter(|file| !file.ends_with(".patch.yaml"));
    let ours = seeds.filter(|file| documents(&root().join(file)).iter().all(|document| kind(document).is_some()));
    files("examples").into_iter().chain(ours).collect()
}

pub(crate) fn documents(path: &Path) -> Vec<Value> {
    serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[tokio::test]
async fn good_manifests_are_accepted_as_written() {
    let server = apiserver();
    let api = Strict(server.client().await);
    let mut kinds = std::collections::BTreeSet::new();
    for file in good() {
        for document in documents(&root().join(&file)) {
            let stored = api.apply(&document).await.unwrap_or_else(|error| panic!("{file}: {error}"));
            assert_within(&document, &stored, &file);
            kinds.extend(kind(&document).map(|kind| kind.kind));
        }
    }
    assert_eq!(kinds.len(), underpass_resources::KINDS.len(), "{kinds:?}");
}

#[tokio::test]
async fn bad_manifests_are_refused_with_path_and_reason() {
    let server = apiserver();
    let api = Strict(server.client().await);
    let files = files("testdata/bad");
    assert!(files.len() >= 60, "{}", files.len());
    let mut failures = Vec::new();
    for file in files {
        if let Err(failure) = check_bad(&api, &root().join(&file)).await {
            failures.push(format!("{file}: {failure}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn kubectl_shows_path_and_reason() {
    let server = apiserver();
    let kubectl = server.kubectl();
    for name in [
        "containernetwork-mode",
        "dhcpserver-range-backwards",
        "infra-servers-share-address",
        "proxyserver-backend-twice",
    ] {
        let path = root().join(format!("testdata/bad/{name}.yaml"));
        let refused = kubectl.fails(&format!("create -f {}", path.display()));
        for (field, reason) in expectations(&path) {
            assert!(
                refused.contains(&field) && refused.contains(&reason),
                "{name}: {field}: {reason} is missing in:\n{refused}"
            );
        }
    }
}

/// `Err` says what is wrong with the refusal.
async fn check_bad(api: &Strict, path: &Path) -> Result<(), String> {
    let expected = expectations(path);
    if expected.is_empty() {
        return Err("expects nothing".to_owned());
    }
    let refused = match documents(path).as_slice() {
        [only] => api.create(only).await,
        [before, after] => {
            let stored = api.create(before).await.map_err(|error| format!("the first document is refused: {error}"))?;
            let refused = api.replace(&stored, after).await;
            api.delete(&stored).await.map_err(|error| error.to_string())?;
            refused
        }
        other => return Err(format!("{} documents", other.len())),
    };
    let Err(Error::Api(status)) = refused else { return Err(format!("expected a refusal, got {refused:?}")) };
    let causes: Vec<StatusCause> = status.details.as_ref().map(|details| details.causes.clone()).unwrap_or_default();
    for (field, reason) in expected {
        let unknown = reason == "unknown field" && status.message.contains(&format!("unknown field \"{field}\""));
        if !unknown && !causes.iter().any(|cause| cause.field == field && cause.message.contains(&reason)) {
            return Err(format!("expected {field}: {reason}, got {} with {causes:?}", status.message));
        }
    }
    Ok(())
}

/// The API under `fieldValidation=Strict`.
struct Strict(Client);

impl Strict {
    async fn create(&self, object: &Value) -> Result<Value, Error> {
        self.send(Method::POST, &collection(object), "", object).await
    }

    async fn replace(&self, stored: &Value, object: &Value) -> Result<Value, Error> {
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
        self.send(Method::PUT, &path(&object), "", &object).await
    }

    /// Server-side, because two examples may share a namespace.
    async fn apply(&self, object: &Value) -> Result<Value, Error> {
        if let Some(namespace) = object["metadata"]["namespace"].as_str() {
            let namespace =
                serde_json::json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
            self.send(Method::PATCH, &path(&namespace), "application/apply-patch+yaml", &namespace).await?;
        }
        self.send(Method::PATCH, &path(object), "application/apply-patch+yaml", object).await
    }

    async fn delete(&self, object: &Value) -> Result<Value, Error> {
        self.send(Method::DELETE, &path(object), "", &Value::Null).await
    }

    async fn send(&self, method: Method, path: &str, content: &str, body: &Value) -> Result<Value, Error> {
        let content = if content.is_empty() { "application/json" } else { content };
        let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
        let request = Request::builder().method(method).header("content-type", content);
        let request = request.uri(format!("{path}?fieldValidation=Strict&fieldManager=test&force=true"));
        self.0.request(request.body(body).unwrap()).await
    }
}

pub(crate) fn path(object: &Value) -> String {
    format!("{}/{}", collection(object), object["metadata"]["name"].as_str().unwrap())
}

pub(crate) fn collection(object: &Value) -> String {
    let Some(kind) = kind(object) else { return "/api/v1/namespaces".to_owned() };
    let api = format!("/apis/{}", kind.api_version());
    if !kind.namespaced {
        return format!("{api}/{}", kind.plural);
    }
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    format!("{api}/namespaces/{namespace}/{}", kind.plural)
}

/// The kind, if it is ours; the only other one in our manifests is Namespace.
pub(crate) fn kind(document: &Value) -> Option<&'static Kind> {
    underpass_resources::kind(document["kind"].as_str()?)
}

/// Everything that `written` says is in `stored`, unchanged.
fn assert_within(written: &Value, stored: &Value, place: &str) {
    match (written, stored) {
        (Value::Object(written), Value::Object(stored)) => {
            for (key, value) in written {
                let place = format!("{place}, {key}");
                assert_within(value, stored.get(key).unwrap_or_else(|| panic!("{place} is missing")), &place);
            }
        }
        (Value::Array(written), Value::Array(stored)) if written.len() == stored.len() => {
            for (index, (written, stored)) in written.iter().zip(stored).enumerate() {
                assert_within(written, stored, &format!("{place}[{index}]"));
            }
        }
        _ => assert_eq!(written, stored, "{place}"),
    }
}

pub(crate) fn files(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".yaml"));
    names.sort();
    assert!(!names.is_empty(), "{folder} has no manifests");
    names.into_iter().map(|name| format!("{folder}/{name}")).collect()
}

fn expectations(path: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("# expect: "));
    lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(field, reason)| (field.to_owned(), reason.to_owned()))
        .collect()
}
