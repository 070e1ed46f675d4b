//! What both servers are asked.

use http::Method;
use serde_json::{Value, json};
use underpass_resources::KINDS;

use crate::manifests::{collection, documents, files, good, kind, path};
use crate::root;

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

pub(crate) struct Ask {
    /// What it is about, for messages.
    pub(crate) what: String,
    /// What the rest of that does not say.
    remark: &'static str,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) content: &'static str,
    pub(crate) accept: &'static str,
    pub(crate) body: Value,
    /// Whether the body names the stored version, which every server has its own of.
    pub(crate) replaces: bool,
    /// The part of the answer that is ours.
    part: fn(&Value) -> Value,
}

impl Ask {
    pub(crate) fn get(path: String) -> Self {
        Self::new(Method::GET, path, JSON, Value::Null)
    }

    fn new(method: Method, path: String, content: &'static str, body: Value) -> Self {
        Self {
            what: String::new(),
            remark: "",
            method,
            path,
            content,
            accept: JSON,
            body,
            replaces: false,
            part: Value::clone,
        }
    }

    fn post(object: &Value, query: &str) -> Self {
        Self::new(Method::POST, format!("{}?{query}", collection(object)), JSON, object.clone())
    }

    fn put(object: &Value, query: &str) -> Self {
        Self::new(Method::PUT, format!("{}?{query}", path(object)), JSON, object.clone())
    }

    fn patch(path: &str, content: &'static str, patch: Value) -> Self {
        Self::new(Method::PATCH, path.to_owned(), content, patch)
    }

    fn delete(path: String, options: Value) -> Self {
        Self::new(Method::DELETE, path, JSON, options)
    }

    fn accepting(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    fn replacing(mut self) -> Self {
        self.replaces = true;
        self
    }

    fn about(mut self, file: &str) -> Self {
        let type_ = if self.method == Method::GET { self.accept } else { self.content };
        self.what = format!(
            "{file}: {} {} {}{}",
            self.method,
            self.path,
            type_.trim_start_matches("application/"),
            self.remark
        );
        self
    }

    pub(crate) fn part(&self, answer: &Value) -> Value {
        (self.part)(answer)
    }
}

pub(crate) fn all() -> Vec<Ask> {
    let mut all = descriptions();
    for file in good() {
        for document in documents(&root().join(&file)) {
            let life = if kind(&document).is_some() { life(&document) } else { namespace(&document) };
            all.extend(life.into_iter().map(|ask| ask.about(&file)));
        }
    }
    for file in files("testdata/bad") {
        let asks = match documents(&root().join(&file)).as_slice() {
            [only] => vec![Ask::post(only, "fieldValidation=Strict"), Ask::post(only, "fieldManager=test")]
                .into_iter()
                .chain([Ask::delete(path(only), Value::Null)])
                .collect(),
            [before, after] => vec![
                Ask::post(before, "fieldValidation=Strict"),
                Ask::put(after, "fieldValidation=Strict").replacing(),
                Ask::delete(path(before), Value::Null),
            ],
            other => panic!("{file} has {} documents", other.len()),
        };
        all.extend(asks.into_iter().map(|ask| ask.about(&file)));
    }
    all
}

/// What a server says about our kinds before there is any object of them.
fn descriptions() -> Vec<Ask> {
    let mut asks = Vec::new();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for group in ["underpass.dev", "hostedcluster.densityops.com"] {
        for path in
            [format!("/apis/{group}"), format!("/apis/{group}/v1alpha1"), format!("/openapi/v3/apis/{group}/v1alpha1")]
        {
            asks.push(Ask::get(path));
        }
    }
    for kind in KINDS {
        asks.push(Ask { part: without_owners, ..Ask::get(format!("{definitions}/{}", kind.crd_name())) });
    }
    asks.push(Ask { part: our_groups, ..Ask::get("/apis".to_owned()) });
    asks.push(Ask { part: our_groups, ..Ask::get("/apis".to_owned()).accepting(DISCOVERY) });
    asks.push(Ask { part: our_definitions, ..Ask::get("/openapi/v2".to_owned()) });
    asks.into_iter().map(|ask| ask.about("descriptions")).collect()
}

/// Of definitions, which each server got in its own way.
fn without_owners(whole: &Value) -> Value {
    let mut whole = whole.clone();
    whole["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
    whole
}

fn our_groups(whole: &Value) -> Value {
    let groups = ["groups", "items"].iter().find_map(|list| whole[list].as_array()).cloned().unwrap_or_default();
    let is_ours = |group: &Value| {
        let name = group["name"].as_str().or(group["metadata"]["name"].as_str());
        KINDS.iter().any(|kind| Some(kind.group) == name)
    };
    let mut groups: Vec<Value> = groups.into_iter().filter(is_ours).collect();
    groups.sort_by_key(Value::to_string);
    json!(groups)
}

fn our_definitions(whole: &Value) -> Value {
    let is_ours = |name: &str| name.starts_with("dev.underpass.") || name.starts_with("com.densityops.");
    let definitions = whole["definitions"].as_object().cloned().unwrap_or_default();
    let is_our_path = |path: &str| KINDS.iter().any(|kind| path.starts_with(&format!("/apis/{}/", kind.group)));
    let paths = whole["paths"].as_object().cloned().unwrap_or_default();
    json!({
        "definitions": definitions.into_iter().filter(|(name, _)| is_ours(name)).collect::<serde_json::Map<_, _>>(),
        "paths": paths.into_iter().filter(|(path, _)| is_our_path(path)).collect::<serde_json::Map<_, _>>(),
    })
}

fn namespace(object: &Value) -> Vec<Ask> {
    vec![Ask::post(object, "fieldManager=test"), Ask::get(path(object)), Ask::get(path(object)).accepting(TABLE)]
}

/// From its creation to its end, with everything that can be done to an object between them.
fn life(object: &Value) -> Vec<Ask> {
    let (path, list) = (path(object), collection(object));
    let mut asks = Vec::new();
    if let Some(name) = object["metadata"]["namespace"].as_str() {
        let made = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        asks.extend(namespace(&made));
    }
    let strict = "fieldValidation=Strict&fieldManager=test";
    asks.extend([
        Ask::post(object, &format!("{strict}&dryRun=All")),
        Ask::post(object, strict),
        Ask::post(object, strict),
    ]);
    asks.extend(reads(&path, &list));
    asks.extend(patches(&path, object));
    asks.extend(statuses(&path, object));
    asks.extend(reads(&path, &list));
    asks.extend(refused(&path, object));
    asks.push(Ask::put(object, "fieldManager=test"));
    asks.push(Ask::put(object, "fieldManager=test").replacing());
    asks.push(Ask::delete(format!("{path}?dryRun=All"), Value::Null));
    asks.push(Ask::delete(path.clone(), json!({ "preconditions": { "uid": "another" } })));
    asks.push(Ask::delete(path.clone(), json!({ "propagationPolicy": "Background" })));
    asks.push(Ask::delete(path.clone(), Value::Null));
    asks.push(Ask::get(path.clone()));
    asks.push(Ask::patch(&path, MERGE, json!({})));
    asks.push(Ask::get(list));
    asks
}

fn reads(path: &str, list: &str) -> Vec<Ask> {
    let wide = |accept: &'static str| [path, list].map(|path| Ask::get(path.to_owned()).accepting(accept));
    let mut asks: Vec<Ask> = [JSON, TABLE, METADATA].into_iter().flat_map(wide).collect();
    asks.push(Ask { remark: " of one object", ..Ask::get(path.to_owned()).accepting(METADATA_LIST) });
    asks.push(Ask::get(list.to_owned()).accepting(METADATA_LIST));
    asks.push(Ask::get(format!("{path}/status")));
    asks.push(Ask::get(format!("{list}?includeObject=Object")).accepting(TABLE));
    asks.push(Ask::get(format!("{list}?labelSelector=step%3Dmerge")));
    asks.push(Ask::get(format!("{list}?fieldSelector=spec.nothing%3D1")));
    asks
}

fn patches(path: &str, object: &Value) -> Vec<Ask> {
    let labelled = json!({ "metadata": { "labels": { "step": "merge" } } });
    let step = json!([{ "op": "add", "path": "/metadata/annotations", "value": { "step": "json" } }]);
    let mut other = object.clone();
    other["metadata"]["labels"] = json!({ "step": "apply" });
    vec![
        Ask::patch(&format!("{path}?fieldManager=applier"), APPLY, object.clone()),
        Ask::patch(&format!("{path}?fieldManager=merger"), MERGE, labelled.clone()),
        Ask::patch(&format!("{path}?fieldManager=merger"), MERGE, labelled.clone()),
        Ask::patch(&format!("{path}?fieldManager=stepper"), JSON_PATCH, step),
        Ask::patch(path, STRATEGIC, labelled),
        Ask::patch(&format!("{path}?fieldManager=applier"), APPLY, other.clone()),
        Ask::patch(&format!("{path}?fieldManager=applier&force=true"), APPLY, other),
        Ask::patch(&format!("{path}?fieldManager=applier&force=true"), APPLY, object.clone()),
    ]
}

fn statuses(path: &str, object: &Value) -> Vec<Ask> {
    let condition = json!({
        "type": "Ready", "status": "False", "reason": "Testing", "message": "as it is", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status =
        json!({ "status": { "observedGeneration": 1, "conditions": [condition] }, "spec": { "ignored": true } });
    let mut applied = status.clone();
    for field in ["apiVersion", "kind"] {
        applied[field] = object[field].clone();
    }
    applied["metadata"] = json!({ "name": object["metadata"]["name"] });
    applied["spec"] = object["spec"].clone();
    let path = format!("{path}/status");
    vec![
        Ask::patch(&format!("{path}?fieldManager=teller"), MERGE, status),
        Ask::patch(&format!("{path}?fieldManager=applier"), APPLY, applied),
        Ask::patch(
            &path,
            JSON_PATCH,
            json!([{ "op": "replace", "path": "/status/conditions/0/status", "value": "True" }]),
        ),
        Ask::patch(&path, MERGE, json!({ "status": { "conditions": "none" } })),
        Ask::patch(&path, STRATEGIC, json!({ "status": {} })),
    ]
}

/// Writes that no schema of ours allows.
fn refused(path: &str, object: &Value) -> Vec<Ask> {
    let strict = format!("{path}?fieldValidation=Strict");
    let mut misnamed = object.clone();
    misnamed["metadata"]["name"] = json!("another");
    let mut elsewhere = object.clone();
    elsewhere["kind"] = json!("Nothing");
    vec![
        Ask::patch(path, MERGE, json!({ "spec": 5 })),
        Ask::patch(path, MERGE, json!({ "spec": { "nothing": 1 } })),
        Ask::patch(&strict, MERGE, json!({ "spec": { "nothing": 1 } })),
        Ask::patch(&strict, JSON_PATCH, json!([{ "op": "add", "path": "/spec/nothing", "value": 1 }])),
        Ask::patch(path, JSON_PATCH, json!([{ "op": "test", "path": "/metadata/name", "value": "x" }])),
        Ask::patch(path, MERGE, json!({ "metadata": { "labels": { "not a label": "x" } } })),
        Ask::patch(path, MERGE, json!({ "metadata": { "name": "another" } })),
        Ask::patch(path, MERGE, json!({ "metadata": { "resourceVersion": "1" } })),
        Ask::new(Method::PUT, path.to_owned(), JSON, misnamed),
        Ask::new(Method::PUT, format!("{path}?fieldManager=of-another-kind"), JSON, elsewhere),
        Ask::patch(path, "text/plain", json!({})),
        Ask::new(Method::POST, format!("{path}?fieldManager=posted-to-an-object"), JSON, json!({})),
    ]
}
