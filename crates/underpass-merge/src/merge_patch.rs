//! JSON Merge Patch (RFC 7386).

use serde_json::{Map, Value};

/// The document with the patch merged in: objects merge, `null` removes, everything else replaces.
#[must_use]
pub fn merge_patch(document: Value, patch: &Value) -> Value {
    let Value::Object(changes) = patch else { return patch.clone() };
    let mut fields = match document {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            let merged = merge_patch(fields.remove(name).unwrap_or_default(), change);
            fields.insert(name.clone(), merged);
        }
    }
    Value::Object(fields)
}
