//! How large the values of a schema can be, as the estimate of costs needs it: from its bounds, and where it has none from the size of
//! a request.

use std::collections::BTreeMap;

use super::declare::{METADATA, escape};
use crate::{AdditionalProperties, Schema, Type};

/// Bytes of a request, which nothing in it can exceed; Kubernetes' own number.
const REQUEST_BYTES: u64 = 3 << 20;
/// The longest text in a request: the rest are its quotes.
const LONGEST_TEXT: u64 = REQUEST_BYTES - 2;
/// `maxLength` counts characters, and costs count bytes.
const BYTES_PER_CHARACTER: u64 = 4;

/// What a rule may meet at one node.
#[derive(Debug)]
pub(crate) struct Shape {
    /// Of a text its bytes, of a list or map its items; 0 for what has no size.
    pub(crate) most: u64,
    /// The bytes of the shortest JSON text of such a value.
    least_bytes: u64,
    pub(crate) parts: Parts,
}

#[derive(Debug)]
pub(crate) enum Parts {
    Scalar,
    Text,
    Bytes,
    List(Box<Shape>),
    Map(Box<Shape>),
    Object(BTreeMap<String, Shape>),
    Any,
}

/// Kubernetes gives the keys of maps no size.
pub(crate) const KEY: Shape = Shape { most: 0, least_bytes: 2, parts: Parts::Text };

impl Shape {
    /// The shape of what `declare` gives a type to.
    pub(crate) fn of(schema: &Schema, whole_object: bool) -> Option<Self> {
        if schema.int_or_string {
            return Some(Self {
                most: Self::longest(schema).unwrap_or(LONGEST_TEXT),
                least_bytes: 1,
                parts: Parts::Any,
            });
        }
        let scalar = |least_bytes| Self { most: 0, least_bytes, parts: Parts::Scalar };
        Some(match schema.type_? {
            Type::Boolean => scalar(4),
            Type::Integer | Type::Number => scalar(1),
            Type::String => Self::text(schema),
            Type::Array => {
                let items = schema.items.as_deref()?;
                let item = Self::of(items, items.embedded_resource)?;
                let most = schema.max_items.unwrap_or(LONGEST_TEXT / (item.least_bytes + 1));
                Self { most, least_bytes: 2, parts: Parts::List(Box::new(item)) }
            }
            Type::Object => Self::object(schema, whole_object)?,
        })
    }

    fn text(schema: &Schema) -> Self {
        // The longest and shortest forms of what has a fixed one.
        let (most, least_bytes, parts) = match schema.format.as_deref() {
            Some("byte") => (schema.max_length.unwrap_or(LONGEST_TEXT), 2, Parts::Bytes),
            Some("duration") => (32, 3, Parts::Scalar),
            Some("date") => (12, 12, Parts::Scalar),
            Some("date-time") => (37, 21, Parts::Scalar),
            _ => {
                let listed = schema.enum_.iter().filter_map(|value| value.as_str()).map(|text| text.len() as u64).max();
                (Self::longest(schema).or(listed).unwrap_or(LONGEST_TEXT), 2, Parts::Text)
            }
        };
        Self { most, least_bytes, parts }
    }

    fn longest(schema: &Schema) -> Option<u64> {
        schema.max_length.map(|length| length.saturating_mul(BYTES_PER_CHARACTER))
    }

    fn object(schema: &Schema, whole_object: bool) -> Option<Self> {
        if let Some(AdditionalProperties::Schema(values)) = &schema.additional_properties {
            let value = Self::of(values, values.embedded_resource)?;
            // The quotes of a key, a colon, a comma and the braces.
            let most = schema.max_properties.unwrap_or(LONGEST_TEXT / (value.least_bytes + 6));
            return Some(Self { most, least_bytes: 2, parts: Parts::Map(Box::new(value)) });
        }
        let (mut fields, mut least_bytes) = (BTreeMap::new(), 2);
        for (name, field) in &schema.properties {
            let Some(shape) = Self::of(field, field.embedded_resource) else { continue };
            if schema.required.contains(name) && field.default.is_none() {
                least_bytes += name.len() as u64 + shape.least_bytes + 4;
            }
            fields.extend(escape(name).map(|name| (name, shape)));
        }
        if whole_object {
            let text = || Self { most: LONGEST_TEXT, least_bytes: 2, parts: Parts::Text };
            let identity = Parts::Object(METADATA.map(|name| (name.to_owned(), text())).into());
            fields.entry("apiVersion".to_owned()).or_insert_with(text);
            fields.entry("kind".to_owned()).or_insert_with(text);
            fields.insert("metadata".to_owned(), Self { most: 0, least_bytes: 2, parts: identity });
        }
        Some(Self { most: 0, least_bytes, parts: Parts::Object(fields) })
    }

    /// How often such a value can stand in one request, where nothing else bounds it.
    pub(crate) fn most_in_a_request(&self) -> u64 {
        REQUEST_BYTES / (self.least_bytes + 1)
    }

    pub(crate) fn field(&self, name: &str) -> Option<&Self> {
        match &self.parts {
            Parts::Object(fields) => fields.get(name),
            Parts::Map(value) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn item(&self) -> Option<&Self> {
        match &self.parts {
            Parts::List(item) | Parts::Map(item) => Some(item),
            _ => None,
        }
    }
}
