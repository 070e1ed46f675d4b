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
        let mut pruner = Pruner { dropped: Vec::new(), bytes: 0 };
        pruner.prune(self, value, whole_object, &Step::Root);
        pruner.dropped
    }
}

/// Strict decoding names so many fields and no more, as Kubernetes does.
const MOST_NAMED: usize = 100;
/// The first is always named, and the next ones while all names together are not longer than this: below a long key every name
/// is long.
const MOST_BYTES: usize = 64 << 10;

/// The way to a node, kept as steps: it is written out only for what is dropped.
enum Step<'a> {
    Root,
    Field(&'a Step<'a>, &'a str),
    Item(&'a Step<'a>, usize),
}

impl Step<'_> {
    fn write(&self, path: &mut String) {
        match self {
            Self::Root => {}
            Self::Field(before, name) => {
                before.write(path);
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
            }
            Self::Item(before, index) => {
                before.write(path);
                path.push_str(&format!("[{index}]"));
            }
        }
    }
}

struct Pruner {
    dropped: Vec<String>,
    bytes: usize,
}

impl Pruner {
    fn prune(&mut self, schema: &Schema, value: &mut Value, whole_object: bool, at: &Step<'_>) {
        match value {
            Value::Object(map) => self.prune_map(schema, map, whole_object, at),
            Value::Array(items) => {
                let Some(schema) = schema.items.as_deref() else {
                    return self.clear_items(schema, items, at);
                };
                for (index, item) in items.iter_mut().enumerate() {
                    self.prune(schema, item, schema.embedded_resource, &Step::Item(at, index));
                }
            }
            _ => {}
        }
    }

    /// A list where none was declared keeps its scalars (validation names the wrong type), but nothing undeclared inside.
    fn clear_items(&mut self, schema: &Schema, items: &mut [Value], at: &Step<'_>) {
        if schema.preserve_unknown_fields {
            return;
        }
        for (index, item) in items.iter_mut().enumerate() {
            self.prune(&Schema::default(), item, false, &Step::Item(at, index));
        }
    }

    fn prune_map(&mut self, schema: &Schema, map: &mut Map<String, Value>, whole_object: bool, at: &Step<'_>) {
        let keep_unknown = schema.keeps_unknown();
        let mut unknown = Vec::new();
        for (name, value) in map.iter_mut() {
            // The type of an object's metadata is checked by the server; a schema can only narrow its names.
            if whole_object && OBJECT_FIELDS.contains(&name.as_str()) {
                continue;
            }
            match schema.field(name) {
                Some(field) => self.prune(field, value, field.embedded_resource, &Step::Field(at, name)),
                None if keep_unknown => {}
                None => unknown.push(name.clone()),
            }
        }
        for name in unknown {
            map.remove(&name);
            self.name(&Step::Field(at, &name));
        }
    }

    fn name(&mut self, dropped: &Step<'_>) {
        if self.dropped.len() < MOST_NAMED && self.bytes < MOST_BYTES {
            let mut path = String::new();
            dropped.write(&mut path);
            self.bytes += path.len();
            self.dropped.push(path);
        }
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

    /// With a path built for every value, a megabyte of key above a hundred thousand values would be copied as often.
    #[test]
    fn a_long_key_costs_its_length_once() {
        let schema = schema(&json!({"type": "object", "additionalProperties":
            {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}}}));
        let items = vec![json!({"x": 1, "y": 2}); 100_000];
        let mut value = json!({ "k".repeat(1 << 20): items });
        let begun = std::time::Instant::now();
        let dropped = schema.prune(&mut value);
        assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
        assert_eq!(dropped.len(), 1);
        assert!(dropped[0].ends_with("k[0].y"));
        assert!(value.to_string().find('y').is_none(), "what is not named is dropped all the same");
    }

    #[test]
    fn a_hundred_are_named() {
        let mut value: Value = (0..200).map(|n| (format!("f{n}"), json!(1))).collect::<Map<_, _>>().into();
        assert_eq!(schema(&json!({"type": "object"})).prune(&mut value).len(), 100);
        assert_eq!(value, json!({}));
    }
}
