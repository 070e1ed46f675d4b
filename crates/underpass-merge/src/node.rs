//! The schema as owners of fields see it: what is one value, what is made of fields, and what names an item of a list.
//!
//! A document without a schema, and everything below `x-kubernetes-preserve-unknown-fields`, has its type deduced from the
//! values: objects are made of fields, lists are one value.

use std::sync::LazyLock;

use serde_json::{Map, Value};
use underpass_schema::{AdditionalProperties, ListType, MapType, Schema, Type};

use crate::path::{PathElement, Scalar};

/// The schema at one place of a document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node<'s> {
    rules: Rules<'s>,
    /// Whether a parent said that fields beyond the declared ones are kept.
    open: bool,
}

#[derive(Debug, Clone, Copy)]
enum Rules<'s> {
    /// An object with `apiVersion`, `kind` and `metadata`, whether its schema declares them or not.
    Resource(&'s Schema),
    Plain(&'s Schema),
    Deduced,
}

/// One field of an object, as the schema sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldNode<'s> {
    pub(crate) node: Node<'s>,
    /// Declared by name: a struct's field, not a map's key.
    pub(crate) declared: bool,
    /// Declared by name or as an additional one, or the object takes anything.
    pub(crate) allowed: bool,
}

/// How owners share a value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape<'s> {
    /// One owner for all of it: a scalar, or an atomic list or map.
    Leaf,
    /// Owned field by field.
    Map,
    /// Owned item by item.
    List(ListRules<'s>),
}

/// What names an item of a list: key fields, or, without any, the item's own value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListRules<'s> {
    keys: &'s [String],
    pub(crate) item: Node<'s>,
}

impl<'s> Node<'s> {
    /// The root of an object of the API.
    pub(crate) fn resource(schema: &'s Schema) -> Self {
        Self { rules: Rules::Resource(schema), open: schema.preserve_unknown_fields }
    }

    pub(crate) fn schema(self) -> Option<&'s Schema> {
        match self.rules {
            Rules::Resource(schema) | Rules::Plain(schema) => Some(schema),
            Rules::Deduced => None,
        }
    }

    pub(crate) fn field(self, name: &str) -> FieldNode<'s> {
        match self.rules {
            Rules::Resource(schema) => match name {
                "metadata" => self.known(metadata(schema)),
                "apiVersion" | "kind" => self.known(&TEXT),
                _ => self.plain_field(schema, name),
            },
            Rules::Plain(schema) => self.plain_field(schema, name),
            Rules::Deduced => FieldNode { node: self, declared: false, allowed: true },
        }
    }

    /// What the items of a list are.
    pub(crate) fn item(self) -> Self {
        match self.schema().and_then(|schema| schema.items.as_deref()) {
            Some(item) => self.child(item),
            None => Self::deduced(),
        }
    }

    /// How a value at this place is shared. A value of the wrong type is one value.
    pub(crate) fn shape(self, value: &Value) -> Shape<'s> {
        let Some(schema) = self.schema() else {
            return if value.is_object() { Shape::Map } else { Shape::Leaf };
        };
        match (schema.type_, value) {
            (_, Value::Object(_)) | (Some(Type::Object), Value::Null) if takes(schema, Type::Object) => {
                if schema.map_type == Some(MapType::Atomic) { Shape::Leaf } else { Shape::Map }
            }
            (_, Value::Array(_)) | (Some(Type::Array), Value::Null) if takes(schema, Type::Array) => {
                self.list_rules(schema).map_or(Shape::Leaf, Shape::List)
            }
            _ => Shape::Leaf,
        }
    }

    /// The shapes of two values at the same place: `null` takes the shape of the other one.
    pub(crate) fn shapes(self, a: &Value, b: &Value) -> (Shape<'s>, Shape<'s>) {
        (self.shape(if a.is_null() { b } else { a }), self.shape(if b.is_null() { a } else { b }))
    }

    /// Whether the schema makes a container here one value, whatever is in it.
    pub(crate) fn is_one_value(self) -> bool {
        match self.schema() {
            Some(schema) if schema.type_ == Some(Type::Array) => self.list_rules(schema).is_none(),
            Some(schema) => schema.map_type == Some(MapType::Atomic),
            None => false,
        }
    }

    fn deduced() -> Self {
        Self { rules: Rules::Deduced, open: true }
    }

    fn child(self, schema: &'s Schema) -> Self {
        let rules = if schema.embedded_resource { Rules::Resource(schema) } else { Rules::Plain(schema) };
        Self { rules, open: self.open || schema.preserve_unknown_fields }
    }

    fn known(self, schema: &'s Schema) -> FieldNode<'s> {
        FieldNode { node: self.child(schema), declared: true, allowed: true }
    }

    fn plain_field(self, schema: &'s Schema, name: &str) -> FieldNode<'s> {
        if let Some(property) = schema.properties.get(name) {
            return self.known(property);
        }
        let (node, allowed) = match &schema.additional_properties {
            Some(AdditionalProperties::Schema(schema)) => (self.child(schema), true),
            Some(AdditionalProperties::Any(allowed)) => (Self::deduced(), *allowed),
            None => (Self::deduced(), self.open || schema.properties.is_empty()),
        };
        FieldNode { node, declared: false, allowed }
    }

    /// `None` if the list is one value. Kubernetes' oldest kinds say how to merge a list only for patches.
    fn list_rules(self, schema: &'s Schema) -> Option<ListRules<'s>> {
        let keys = match (schema.list_type, &schema.patch_merge_key) {
            (Some(ListType::Map), _) => schema.list_map_keys.as_slice(),
            (Some(ListType::Set), _) => &[],
            (None, Some(key)) if schema.patch_merge => std::slice::from_ref(key),
            (None, None) if schema.patch_merge => &[],
            _ => return None,
        };
        Some(ListRules { keys, item: self.item() })
    }
}

impl ListRules<'_> {
    /// The name of an item among its siblings, or why it has none.
    pub(crate) fn element(self, item: &Value) -> Result<PathElement, String> {
        if self.keys.is_empty() {
            return match item {
                Value::Null | Value::Array(_) | Value::Object(_) => Err("an item of a set must be a scalar".to_owned()),
                scalar => Ok(PathElement::Value(Scalar(scalar.clone()))),
            };
        }
        let item = item.as_object().ok_or("an item of an associative list must be an object")?;
        let mut key: Vec<_> = self.keys.iter().filter_map(|name| self.key_field(name, item)).collect();
        if key.is_empty() {
            return Err(format!("the item has none of the key fields {:?}, and they have no default", self.keys));
        }
        key.sort();
        Ok(PathElement::Key(key))
    }

    fn key_field(self, name: &str, item: &Map<String, Value>) -> Option<(String, Scalar)> {
        let default = || self.item.field(name).node.schema().and_then(|schema| schema.default.as_ref());
        let value = item.get(name).or_else(default)?;
        Some((name.to_owned(), Scalar(value.clone())))
    }
}

fn takes(schema: &Schema, type_: Type) -> bool {
    schema.type_.is_none_or(|own| own == type_)
}

/// A custom resource's schema says at most something about `name` in its metadata, never all of it.
fn metadata(schema: &Schema) -> &Schema {
    match schema.properties.get("metadata") {
        Some(own) if own.properties.contains_key("ownerReferences") => own,
        _ => &OBJECT_META,
    }
}

static TEXT: LazyLock<Schema> = LazyLock::new(|| scalar(Type::String));

static OBJECT_META: LazyLock<Schema> = LazyLock::new(|| {
    let text_map = Schema {
        additional_properties: Some(AdditionalProperties::Schema(Box::new(scalar(Type::String)))),
        ..object([])
    };
    let date = Schema { format: Some("date-time".to_owned()), ..scalar(Type::String) };
    object([
        ("annotations", text_map.clone()),
        ("creationTimestamp", date.clone()),
        ("deletionGracePeriodSeconds", scalar(Type::Integer)),
        ("deletionTimestamp", date),
        ("finalizers", Schema { list_type: Some(ListType::Set), patch_merge: true, ..list(scalar(Type::String)) }),
        ("generateName", scalar(Type::String)),
        ("generation", scalar(Type::Integer)),
        ("labels", text_map),
        ("managedFields", Schema { list_type: Some(ListType::Atomic), ..list(object([])) }),
        ("name", scalar(Type::String)),
        ("namespace", scalar(Type::String)),
        ("ownerReferences", owner_references()),
        ("resourceVersion", scalar(Type::String)),
        ("selfLink", scalar(Type::String)),
        ("uid", scalar(Type::String)),
    ])
});

fn owner_references() -> Schema {
    let fields = object([
        ("apiVersion", scalar(Type::String)),
        ("blockOwnerDeletion", scalar(Type::Boolean)),
        ("controller", scalar(Type::Boolean)),
        ("kind", scalar(Type::String)),
        ("name", scalar(Type::String)),
        ("uid", scalar(Type::String)),
    ]);
    Schema {
        list_type: Some(ListType::Map),
        list_map_keys: vec!["uid".to_owned()],
        patch_merge: true,
        patch_merge_key: Some("uid".to_owned()),
        ..list(Schema { map_type: Some(MapType::Atomic), ..fields })
    }
}

fn scalar(type_: Type) -> Schema {
    Schema { type_: Some(type_), ..Schema::default() }
}

fn object<const N: usize>(properties: [(&str, Schema); N]) -> Schema {
    let properties = properties.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    Schema { properties, ..scalar(Type::Object) }
}

fn list(items: Schema) -> Schema {
    Schema { items: Some(Box::new(items)), ..scalar(Type::Array) }
}
