//! Documents as rules see them: the schema says what a JSON value means.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;

use super::declare::{METADATA, escape};
use super::time::{parse_duration, parse_timestamp};
use super::value::{Key, List, Merge, Value};
use crate::{AdditionalProperties, ListType, Schema, Type};

/// The value of a node; `None` for what rules cannot look at, exactly where `declare` gives no type.
pub(crate) fn ingest(schema: &Schema, json: &Json, whole_object: bool) -> Option<Value> {
    if schema.type_.is_none() && !schema.int_or_string {
        return None;
    }
    match json {
        Json::Null => Some(Value::Null),
        Json::Bool(value) => Some(Value::Bool(*value)),
        Json::Number(_) => number(schema, json),
        Json::String(text) => Some(string(schema, text)),
        Json::Array(items) => list(schema, items),
        Json::Object(map) => object(schema, map, whole_object),
    }
}

fn number(schema: &Schema, json: &Json) -> Option<Value> {
    let float = json.as_f64()?;
    if schema.type_ == Some(Type::Number) {
        return Some(Value::Double(float));
    }
    // `1.0` is an integer in JSON.
    Some(match (json.as_i64(), json.as_u64()) {
        (Some(value), _) => Value::Int(value),
        (None, Some(value)) => Value::Uint(value),
        (None, None) if float.fract() == 0.0 && float.abs() < i64::MAX as f64 => Value::Int(float as i64),
        _ => Value::Double(float),
    })
}

/// A text that is not of its format stays a text: the format has been refused before rules run.
fn string(schema: &Schema, text: &str) -> Value {
    let special = match schema.format.as_deref() {
        Some("byte") => STANDARD.decode(text).ok().map(|bytes| Value::Bytes(bytes.into())),
        Some("duration") => parse_duration(text).map(Value::Duration),
        Some("date-time") => parse_timestamp(text).map(Value::Timestamp),
        Some("date") => parse_timestamp(&format!("{text}T00:00:00Z")).map(Value::Timestamp),
        _ => None,
    };
    special.unwrap_or_else(|| Value::string(text))
}

fn list(schema: &Schema, items: &[Json]) -> Option<Value> {
    let node = schema.items.as_deref()?;
    let items = items.iter().map(|item| ingest(node, item, node.embedded_resource)).collect::<Option<_>>()?;
    let merge = match schema.list_type {
        Some(ListType::Set) => Merge::Set,
        Some(ListType::Map) => {
            Merge::Map(schema.list_map_keys.iter().filter_map(|key| escape(key)).map(Arc::from).collect())
        }
        Some(ListType::Atomic) | None => Merge::Atomic,
    };
    Some(Value::List(Arc::new(List { items, merge })))
}

fn object(schema: &Schema, map: &serde_json::Map<String, Json>, whole_object: bool) -> Option<Value> {
    let mut fields = BTreeMap::new();
    if let Some(AdditionalProperties::Schema(node)) = &schema.additional_properties {
        for (name, value) in map {
            fields.insert(key(name), ingest(node, value, node.embedded_resource)?);
        }
        return Some(Value::Map(Arc::new(fields)));
    }
    for (name, node) in &schema.properties {
        let value = map.get(name).and_then(|value| ingest(node, value, node.embedded_resource));
        if let Some((name, value)) = escape(name).zip(value) {
            fields.insert(key(&name), value);
        }
    }
    if whole_object {
        identity(map, &mut fields);
    }
    Some(Value::Map(Arc::new(fields)))
}

fn identity(map: &serde_json::Map<String, Json>, fields: &mut BTreeMap<Key, Value>) {
    for name in ["apiVersion", "kind"] {
        if let Some(Json::String(text)) = map.get(name) {
            fields.insert(key(name), Value::string(text.as_str()));
        }
    }
    let given = |name: &str| map.get("metadata")?.get(name)?.as_str();
    let metadata = METADATA.iter().filter_map(|name| Some((key(name), Value::string(given(name)?))));
    fields.insert(key("metadata"), Value::Map(Arc::new(metadata.collect())));
}

fn key(name: &str) -> Key {
    Key::String(name.into())
}
