//! Lists and what `x-kubernetes-list-type` asks of them.

use serde_json::json;

use super::Check;
use crate::{ListType, MapType, Path, Schema, Type};

impl Check {
    pub(super) fn list(&mut self, schema: &Schema, path: &Path) {
        if schema.type_ == Some(Type::Array) && schema.items.is_none() {
            self.required(&path.field("items"), "must be specified");
        }
        if schema.unique_items {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.forbidden(&path.field("uniqueItems"), detail);
        }
        if schema.list_type.is_some() {
            self.type_for(schema, Type::Array, path, "must be array if x-kubernetes-list-type is specified");
        }
        match (schema.list_type, schema.items.as_deref()) {
            (Some(ListType::Map), Some(items)) => self.list_map(schema, items, path),
            (Some(ListType::Set), Some(items)) => self.list_set(items, &path.field("items")),
            _ => {}
        }
        self.keys_need_a_map(schema, path);
    }

    fn keys_need_a_map(&mut self, schema: &Schema, path: &Path) {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        let path = path.field("x-kubernetes-list-type");
        match schema.list_type {
            _ if schema.list_map_keys.is_empty() => {}
            Some(ListType::Map) => {}
            Some(other) => self.invalid(&path, &json!(other.as_str()), detail),
            None => self.required(&path, detail),
        }
    }

    fn list_map(&mut self, schema: &Schema, items: &Schema, path: &Path) {
        let (keys, below) = (path.field("x-kubernetes-list-map-keys"), path.field("items"));
        if schema.list_map_keys.is_empty() {
            self.required(&keys, "must not be empty if x-kubernetes-list-type is map");
        }
        if items.type_ != Some(Type::Object) {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            self.invalid(&below.field("type"), &json!(items.type_name()), detail);
        }
        if items.nullable {
            let detail = "cannot be nullable when x-kubernetes-list-type is map";
            self.forbidden(&below.field("nullable"), detail);
        }
        if (1..schema.list_map_keys.len()).any(|at| schema.list_map_keys[..at].contains(&schema.list_map_keys[at])) {
            self.invalid(&keys, &json!(schema.list_map_keys), "must not contain duplicate entries");
        }
        for key in &schema.list_map_keys {
            match items.properties.get(key) {
                Some(node) => self.list_map_key(items, key, node, &below.field("properties").key(key)),
                None => {
                    let detail = "entries must all be names of item properties";
                    self.invalid(&keys, &json!(schema.list_map_keys), detail);
                }
            }
        }
    }

    fn list_map_key(&mut self, items: &Schema, key: &str, node: &Schema, path: &Path) {
        let because = "this property is in x-kubernetes-list-map-keys, so it";
        if matches!(node.type_, Some(Type::Object | Type::Array)) {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            self.invalid(&path.field("type"), &json!(node.type_name()), detail);
        }
        if node.nullable {
            self.forbidden(&path.field("nullable"), &format!("{because} cannot be nullable"));
        }
        if !items.required.iter().any(|name| name == key) && node.default.is_none() {
            self.required(&path.field("default"), &format!("{because} must have a default or be a required property"));
        }
    }

    fn list_set(&mut self, items: &Schema, path: &Path) {
        if items.nullable {
            self.forbidden(&path.field("nullable"), "cannot be nullable when x-kubernetes-list-type is set");
        }
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        // A list is atomic unless it says otherwise; a map is not.
        if let (Some(Type::Array), Some(type_ @ (ListType::Set | ListType::Map))) = (items.type_, items.list_type) {
            self.invalid(&path.field("x-kubernetes-list-type"), &json!(type_.as_str()), detail);
        }
        if items.type_ == Some(Type::Object) && items.map_type != Some(MapType::Atomic) {
            let given = json!(items.map_type.map_or("", MapType::as_str));
            self.invalid(&path.field("x-kubernetes-map-type"), &given, detail);
        }
    }
}
