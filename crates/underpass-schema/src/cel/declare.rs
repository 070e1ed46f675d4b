//! What rules may name: the types that a schema declares.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::parser::RESERVED;
use super::types::Type;
use crate::{AdditionalProperties, Schema, Type as SchemaType};

/// The type that rules see for a node; `None` for what has no declared shape, which rules cannot look at.
/// A whole object always has its identity: `apiVersion`, `kind`, `metadata.name`, `metadata.generateName`.
pub(crate) fn declare(schema: &Schema, whole_object: bool) -> Option<Type> {
    if schema.int_or_string {
        return Some(Type::Dyn);
    }
    Some(match schema.type_? {
        SchemaType::Boolean => Type::BOOL,
        SchemaType::Integer => Type::INT,
        SchemaType::Number => Type::DOUBLE,
        SchemaType::String => match schema.format.as_deref() {
            Some("byte") => Type::BYTES,
            Some("duration") => Type::DURATION,
            Some("date" | "date-time") => Type::TIMESTAMP,
            _ => Type::STRING,
        },
        SchemaType::Array => {
            let items = schema.items.as_deref()?;
            Type::list(declare(items, items.embedded_resource)?)
        }
        SchemaType::Object => object(schema, whole_object)?,
    })
}

fn object(schema: &Schema, whole_object: bool) -> Option<Type> {
    if let Some(AdditionalProperties::Schema(value)) = &schema.additional_properties {
        return Some(Type::map(Type::STRING, declare(value, value.embedded_resource)?));
    }
    let mut fields: BTreeMap<String, Type> = schema
        .properties
        .iter()
        .filter_map(|(name, field)| Some((escape(name)?, declare(field, field.embedded_resource)?)))
        .collect();
    if whole_object {
        fields.insert("apiVersion".to_owned(), Type::STRING);
        fields.insert("kind".to_owned(), Type::STRING);
        let metadata = METADATA.map(|name| (name.to_owned(), Type::STRING));
        fields.insert("metadata".to_owned(), Type::Object(Arc::new(BTreeMap::from(metadata))));
    }
    Some(Type::Object(Arc::new(fields)))
}

/// The part of an object's metadata that rules see.
pub(crate) const METADATA: [&str; 2] = ["generateName", "name"];

/// The name of a property as rules write it; `None` where there is no way to write it.
pub(crate) fn escape(name: &str) -> Option<String> {
    // `in`, `true` and the like; names of types and macros are fine.
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let writable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(writable) {
        return None;
    }
    let escaped = name.replace("__", "__underscores__");
    Some(escaped.replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__"))
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn names_are_escaped_as_kubernetes_does() {
        let cases = [
            ("plain", Some("plain")),
            ("namespace", Some("__namespace__")),
            ("int", Some("int")),
            ("a-b", Some("a__dash__b")),
            ("a.b/c", Some("a__dot__b__slash__c")),
            ("redact__d", Some("redact__underscores__d")),
            ("string", Some("string")),
            ("1a", None),
            ("a b", None),
            ("", None),
        ];
        for (name, want) in cases {
            assert_eq!(escape(name).as_deref(), want, "{name}");
        }
    }
}
