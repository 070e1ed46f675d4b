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
///
/// What OpenAPI calls required at the top and in the status is left out too: Kubernetes takes such objects (an update of half a
/// status, an EndpointSlice without endpoints), and the checks of the kind name what is really needed.
pub(crate) fn schema(definitions: &Map<String, Value>, name: &str) -> Schema {
    let mut tree = referred(definitions, name);
    tree.as_object_mut().map(|root| root.remove("required"));
    tree.pointer_mut("/properties/status").into_iter().for_each(drop_required);
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

fn drop_required(node: &mut Value) {
    let Value::Object(node) = node else { return };
    node.remove("required");
    node.get_mut("properties")
        .and_then(Value::as_object_mut)
        .into_iter()
        .flatten()
        .for_each(|(_, node)| drop_required(node));
    ["items", "additionalProperties"].into_iter().for_each(|below| {
        node.get_mut(below).into_iter().for_each(drop_required);
    });
}

fn properties(definitions: &Map<String, Value>, properties: &Value) -> Value {
    let properties = properties.as_object().into_iter().flatten();
    properties.map(|(name, property)| (name.clone(), inlined(definitions, property))).collect()
}

#[cfg(test)]
mod tests {
    use underpass_schema::{ListType, MapType, Type};

    use super::*;
    use crate::{Builtin, all};

    fn at(builtin: &'static Builtin, path: &str) -> &'static Schema {
        path.split('.').fold(builtin.schema(), |schema, name| {
            let list = schema.items.as_deref().unwrap_or(schema);
            list.field(name).unwrap_or_else(|| panic!("{} has no {path}: {name}", builtin.kind))
        })
    }

    fn builtin(kind: &str) -> &'static Builtin {
        all().iter().find(|builtin| builtin.kind == kind).unwrap()
    }

    #[test]
    fn every_kind_has_a_schema() {
        for builtin in all() {
            let schema = builtin.schema();
            assert_eq!(schema.type_, Some(Type::Object), "{}", builtin.kind);
            assert!(schema.properties.contains_key("metadata"), "{}", builtin.kind);
            assert!(schema.description.is_none());
            assert_eq!(schema.properties.contains_key("status"), builtin.status, "{}", builtin.kind);
        }
    }

    #[test]
    fn lists_and_maps_know_how_they_merge() {
        let ports = at(builtin("Deployment"), "spec.template.spec.containers.ports");
        assert_eq!(ports.list_type, Some(ListType::Map));
        assert_eq!(ports.list_map_keys, ["containerPort", "protocol"]);
        assert_eq!(ports.patch_merge_key.as_deref(), Some("containerPort"));
        assert!(ports.patch_merge);
        let protocol = at(builtin("Service"), "spec.ports.protocol");
        assert_eq!(protocol.default, Some(json!("TCP")));
        assert!(at(builtin("Pod"), "spec.volumes").patch_retain_keys);
        assert!(at(builtin("Deployment"), "spec.strategy").patch_retain_keys);
        assert_eq!(at(builtin("Deployment"), "spec.selector").map_type, Some(MapType::Atomic));
        assert_eq!(at(builtin("Service"), "spec.selector").map_type, Some(MapType::Atomic));
        assert_eq!(at(builtin("EndpointSlice"), "endpoints").list_type, Some(ListType::Atomic));
        assert_eq!(at(builtin("ConfigMap"), "metadata.finalizers").list_type, Some(ListType::Set));
        assert_eq!(at(builtin("ConfigMap"), "metadata.ownerReferences").list_map_keys, ["uid"]);
    }

    #[test]
    fn open_ends_and_scalars() {
        let schema = at(builtin("CustomResourceDefinition"), "spec.versions.schema.openAPIV3Schema");
        assert!(schema.preserve_unknown_fields && schema.properties.is_empty());
        assert!(at(builtin("ConfigMap"), "metadata.managedFields.fieldsV1").preserve_unknown_fields);
        assert!(at(builtin("Service"), "spec.ports.targetPort").int_or_string);
        assert!(at(builtin("Pod"), "spec.containers.resources.limits.cpu").int_or_string);
        assert_eq!(at(builtin("ConfigMap"), "metadata.creationTimestamp").format.as_deref(), Some("date-time"));
    }

    #[test]
    fn half_a_status_is_no_mistake() {
        assert!(at(builtin("Node"), "status.nodeInfo").required.is_empty());
        assert!(!at(builtin("Pod"), "spec").required.is_empty());
    }
}
