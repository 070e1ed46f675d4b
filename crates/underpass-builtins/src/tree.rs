//! From definitions that refer to each other to one tree per kind.

use serde_json::{Map, Value, json};
use underpass_schema::{Path, Schema};

use crate::definitions::REF;

/// Types of which a document may hold anything, or whose own definition is recursive, and the scalars that JSON writes in two ways.
const OPEN: &[(&str, &str)] = &[
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps", "object"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "object"),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", "object"),
];
const INT_OR_STRING: &[&str] =
    &["io.k8s.apimachinery.pkg.api.resource.Quantity", "io.k8s.apimachinery.pkg.util.intstr.IntOrString"];

/// The schema of the definition `name`, with all references followed. Descriptions are left out: they are most of the memory.
pub(crate) fn schema(definitions: &Map<String, Value>, name: &str) -> Schema {
    let tree = referred(definitions, name);
    Schema::parse(&tree, &Path::root()).unwrap_or_else(|errors| panic!("{name} is no structural schema: {errors:?}"))
}

fn referred(definitions: &Map<String, Value>, name: &str) -> Value {
    if let Some((_, type_)) = OPEN.iter().find(|(open, _)| *open == name) {
        return json!({"type": type_, "x-kubernetes-preserve-unknown-fields": true});
    }
    if INT_OR_STRING.contains(&name) {
        return json!({"x-kubernetes-int-or-string": true});
    }
    inlined(definitions, &definitions[name])
}

fn inlined(definitions: &Map<String, Value>, node: &Value) -> Value {
    let Value::Object(node) = node else { return node.clone() };
    let mut tree = match node.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix(REF)) {
        Some(name) => referred(definitions, name),
        None => json!({}),
    };
    for (key, value) in node {
        match key.as_str() {
            "$ref" | "description" => {}
            "properties" => tree[key] = properties(definitions, value),
            "items" | "additionalProperties" => tree[key] = inlined(definitions, value),
            _ => tree[key] = value.clone(),
        }
    }
    tree
}

fn properties(definitions: &Map<String, Value>, properties: &Value) -> Value {
    let properties = properties.as_object().into_iter().flatten();
    properties.map(|(name, property)| (name.clone(), inlined(definitions, property))).collect()
}
