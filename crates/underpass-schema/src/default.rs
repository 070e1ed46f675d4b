//! Fills what a document leaves out.

use serde_json::{Map, Value};

use crate::Schema;

impl Schema {
    /// Writes declared defaults into `value`.
    ///
    /// A key that is absent gets its default. A `null` where the field is not nullable counts as absent: it is replaced by the
    /// default, and dropped where there is none. A parent without a default of its own is never created for the sake of its fields.
    pub fn default_into(&self, value: &mut Value) {
        match value {
            Value::Object(map) => self.default_map(map),
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    items.iter_mut().for_each(|item| schema.default_into(item));
                }
            }
            _ => {}
        }
    }

    fn default_map(&self, map: &mut Map<String, Value>) {
        map.retain(|name, value| !value.is_null() || self.field(name).is_none_or(Schema::admits_null));
        for (name, field) in &self.properties {
            if let Some(default) = &field.default {
                map.entry(name.as_str()).or_insert_with(|| default.clone());
            }
        }
        for (name, value) in map.iter_mut() {
            if let Some(field) = self.field(name) {
                field.default_into(value);
            }
        }
    }

    /// A node without a type declares nothing about null either (int-or-string does: neither is null).
    fn admits_null(&self) -> bool {
        self.nullable || (self.type_.is_none() && !self.int_or_string)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Path;

    #[test]
    fn fills_and_replaces() {
        let schema = Schema::parse(
            &json!({"type": "object", "properties": {
                "foo": {"type": "string", "default": "x"},
                "bar": {"type": "string", "nullable": true},
                "baz": {"type": "string"},
                "kept": {"type": "string", "nullable": true, "default": "y"},
                "open": {"x-kubernetes-preserve-unknown-fields": true},
                "parent": {"type": "object", "properties": {"child": {"type": "integer", "default": 1}}},
                "made": {"type": "object", "default": {}, "properties": {"child": {"type": "integer", "default": 2}}},
                "list": {"type": "array", "items":
                    {"type": "object", "properties": {"p": {"type": "string", "default": "TCP"}}}},
                "map": {"type": "object", "additionalProperties":
                    {"type": "object", "properties": {"q": {"type": "boolean", "default": true}}}},
            }}),
            &Path::root(),
        )
        .unwrap();
        let cases = [
            (json!({}), json!({"foo": "x", "kept": "y", "made": {"child": 2}})),
            (
                json!({"foo": null, "bar": null, "baz": null, "kept": null, "open": null, "made": {"child": 5}}),
                json!({"foo": "x", "bar": null, "kept": null, "open": null, "made": {"child": 5}}),
            ),
            (
                json!({"parent": {}, "list": [{}, {"p": "UDP"}, 3], "map": {"a": {}, "b": null}}),
                json!({"foo": "x", "kept": "y", "made": {"child": 2}, "parent": {"child": 1},
                    "list": [{"p": "TCP"}, {"p": "UDP"}, 3], "map": {"a": {"q": true}}}),
            ),
        ];
        for (mut given, want) in cases {
            schema.default_into(&mut given);
            assert_eq!(given, want);
        }
    }
}
