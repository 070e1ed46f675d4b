//! The schemas of everything that is served, as OpenAPI v2 (one document) and v3 (one per group version).
//!
//! kubectl reads them for `explain`, for `apply` and to validate before it sends. Documents are made when they are asked for and kept
//! with a fingerprint of what they were made from: a change of one definition makes the documents of its own group versions again
//! and leaves the others alone. Making everything at each change was rejected: Kubernetes' own kinds are most of the text and never
//! change.

mod paths;
mod protobuf;
mod schemas;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::accept;
use crate::registry::{Registry, Resource};
use crate::status::ApiError;

use schemas::{Dialect, Schemas};

const JSON: &str = "application/json";

/// What clients ask for and what they are answered with differ by one character, in Kubernetes too: `@` is not allowed in a media
/// type, and old clients still send it.
const PROTOBUF_ASKED: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
];
const PROTOBUF: &str = PROTOBUF_ASKED[1];

/// The body, its content type and its ETag, quoted as the header has it.
type Answer = (Bytes, &'static str, String);

pub(crate) struct OpenApi {
    documents: Mutex<Documents>,
}

/// What was made so far.
#[derive(Default)]
struct Documents {
    v2: Option<Document>,
    /// The same in protobuf, with the hash of the document that it was made from.
    v2_protobuf: Option<(String, Bytes)>,
    /// By path below `/openapi/v3/`: `api/v1`, `apis/apps/v1`.
    v3: BTreeMap<String, Document>,
}

#[derive(Clone)]
struct Document {
    /// The registry that it was last compared with.
    generation: u64,
    /// Of what it was made from.
    fingerprint: u64,
    body: Bytes,
    hash: String,
}

impl OpenApi {
    pub(crate) fn new() -> Self {
        Self { documents: Mutex::default() }
    }

    /// `None`: no path of OpenAPI.
    pub(crate) fn respond(&self, registry: &Registry, path: &str, accept: &str) -> Option<Result<Answer, ApiError>> {
        let path = path.trim_end_matches('/').strip_prefix("/openapi/")?;
        let mut documents = self.documents.lock();
        match path.split_once('/') {
            None if path == "v2" => Some(documents.v2(registry, accept)),
            None if path == "v3" => Some(Ok(documents.v3_index(registry))),
            Some(("v3", group_version)) => Some(documents.v3(registry, group_version, accept)),
            _ => None,
        }
    }
}

impl Documents {
    fn v2(&mut self, registry: &Registry, accept: &str) -> Result<Answer, ApiError> {
        let protobuf = accept::alternatives(accept).iter().find_map(|alternative| {
            let protobuf = PROTOBUF_ASKED.iter().any(|media_type| alternative.allows(media_type));
            if alternative.allows(JSON) { Some(false) } else { protobuf.then_some(true) }
        });
        let protobuf = protobuf.ok_or_else(|| not_acceptable(accept, &format!("{JSON} and {PROTOBUF}")))?;
        let document = current(self.v2.as_ref(), registry, registry.all(), build_v2);
        self.v2 = Some(document.clone());
        if !protobuf {
            return Ok(document.answer());
        }
        let body = match self.v2_protobuf.take() {
            Some((hash, body)) if hash == document.hash => body,
            _ => Bytes::from(protobuf::encode(&parsed(&document.body))),
        };
        self.v2_protobuf = Some((document.hash.clone(), body.clone()));
        Ok((body, PROTOBUF, format!("\"{}-protobuf\"", document.hash)))
    }

    /// Where the document of each group version is. The hash in the address lets clients keep a document until it changes.
    fn v3_index(&mut self, registry: &Registry) -> Answer {
        let served: BTreeSet<String> =
            registry.groups().flat_map(|(group, versions)| versions.iter().map(|v| v3_path(group, v))).collect();
        self.v3.retain(|path, _| served.contains(path));
        let mut paths = Map::new();
        for (group, versions) in registry.groups() {
            for version in versions {
                let (path, document) = self.v3_document(registry, group, version);
                let address = format!("/openapi/v3/{path}?hash={}", document.hash);
                paths.insert(path, json!({ "serverRelativeURL": address }));
            }
        }
        let body = Bytes::from(json!({ "paths": paths }).to_string());
        let tag = format!("\"{}\"", hash(&body));
        (body, JSON, tag)
    }

    fn v3(&mut self, registry: &Registry, path: &str, accept: &str) -> Result<Answer, ApiError> {
        let (group, version) = match path.split('/').collect::<Vec<_>>().as_slice() {
            ["api", version] => ("", *version),
            ["apis", group, version] => (*group, *version),
            _ => return Err(ApiError::no_such_path()),
        };
        if !registry.versions(group).iter().any(|served| served == version) {
            return Err(ApiError::no_such_path());
        }
        if !accept::alternatives(accept).iter().any(|alternative| alternative.allows(JSON)) {
            return Err(not_acceptable(accept, JSON));
        }
        Ok(self.v3_document(registry, group, version).1.answer())
    }

    fn v3_document(&mut self, registry: &Registry, group: &str, version: &str) -> (String, Document) {
        let path = v3_path(group, version);
        let document = current(self.v3.get(&path), registry, registry.resources_of(group, version), build_v3);
        self.v3.insert(path.clone(), document.clone());
        (path, document)
    }
}

impl Document {
    fn answer(&self) -> Answer {
        (self.body.clone(), JSON, format!("\"{}\"", self.hash))
    }
}

fn v3_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// The kept document where it still says what is served, else a new one.
fn current<'a>(
    kept: Option<&Document>,
    registry: &Registry,
    resources: impl Iterator<Item = &'a Arc<Resource>>,
    build: fn(&[&Resource]) -> Value,
) -> Document {
    let generation = registry.generation;
    if let Some(kept) = kept.filter(|document| document.generation == generation) {
        return kept.clone();
    }
    let resources: Vec<&Resource> = resources.map(AsRef::as_ref).collect();
    let fingerprint = fingerprint(&resources);
    if let Some(kept) = kept.filter(|document| document.fingerprint == fingerprint) {
        return Document { generation, ..kept.clone() };
    }
    let body = Bytes::from(build(&resources).to_string());
    let hash = hash(&body);
    Document { generation, fingerprint, body, hash }
}

/// Of everything that a document shows; only compared within this process.
fn fingerprint(resources: &[&Resource]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for resource in resources {
        (&resource.group, &resource.version, &resource.plural, &resource.kind, &resource.list_kind).hash(&mut hasher);
        (resource.namespaced, resource.status, resource.scale.is_some()).hash(&mut hasher);
        if let Some(custom) = resource.custom() {
            custom.published.hash(&mut hasher);
            custom.selectable_fields.iter().for_each(|field| field.as_str().hash(&mut hasher));
        }
    }
    hasher.finish()
}

fn build_v2(resources: &[&Resource]) -> Value {
    let (paths, definitions) = paths_and_schemas(resources, Dialect::V2);
    json!({
        "swagger": "2.0",
        "info": info(),
        "paths": paths,
        "definitions": definitions,
        "securityDefinitions": { "BearerToken": bearer_token() },
        "security": [{ "BearerToken": [] }],
    })
}

fn build_v3(resources: &[&Resource]) -> Value {
    let (paths, schemas) = paths_and_schemas(resources, Dialect::V3);
    json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths,
        "components": { "schemas": schemas, "securitySchemes": { "BearerToken": bearer_token() } },
    })
}

fn paths_and_schemas(resources: &[&Resource], dialect: Dialect) -> (Map<String, Value>, Map<String, Value>) {
    let mut schemas = Schemas::new(dialect);
    let mut paths = Map::new();
    for resource in resources {
        schemas.add_custom(resource);
        paths.extend(paths::of(resource, &mut schemas));
    }
    (paths, schemas.finish())
}

fn info() -> Value {
    json!({ "title": "Underpass", "version": env!("CARGO_PKG_VERSION") })
}

fn bearer_token() -> Value {
    json!({ "type": "apiKey", "name": "authorization", "in": "header", "description": "Bearer and the token of the kubeconfig" })
}

fn parsed(body: &[u8]) -> Value {
    serde_json::from_slice(body).expect("the document was written from a JSON value")
}

fn hash(body: &[u8]) -> String {
    format!("{:X}", Sha256::digest(body))
}

fn not_acceptable(accept: &str, known: &str) -> ApiError {
    ApiError::not_acceptable(format!("nothing that is accepted ({accept}) can be written here; known are {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(kind: &str, schema: &Value) -> Vec<Arc<Resource>> {
        let plural = format!("{}s", kind.to_lowercase());
        let definition = json!({
            "metadata": { "name": format!("{plural}.things.example.com") },
            "spec": {
                "group": "things.example.com", "scope": "Namespaced",
                "names": { "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List") },
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                    "schema": { "openAPIV3Schema": schema },
                    "selectableFields": [{ "jsonPath": ".spec.colour" }],
                }],
            },
        });
        Resource::from_definition(&definition, &crate::registry::Since::default())
    }

    fn foo() -> Value {
        json!({
            "type": "object", "description": "a foo",
            "properties": {
                "spec": { "type": "object", "description": "what is wanted", "required": ["colour", "maybe"], "properties": {
                    "colour": { "type": "string", "enum": ["red", "blue"], "default": "red" },
                    "maybe": { "type": "string", "nullable": true },
                    "port": { "x-kubernetes-int-or-string": true },
                    "any": { "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": { "a": { "type": "string" } } },
                    "child": { "type": "object", "x-kubernetes-embedded-resource": true },
                    "one": { "type": "string", "oneOf": [{ "format": "ipv4" }, { "format": "ipv6" }] },
                } },
            },
        })
    }

    fn get(openapi: &OpenApi, registry: &Registry, path: &str) -> (Value, String) {
        let (body, content_type, tag) = openapi.respond(registry, path, "application/json").unwrap().unwrap();
        assert_eq!(content_type, JSON);
        (parsed(&body), tag)
    }

    fn v2_of(schema: &Value) -> Value {
        let registry = Registry::build(definition("Foo", schema), 1);
        get(&OpenApi::new(), &registry, "/openapi/v2").0["definitions"]["com.example.things.v1.Foo"].clone()
    }

    fn v3_of(schema: &Value) -> Value {
        let registry = Registry::build(definition("Foo", schema), 1);
        get(&OpenApi::new(), &registry, "/openapi/v3/apis/things.example.com/v1").0["components"]["schemas"]
            ["com.example.things.v1.Foo"]
            .clone()
    }

    /// Every `$ref` of a document must lead somewhere.
    fn check_references(document: &Value, value: &Value) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(reference)) = map.get("$ref") {
                    assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference} leads nowhere");
                }
                map.values().for_each(|v| check_references(document, v));
            }
            Value::Array(list) => list.iter().for_each(|v| check_references(document, v)),
            _ => {}
        }
    }

    #[test]
    fn v2_says_what_v2_can_say() {
        let foo = v2_of(&foo());
        assert_eq!(
            foo["properties"]["spec"]["properties"],
            json!({
                "colour": { "type": "string", "enum": ["red", "blue"] },
                "maybe": {},
                "port": { "x-kubernetes-int-or-string": true },
                "any": { "x-kubernetes-preserve-unknown-fields": true },
                "child": {
                    "type": "object", "x-kubernetes-embedded-resource": true, "required": ["apiVersion", "kind"],
                    "properties": foo["properties"]["spec"]["properties"]["child"]["properties"],
                },
                "one": { "type": "string" },
            })
        );
        assert_eq!(foo["properties"]["spec"]["required"], json!(["colour"]));
        assert_eq!(
            foo["properties"]["metadata"]["$ref"],
            "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
        );
        assert_eq!(
            foo["x-kubernetes-group-version-kind"],
            json!([{ "group": "things.example.com", "version": "v1", "kind": "Foo" }])
        );
        assert_eq!(foo["x-kubernetes-selectable-fields"], json!([{ "fieldPath": "spec.colour" }]));
    }

    #[test]
    fn what_v2_can_say_is_published_as_written() {
        let written = json!({
            "description": "a bar", "type": "object",
            "properties": {
                "spec": { "type": "object", "required": ["name"], "properties": {
                    "name": { "type": "string", "pattern": "a|b", "maxLength": 9 },
                    "default": { "type": "array", "items": { "type": "integer", "format": "int32", "minimum": 1 } },
                    "labels": { "type": "object", "additionalProperties": { "type": "string" } },
                } },
                "status": { "type": "object", "description": "how it is" },
            },
        });
        let mut published = v2_of(&written);
        for field in ["apiVersion", "kind", "metadata"] {
            assert!(published["properties"].as_object_mut().unwrap().remove(field).is_some(), "{field}");
        }
        published.as_object_mut().unwrap().retain(|key, _| !key.starts_with("x-"));
        assert_eq!(published, written);
    }

    #[test]
    fn v3_keeps_what_v2_cannot_say() {
        let foo = v3_of(&foo());
        let spec = &foo["properties"]["spec"]["properties"];
        assert_eq!(spec["colour"]["default"], "red");
        assert_eq!(spec["maybe"], json!({ "type": "string", "nullable": true }));
        assert_eq!(spec["port"]["anyOf"], json!([{ "type": "integer" }, { "type": "string" }]));
        assert_eq!(spec["any"]["properties"]["a"]["type"], "string");
        assert!(spec["one"]["oneOf"].is_array());
        let metadata = &foo["properties"]["metadata"];
        assert_eq!(
            metadata["allOf"][0]["$ref"],
            "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
        );
        assert!(
            metadata["description"].as_str().unwrap().starts_with("Standard object's metadata"),
            "kubectl explain shows it"
        );
    }

    #[test]
    fn a_schema_open_at_its_root_is_a_plain_object_for_v2_only() {
        let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": { "a": { "type": "string" } } });
        let plain = v2_of(&open);
        assert_eq!(plain["type"], "object");
        assert_eq!(plain.get("properties"), None);
        assert_eq!(v3_of(&open)["properties"]["a"]["type"], "string");
    }

    #[test]
    fn every_reference_of_every_document_leads_somewhere() {
        let registry = Registry::build(definition("Foo", &foo()), 1);
        let openapi = OpenApi::new();
        let v2 = get(&openapi, &registry, "/openapi/v2").0;
        check_references(&v2, &v2);
        let index = get(&openapi, &registry, "/openapi/v3").0;
        for (path, entry) in index["paths"].as_object().unwrap() {
            let (document, tag) = get(&openapi, &registry, &format!("/openapi/v3/{path}"));
            check_references(&document, &document);
            let address = format!("/openapi/v3/{path}?hash={}", tag.trim_matches('"'));
            assert_eq!(entry["serverRelativeURL"], address);
        }
    }

    #[test]
    fn kubectl_finds_field_validation_at_the_patch_of_every_kind() {
        let registry = Registry::build(definition("Foo", &foo()), 1);
        let openapi = OpenApi::new();
        for resource in registry.all() {
            let path = v3_path(&resource.group, &resource.version);
            let document = get(&openapi, &registry, &format!("/openapi/v3/{path}")).0;
            let kind = json!({ "group": resource.group, "version": resource.version, "kind": resource.kind });
            let paths = document["paths"].as_object().unwrap();
            let mut patches =
                paths.values().map(|item| &item["patch"]).filter(|op| op["x-kubernetes-group-version-kind"] == kind);
            assert!(
                patches.all(|patch| patch["parameters"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .any(|p| p["name"] == "fieldValidation"))
            );
            let strategic = paths.values().any(|item| {
                item["patch"]["x-kubernetes-group-version-kind"] == kind
                    && item["patch"]["requestBody"]["content"].get("application/strategic-merge-patch+json").is_some()
            });
            assert_eq!(strategic, resource.custom().is_none(), "{}", resource.kind);
            let schemas = document["components"]["schemas"].as_object().unwrap();
            let named =
                |s: &Value| s["x-kubernetes-group-version-kind"].as_array().is_some_and(|kinds| kinds.contains(&kind));
            assert_eq!(
                schemas.values().filter(|s| named(s)).count(),
                1,
                "explain looks {} up by its kind",
                resource.kind
            );
        }
    }

    #[test]
    fn a_change_of_one_definition_leaves_the_other_documents_alone() {
        let openapi = OpenApi::new();
        let before = get(&openapi, &Registry::build(definition("Foo", &foo()), 1), "/openapi/v3").0;
        let same = get(&openapi, &Registry::build(definition("Foo", &foo()), 2), "/openapi/v3").0;
        assert_eq!(before, same);
        let core = openapi.documents.lock().v3["api/v1"].body.as_ptr();
        let mut changed = foo();
        changed["properties"]["spec"]["properties"]["new"] = json!({ "type": "string" });
        let after = get(&openapi, &Registry::build(definition("Foo", &changed), 3), "/openapi/v3").0;
        assert_eq!(before["paths"]["api/v1"], after["paths"]["api/v1"]);
        assert_ne!(before["paths"]["apis/things.example.com/v1"], after["paths"]["apis/things.example.com/v1"]);
        assert_eq!(core, openapi.documents.lock().v3["api/v1"].body.as_ptr(), "made once");
        let gone = get(&openapi, &Registry::build([], 4), "/openapi/v3").0;
        assert_eq!(gone["paths"].get("apis/things.example.com/v1"), None);
        assert!(!openapi.documents.lock().v3.contains_key("apis/things.example.com/v1"));
    }

    #[test]
    fn two_kinds_of_a_group_version_stand_in_one_document() {
        let registry =
            Registry::build([definition("Foo", &foo()), definition("Bar", &json!({ "type": "object" }))].concat(), 1);
        let document = get(&OpenApi::new(), &registry, "/openapi/v3/apis/things.example.com/v1").0;
        for name in ["Foo", "FooList", "Bar", "BarList"] {
            assert!(document["components"]["schemas"].get(format!("com.example.things.v1.{name}")).is_some(), "{name}");
        }
        let list = &document["paths"]["/apis/things.example.com/v1/namespaces/{namespace}/foos"]["get"];
        assert_eq!(list["operationId"], "listThingsExampleComV1NamespacedFoo");
        assert_eq!(
            document["paths"]["/apis/things.example.com/v1/bars"]["get"]["operationId"],
            "listThingsExampleComV1BarForAllNamespaces"
        );
    }

    #[test]
    fn what_is_not_there_or_cannot_be_written_is_refused() {
        let (openapi, registry) = (OpenApi::new(), Registry::build([], 1));
        let code =
            |path: &str, accept: &str| openapi.respond(&registry, path, accept).unwrap().unwrap_err().code.as_u16();
        assert_eq!(code("/openapi/v3/apis/unknown/v1", ""), 404);
        assert_eq!(code("/openapi/v3/apis/apps", ""), 404);
        assert_eq!(code("/openapi/v2", "text/html"), 406);
        assert_eq!(code("/openapi/v3/api/v1", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"), 406);
        assert!(openapi.respond(&registry, "/openapi/v4", "").is_none());
        assert!(openapi.respond(&registry, "/api", "").is_none());
    }

    #[test]
    fn old_clients_get_protobuf() {
        let (openapi, registry) = (OpenApi::new(), Registry::build([], 1));
        let (body, content_type, tag) = openapi.respond(&registry, "/openapi/v2", PROTOBUF_ASKED[0]).unwrap().unwrap();
        assert_eq!(content_type, PROTOBUF);
        assert!(body.starts_with(b"\x0a\x032.0"), "field 1, the version, comes first");
        let (_, _, json_tag) = openapi.respond(&registry, "/openapi/v2", "*/*").unwrap().unwrap();
        assert_ne!(tag, json_tag);
    }
}
