//! Drops what the schema does not declare, and says what was dropped.

use serde_json::{Map, Value};

use crate::{AdditionalProperties, Schema, Type};

/// What every object has, whether its schema says so or not.
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Schema {
    /// Removes unknown fields and returns their paths as strict decoding prints them: `spec.foo`, `spec.list[0].bar`.
    pub fn prune(&self, value: &mut Value) -> Vec<String> {
        self.prune_as(value, self.embedded_resource)
    }

    /// Like [`Schema::prune`], for a whole object: `apiVersion`, `kind` and `metadata` stay, declared or not.
    pub fn prune_object(&self, value: &mut Value) -> Vec<String> {
        self.prune_as(value, true)
    }

    fn prune_as(&self, value: &mut Value, whole_object: bool) -> Vec<String> {
        let mut pruner = Pruner { path: String::new(), dropped: Vec::new() };
        pruner.prune(self, value, whole_object);
        pruner.dropped
    }
}

struct Pruner {
    path: String,
    dropped: Vec<String>,
}

impl Pruner {
    fn prune(&mut self, schema: &Schema, value: &mut Value, whole_object: bool) {
        match value {
            Value::Object(map) => self.prune_map(schema, map, whole_object),
            Value::Array(items) => {
                let Some(schema) = schema.items.as_deref() else {
                    return self.clear_items(schema, items);
                };
                for (index, item) in items.iter_mut().enumerate() {
                    self.within(&format!("[{index}]"), |pruner| pruner.prune(schema, item, schema.embedded_resource));
                }
            }
            _ => {}
        }
    }

    /// A list where none was declared keeps its scalars (validation names the wrong type), but nothing undeclared inside.
    fn clear_items(&mut self, schema: &Schema, items: &mut [Value]) {
        if schema.preserve_unknown_fields {
            return;
        }
        for (index, item) in items.iter_mut().enumerate() {
            self.within(&format!("[{index}]"), |pruner| pruner.prune(&Schema::default(), item, false));
        }
    }

    fn prune_map(&mut self, schema: &Schema, map: &mut Map<String, Value>, whole_object: bool) {
        let keep_unknown = schema.keeps_unknown();
        let mut unknown = Vec::new();
        for (name, value) in map.iter_mut() {
            // The type of an object's metadata is checked by the server; a schema can only narrow its names.
            if whole_object && OBJECT_FIELDS.contains(&name.as_str()) {
                continue;
            }
            match schema.field(name) {
                Some(field) => {
                    self.within(&format!(".{name}"), |pruner| pruner.prune(field, value, field.embedded_resource));
                }
                None if keep_unknown => {}
                None => unknown.push(name.clone()),
            }
        }
        for name in unknown {
            map.remove(&name);
            let path = format!("{}.{name}", self.path);
            self.dropped.push(path.trim_start_matches('.').to_owned());
        }
    }

    fn within(&mut self, step: &str, visit: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push_str(step);
        visit(self);
        self.path.truncate(length);
    }
}

impl Schema {
    /// Whether fields that are not declared stay.
    fn keeps_unknown(&self) -> bool {
        self.preserve_unknown_fields || matches!(self.additional_properties, Some(AdditionalProperties::Any(true)))
    }

    /// The JSON type that this node admits, for messages.
    pub(crate) fn type_name(&self) -> &'static str {
        self.type_.map_or("", Type::as_str)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Path;

    fn schema(json: &Value) -> Schema {
        Schema::parse(json, &Path::root()).unwrap()
    }

    #[test]
    fn drops_and_names_what_is_not_declared() {
        let schema = schema(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "a": {"type": "string"},
                "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
                "map": {"type": "object", "additionalProperties":
                    {"type": "object", "properties": {"y": {"type": "integer"}}}},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"shut": {"type": "object"}}},
                "any": {"type": "object", "additionalProperties": true},
                "int": {"x-kubernetes-int-or-string": true},
            }},
        }}));
        let mut value = json!({"apiVersion": "v1", "kind": "K", "metadata": {"x": 1}, "status": {}, "spec": {
            "a": "1", "foo": 1,
            "list": [{"x": 1, "bar": 2}, {"baz": 1}],
            "map": {"k": {"y": 1, "z": 2}},
            "open": {"free": {"deep": 1}, "shut": {"gone": 1}},
            "any": {"thing": {"deep": 1}},
            "int": {"gone": 1},
        }});
        let dropped = schema.prune_object(&mut value);
        assert_eq!(
            dropped,
            [
                "spec.int.gone",
                "spec.list[0].bar",
                "spec.list[1].baz",
                "spec.map.k.z",
                "spec.open.shut.gone",
                "spec.foo",
                "status"
            ]
        );
        assert_eq!(
            value,
            json!({"apiVersion": "v1", "kind": "K", "metadata": {"x": 1}, "spec": {
                "a": "1", "list": [{"x": 1}, {}], "map": {"k": {"y": 1}},
                "open": {"free": {"deep": 1}, "shut": {}}, "any": {"thing": {"deep": 1}}, "int": {},
            }})
        );
    }

    #[test]
    fn embedded_resources_keep_their_identity() {
        let schema = schema(&json!({"type": "object", "properties": {"template": {
            "type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}}}}));
        let mut value = json!({"template":
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}, "other": 1}});
        assert_eq!(schema.prune(&mut value), ["template.other"]);
    }
}
