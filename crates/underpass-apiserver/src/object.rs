//! The few questions that the server asks of any object's metadata, over plain JSON.

use serde_json::{Map, Value, json};
use underpass_store::Template;

/// An object is a JSON map with `metadata`; decoding made sure of it.
pub(crate) type Object = Value;

pub(crate) fn text<'a>(object: &'a Object, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn name(object: &Object) -> &str {
    text(object, "/metadata/name")
}

pub(crate) fn namespace(object: &Object) -> &str {
    text(object, "/metadata/namespace")
}

pub(crate) fn uid(object: &Object) -> &str {
    text(object, "/metadata/uid")
}

pub(crate) fn resource_version(object: &Object) -> &str {
    text(object, "/metadata/resourceVersion")
}

pub(crate) fn generation(object: &Object) -> i64 {
    object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0)
}

pub(crate) fn is_being_deleted(object: &Object) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|v| !v.is_null())
}

pub(crate) fn finalizers(object: &Object) -> Vec<&str> {
    strings(object, "/metadata/finalizers")
}

pub(crate) fn strings<'a>(object: &'a Object, pointer: &str) -> Vec<&'a str> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

pub(crate) fn owner_references(object: &Object) -> &[Value] {
    object.pointer("/metadata/ownerReferences").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// `metadata` as a map; created when absent, replaced when it is no map (decoding refuses that earlier).
pub(crate) fn metadata_mut(object: &mut Object) -> &mut Map<String, Value> {
    if !object.get("metadata").is_some_and(Value::is_object) {
        object["metadata"] = json!({});
    }
    object["metadata"].as_object_mut().expect("metadata was just made a map")
}

/// Copies one metadata field from `from`, or removes it where `from` has none.
pub(crate) fn keep_metadata(object: &mut Object, from: &Object, field: &str) {
    let kept = from.get("metadata").and_then(|m| m.get(field)).cloned();
    let metadata = metadata_mut(object);
    match kept {
        Some(value) => metadata.insert(field.to_owned(), value),
        None => metadata.remove(field),
    };
}

/// Copies one top-level field from `from`, or removes it where `from` has none.
pub(crate) fn keep_field(object: &mut Object, from: &Object, field: &str) {
    let Some(map) = object.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

/// The key of an object in its bucket.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// Writes objects for the store, which fills in the revision when it is known.
pub(crate) struct Encoder {
    /// Stands for the resourceVersion while the object is serialised. Random, so that no client can write it into an object
    /// and have the hole found in the wrong place.
    mark: String,
}

impl Encoder {
    pub(crate) fn new() -> Self {
        Self { mark: uuid::Uuid::new_v4().simple().to_string() }
    }

    pub(crate) fn template(&self, object: &mut Object) -> Template {
        metadata_mut(object).insert("resourceVersion".to_owned(), json!(self.mark));
        let mut bytes = serde_json::to_vec(object).expect("a JSON value can be written");
        let hole = find(&bytes, self.mark.as_bytes());
        if let Some(at) = hole {
            bytes.drain(at..at + self.mark.len());
        }
        Template { bytes, hole }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
