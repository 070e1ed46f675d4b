//! Small schemas, written by hand, for the kinds that the tests are about.

#![allow(dead_code, unreachable_pub, reason = "shared by the test files, each of which uses some of it")]

use serde_json::{Value, json};
use underpass_merge::Manager;
use underpass_schema::{AdditionalProperties, ListType, MapType, Schema, Type};

pub fn scalar(type_: Type) -> Schema {
    Schema { type_: Some(type_), ..Schema::default() }
}

pub fn text() -> Schema {
    scalar(Type::String)
}

pub fn number() -> Schema {
    scalar(Type::Integer)
}

pub fn object<const N: usize>(properties: [(&str, Schema); N]) -> Schema {
    let properties = properties.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    Schema { properties, ..scalar(Type::Object) }
}

pub fn map_of(values: Schema) -> Schema {
    Schema { additional_properties: Some(AdditionalProperties::Schema(Box::new(values))), ..scalar(Type::Object) }
}

pub fn list(items: Schema) -> Schema {
    Schema { items: Some(Box::new(items)), ..scalar(Type::Array) }
}

pub fn set(items: Schema) -> Schema {
    Schema { list_type: Some(ListType::Set), patch_merge: true, ..list(items) }
}

/// An associative list; strategic merge patches use the first key.
pub fn list_map(keys: &[&str], items: Schema) -> Schema {
    Schema {
        list_type: Some(ListType::Map),
        list_map_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        patch_merge: true,
        patch_merge_key: keys.first().map(|key| (*key).to_owned()),
        ..list(items)
    }
}

pub fn atomic_map(map: Schema) -> Schema {
    Schema { map_type: Some(MapType::Atomic), ..map }
}

pub fn open() -> Schema {
    Schema { preserve_unknown_fields: true, ..scalar(Type::Object) }
}

pub fn with_default(schema: Schema, default: Value) -> Schema {
    Schema { default: Some(default), ..schema }
}

pub fn container() -> Schema {
    object([
        ("name", text()),
        ("image", text()),
        ("command", Schema { list_type: Some(ListType::Atomic), ..list(text()) }),
        ("env", list_map(&["name"], object([("name", text()), ("value", text())]))),
        (
            "ports",
            list_map(
                &["containerPort", "protocol"],
                object([
                    ("containerPort", number()),
                    ("protocol", with_default(text(), json!("TCP"))),
                    ("name", text()),
                ]),
            ),
        ),
        ("volumeMounts", list_map(&["mountPath"], object([("mountPath", text()), ("name", text())]))),
    ])
}

/// Enough of a Deployment for every way in which its fields merge.
pub fn deployment() -> Schema {
    let volume = object([("name", text()), ("emptyDir", open()), ("hostPath", object([("path", text())]))]);
    let volumes = Schema { patch_retain_keys: true, ..list_map(&["name"], volume) };
    let toleration = object([("key", text()), ("effect", text())]);
    let pod = object([
        ("containers", list_map(&["name"], container())),
        ("volumes", volumes),
        ("tolerations", Schema { list_type: Some(ListType::Atomic), ..list(toleration) }),
        ("nodeSelector", atomic_map(map_of(text()))),
    ]);
    let strategy = Schema {
        patch_retain_keys: true,
        ..object([("type", text()), ("rollingUpdate", object([("maxSurge", number())]))])
    };
    object([
        (
            "spec",
            object([
                ("replicas", number()),
                ("paused", scalar(Type::Boolean)),
                ("selector", atomic_map(map_of(text()))),
                ("strategy", strategy),
                ("template", object([("spec", pod)])),
            ]),
        ),
        ("status", object([("readyReplicas", number())])),
    ])
}

/// A kind with one field of every shape, flat.
pub fn everything() -> Schema {
    object([(
        "spec",
        object([
            ("number", number()),
            ("text", text()),
            ("map", map_of(text())),
            ("set", set(text())),
            ("items", list_map(&["name"], object([("name", text()), ("value", number()), ("other", text())]))),
            ("atomicList", list(text())),
            ("atomicMap", atomic_map(map_of(text()))),
            ("open", open()),
        ]),
    )])
}

pub fn manager(name: &str) -> Manager<'_> {
    at(name, "2030-01-01T00:00:00Z")
}

pub fn at<'a>(name: &'a str, time: &'a str) -> Manager<'a> {
    Manager { name, api_version: "example.com/v1", subresource: None, time }
}

pub fn object_with_spec(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "namespace": "n"}, "spec": spec})
}

/// The fields that a manager owns, by its `fieldsV1`; null if it owns nothing.
pub fn owned(object: &Value, name: &str, operation: &str) -> Value {
    entry(object, name, operation).map_or(Value::Null, |entry| entry["fieldsV1"].clone())
}

pub fn entry<'v>(object: &'v Value, name: &str, operation: &str) -> Option<&'v Value> {
    let entries = object["metadata"]["managedFields"].as_array()?;
    entries.iter().find(|entry| entry["manager"] == name && entry["operation"] == operation)
}
