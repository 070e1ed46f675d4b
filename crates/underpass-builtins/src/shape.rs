//! Documents as Kubernetes' own types would write them again.
//!
//! There every document passes through a typed value: a null field is an absent one, a null among the values of a map or the items of a
//! list is the empty value, and an empty map or list is not written at all. Clients compare what they sent with what they read, and
//! owners of fields are counted by what is written, so the same has to come out here, where documents stay JSON.

use serde_json::{Value, json};
use underpass_schema::{AdditionalProperties, Schema, Type};

/// The lists at the top of an EndpointSlice are written even when they are empty, although the schema does not require them (see `tree`).
const ALWAYS_WRITTEN: &[&str] = &["endpoints", "ports"];
const ENDPOINT_SLICE_MARK: &str = "addressType";

/// Nulls become absent or empty, by where they stand. What the schema does not declare is left alone.
pub fn settle_nulls(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, field| !field.is_null() || !schema.properties.contains_key(name));
            for (name, field) in fields.iter_mut() {
                if let Some(declared) = schema.field(name) {
                    settle(declared, field);
                }
            }
        }
        Value::Array(items) => {
            if let Some(declared) = schema.items.as_deref() {
                items.iter_mut().for_each(|item| settle(declared, item));
            }
        }
        _ => {}
    }
}

fn settle(schema: &Schema, value: &mut Value) {
    if value.is_null()
        && let Some(empty) = empty_value(schema)
    {
        *value = empty;
    }
    settle_nulls(schema, value);
}

fn empty_value(schema: &Schema) -> Option<Value> {
    if schema.int_or_string {
        return Some(json!("0"));
    }
    match schema.type_? {
        Type::String if schema.format.as_deref().is_none_or(|format| format == "byte") => Some(json!("")),
        Type::String => None,
        Type::Integer | Type::Number => Some(json!(0)),
        Type::Boolean => Some(json!(false)),
        Type::Object => Some(json!({})),
        Type::Array => Some(json!([])),
    }
}

/// Drops the maps and lists that hold nothing, unless the schema requires them.
pub fn omit_empty(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if let Some(declared) = schema.field(name) {
                    omit_empty(declared, field);
                }
            }
            fields.retain(|name, field| !is_omitted(schema, name, field));
        }
        Value::Array(items) => {
            if let Some(declared) = schema.items.as_deref() {
                items.iter_mut().for_each(|item| omit_empty(declared, item));
            }
        }
        _ => {}
    }
}

/// An empty struct (`emptyDir: {}`) says something, an empty map or list does not.
fn is_omitted(schema: &Schema, name: &str, field: &Value) -> bool {
    let Some(declared) = schema.properties.get(name) else { return false };
    let empty = match field {
        Value::Object(fields) => fields.is_empty() && is_map(declared),
        Value::Array(items) => items.is_empty() && declared.items.is_some() && !is_always_written(schema, name),
        _ => false,
    };
    empty && !schema.required.iter().any(|required| required == name)
}

fn is_always_written(schema: &Schema, name: &str) -> bool {
    ALWAYS_WRITTEN.contains(&name) && schema.properties.contains_key(ENDPOINT_SLICE_MARK)
}

fn is_map(schema: &Schema) -> bool {
    matches!(schema.additional_properties, Some(AdditionalProperties::Schema(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::all;

    fn settled(kind: &str, mut object: Value) -> Value {
        let schema = all().iter().find(|builtin| builtin.kind == kind).unwrap().schema();
        settle_nulls(schema, &mut object);
        omit_empty(schema, &mut object);
        object
    }

    #[test]
    fn a_null_in_a_map_or_list_is_the_empty_value_and_elsewhere_absent() {
        let object = json!({
            "metadata": {"name": null, "labels": {"a": null}, "annotations": null, "finalizers": [null]},
            "data": {"a": null}, "immutable": null, "unknown": null,
        });
        let expected = json!({
            "metadata": {"labels": {"a": ""}, "finalizers": [""]}, "data": {"a": ""}, "unknown": null,
        });
        assert_eq!(settled("ConfigMap", object), expected);
        assert_eq!(settled("Secret", json!({"data": {"a": null}})), json!({"data": {"a": ""}}));
        let container = json!({"name": "c", "args": [null], "resources": {"limits": {"cpu": null}}});
        let expected = json!({"name": "c", "args": [""], "resources": {"limits": {"cpu": "0"}}});
        assert_eq!(
            settled("Pod", json!({"spec": {"containers": [container]}})),
            json!({"spec": {"containers": [expected]}})
        );
    }

    #[test]
    fn what_holds_nothing_is_not_written() {
        let object = json!({"metadata": {"labels": {}, "finalizers": [], "ownerReferences": []}, "data": {}});
        assert_eq!(settled("ConfigMap", object), json!({"metadata": {}}));
        let pod = json!({"spec": {"containers": [], "volumes": [{"name": "v", "emptyDir": {}}], "nodeSelector": {}}});
        assert_eq!(
            settled("Pod", pod),
            json!({"spec": {"containers": [], "volumes": [{"name": "v", "emptyDir": {}}]}})
        );
        let slice = json!({"addressType": "IPv4", "endpoints": [], "ports": []});
        assert_eq!(settled("EndpointSlice", slice.clone()), slice);
    }

    #[test]
    fn a_schema_keeps_its_nulls() {
        let object = json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"default": null, "required": []}}}]}});
        let mut settled_object = object.clone();
        let schema = all().iter().find(|builtin| builtin.kind == "CustomResourceDefinition").unwrap().schema();
        settle_nulls(schema, &mut settled_object);
        omit_empty(schema, &mut settled_object);
        assert_eq!(settled_object, object);
    }
}
