//! OpenAPI v2 in protobuf, the only form that Go clients ask for: kubectl for objects of kind List, and everything that is built on
//! client-go's `OpenAPISchema`.
//!
//! The messages are tables: a key of the JSON document, the number of its field, how the value is written. The numbers are those of
//! gnostic's `OpenAPIv2.proto`; keys that are not in a table are not written. A generated encoder was rejected: it needs a compiler
//! at build time for what is one page here.

use serde_json::Value;

/// The fields of a message in the order of their numbers, and the number for keys that start with `x-` (0: none).
struct Message {
    fields: &'static [(&'static str, u32, Kind)],
    extensions: u32,
}

/// How the value of a key is written.
enum Kind {
    Text,
    Texts,
    Bool,
    Integer,
    Double,
    /// Any JSON value: a message with its YAML, of which JSON is a part.
    Any,
    Anys,
    One(&'static Message),
    /// A message whose field with this number repeats (name, value) pairs.
    Named(u32, &'static Message),
    Special(fn(&Value) -> Vec<u8>),
    EachSpecial(fn(&Value) -> Vec<u8>),
}

static DOCUMENT: Message = Message {
    fields: &[
        ("swagger", 1, Kind::Text),
        ("info", 2, Kind::One(&INFO)),
        ("paths", 8, Kind::Named(2, &PATH_ITEM)),
        ("definitions", 9, Kind::Named(1, &SCHEMA)),
    ],
    extensions: 0,
};
static INFO: Message = Message { fields: &[("title", 1, Kind::Text), ("version", 2, Kind::Text)], extensions: 0 };
static PATH_ITEM: Message = Message {
    fields: &[
        ("get", 2, Kind::One(&OPERATION)),
        ("put", 3, Kind::One(&OPERATION)),
        ("post", 4, Kind::One(&OPERATION)),
        ("delete", 5, Kind::One(&OPERATION)),
        ("patch", 8, Kind::One(&OPERATION)),
        ("parameters", 9, Kind::EachSpecial(parameter)),
    ],
    extensions: 10,
};
static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, Kind::Texts),
        ("description", 3, Kind::Text),
        ("operationId", 5, Kind::Text),
        ("produces", 6, Kind::Texts),
        ("consumes", 7, Kind::Texts),
        ("parameters", 8, Kind::EachSpecial(parameter)),
        ("responses", 9, Kind::Named(1, &RESPONSE_VALUE)),
        ("schemes", 10, Kind::Texts),
    ],
    extensions: 13,
};
static BODY_PARAMETER: Message = Message {
    fields: &[
        ("description", 1, Kind::Text),
        ("name", 2, Kind::Text),
        ("in", 3, Kind::Text),
        ("required", 4, Kind::Bool),
        ("schema", 5, Kind::One(&SCHEMA)),
    ],
    extensions: 6,
};
static QUERY_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Kind::Bool),
        ("in", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("name", 4, Kind::Text),
        ("type", 6, Kind::Text),
        ("uniqueItems", 20, Kind::Bool),
    ],
    extensions: 23,
};
static PATH_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Kind::Bool),
        ("in", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("name", 4, Kind::Text),
        ("type", 5, Kind::Text),
        ("uniqueItems", 19, Kind::Bool),
    ],
    extensions: 22,
};
/// A response or a reference to one; ours are responses.
static RESPONSE_VALUE: Message = Message { fields: &[("", 1, Kind::One(&RESPONSE))], extensions: 0 };
static RESPONSE: Message =
    Message { fields: &[("description", 1, Kind::Text), ("schema", 2, Kind::Special(schema_item))], extensions: 5 };
static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, Kind::Text),
        ("format", 2, Kind::Text),
        ("title", 3, Kind::Text),
        ("description", 4, Kind::Text),
        ("default", 5, Kind::Any),
        ("multipleOf", 6, Kind::Double),
        ("maximum", 7, Kind::Double),
        ("exclusiveMaximum", 8, Kind::Bool),
        ("minimum", 9, Kind::Double),
        ("exclusiveMinimum", 10, Kind::Bool),
        ("maxLength", 11, Kind::Integer),
        ("minLength", 12, Kind::Integer),
        ("pattern", 13, Kind::Text),
        ("maxItems", 14, Kind::Integer),
        ("minItems", 15, Kind::Integer),
        ("uniqueItems", 16, Kind::Bool),
        ("maxProperties", 17, Kind::Integer),
        ("minProperties", 18, Kind::Integer),
        ("required", 19, Kind::Texts),
        ("enum", 20, Kind::Anys),
        ("additionalProperties", 21, Kind::Special(additional_properties)),
        ("type", 22, Kind::Special(type_item)),
        ("items", 23, Kind::Special(items_item)),
        ("properties", 25, Kind::Named(1, &SCHEMA)),
    ],
    extensions: 31,
};

/// The document in protobuf.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    message(document, &DOCUMENT)
}

fn message(value: &Value, message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, number, kind) in message.fields {
        // The empty key stands for the value itself, where a message only wraps another.
        if let Some(value) = if key.is_empty() { Some(value) } else { value.get(key) } {
            field(&mut out, *number, kind, value);
        }
    }
    let extensions = value.as_object().into_iter().flatten().filter(|(key, _)| key.starts_with("x-"));
    for (key, value) in extensions.filter(|_| message.extensions > 0) {
        bytes(&mut out, message.extensions, &pair(key, &any(value)));
    }
    out
}

fn field(out: &mut Vec<u8>, number: u32, kind: &Kind, value: &Value) {
    let list = || value.as_array().into_iter().flatten();
    match kind {
        Kind::Text => bytes(out, number, value.as_str().unwrap_or_default().as_bytes()),
        Kind::Texts => list().filter_map(Value::as_str).for_each(|text| bytes(out, number, text.as_bytes())),
        Kind::Bool => varint_field(out, number, value.as_bool().unwrap_or_default().into()),
        Kind::Integer => varint_field(out, number, value.as_u64().unwrap_or_default()),
        Kind::Double => double(out, number, value.as_f64().unwrap_or_default()),
        Kind::Any => bytes(out, number, &any(value)),
        Kind::Anys => list().for_each(|value| bytes(out, number, &any(value))),
        Kind::One(inner) => bytes(out, number, &message(value, inner)),
        Kind::Named(entry, inner) => bytes(out, number, &named(value, *entry, inner)),
        Kind::Special(write) => bytes(out, number, &write(value)),
        Kind::EachSpecial(write) => list().for_each(|value| bytes(out, number, &write(value))),
    }
}

fn named(value: &Value, entry: u32, inner: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        bytes(&mut out, entry, &pair(name, &message(value, inner)));
    }
    out
}

fn pair(name: &str, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    bytes(&mut out, 1, name.as_bytes());
    bytes(&mut out, 2, value);
    out
}

fn any(value: &Value) -> Vec<u8> {
    wrap(2, value.to_string().as_bytes())
}

/// A parameter is wrapped once for "not a reference", and once or twice for the place that it stands in.
fn parameter(value: &Value) -> Vec<u8> {
    let non_body = |number, fields| wrap(2, &wrap(number, &message(value, fields)));
    let placed = match value.get("in").and_then(Value::as_str) {
        Some("body") => wrap(1, &message(value, &BODY_PARAMETER)),
        Some("path") => non_body(4, &PATH_PARAMETER),
        _ => non_body(3, &QUERY_PARAMETER),
    };
    wrap(1, &placed)
}

fn schema_item(value: &Value) -> Vec<u8> {
    wrap(1, &message(value, &SCHEMA))
}

fn items_item(value: &Value) -> Vec<u8> {
    wrap(1, &message(value, &SCHEMA))
}

fn type_item(value: &Value) -> Vec<u8> {
    wrap(1, value.as_str().unwrap_or_default().as_bytes())
}

fn additional_properties(value: &Value) -> Vec<u8> {
    let Value::Bool(allowed) = value else { return wrap(1, &message(value, &SCHEMA)) };
    let mut out = Vec::new();
    varint_field(&mut out, 2, (*allowed).into());
    out
}

/// A message that has one field.
fn wrap(number: u32, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 6);
    bytes(&mut out, number, content);
    out
}

fn bytes(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    varint(out, u64::from(number) << 3 | 2);
    varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

fn double(out: &mut Vec<u8>, number: u32, value: f64) {
    varint(out, u64::from(number) << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

fn varint_field(out: &mut Vec<u8>, number: u32, value: u64) {
    varint(out, u64::from(number) << 3);
    varint(out, value);
}

/// Seven bits per byte, the lowest first; the eighth says that more follow.
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The numbers and contents of a message's fields, read back by the rules of the wire format.
    fn fields(mut message: &[u8]) -> Vec<(u64, Vec<u8>)> {
        fn read(message: &mut &[u8]) -> u64 {
            let mut value = 0;
            for shift in (0..).step_by(7) {
                let byte = message[0];
                *message = &message[1..];
                value |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    break;
                }
            }
            value
        }
        let mut found = Vec::new();
        while !message.is_empty() {
            let tag = read(&mut message);
            let content = match tag & 7 {
                0 => read(&mut message).to_le_bytes().to_vec(),
                1 => {
                    let (double, rest) = message.split_at(8);
                    message = rest;
                    double.to_vec()
                }
                2 => {
                    let length = usize::try_from(read(&mut message)).unwrap();
                    let (content, rest) = message.split_at(length);
                    message = rest;
                    content.to_vec()
                }
                other => panic!("wire type {other}"),
            };
            found.push((tag >> 3, content));
        }
        found
    }

    /// Follows field numbers, taking the first of each.
    fn follow(message: &[u8], numbers: &[u64]) -> Vec<u8> {
        numbers.iter().fold(message.to_vec(), |message, number| {
            let found = fields(&message).into_iter().find(|(n, _)| n == number);
            found.unwrap_or_else(|| panic!("field {number} of {numbers:?}")).1
        })
    }

    #[test]
    fn numbers_are_written_in_groups_of_seven_bits() {
        let written = |value| {
            let mut out = Vec::new();
            varint(&mut out, value);
            out
        };
        assert_eq!(written(0), [0]);
        assert_eq!(written(127), [127]);
        assert_eq!(written(300), [0xac, 0x02]);
        assert_eq!(written(u64::MAX).len(), 10);
    }

    #[test]
    fn definitions_are_found_by_name_and_kind() {
        let document = encode(&json!({ "swagger": "2.0", "definitions": { "a.B": {
            "type": "object", "required": ["x"], "x-kubernetes-group-version-kind": [{ "kind": "B" }],
            "properties": { "x": { "type": "array", "items": { "$ref": "#/definitions/c" }, "maxItems": 300 } },
            "additionalProperties": false,
        } } }));
        assert_eq!(follow(&document, &[1]), b"2.0");
        assert_eq!(follow(&document, &[9, 1, 1]), b"a.B");
        let schema = follow(&document, &[9, 1, 2]);
        assert_eq!(follow(&schema, &[22, 1]), b"object");
        assert_eq!(follow(&schema, &[19]), b"x");
        assert_eq!(follow(&schema, &[31, 1]), b"x-kubernetes-group-version-kind");
        assert_eq!(follow(&schema, &[31, 2, 2]), br#"[{"kind":"B"}]"#);
        assert_eq!(follow(&schema, &[25, 1, 2, 23, 1, 1]), b"#/definitions/c");
        assert_eq!(follow(&schema, &[25, 1, 2, 14]), 300_u64.to_le_bytes());
        assert_eq!(follow(&schema, &[21, 2]), 0_u64.to_le_bytes());
    }

    #[test]
    fn the_parameters_of_a_patch_are_found() {
        let document = encode(&json!({ "paths": { "/x": { "patch": {
            "parameters": [{ "in": "query", "name": "fieldValidation", "type": "string" }],
            "x-kubernetes-group-version-kind": { "kind": "X" },
            "responses": { "200": { "description": "OK", "schema": { "$ref": "#/definitions/X" } } },
        }, "parameters": [
            { "in": "path", "name": "name", "required": true }, { "in": "body", "name": "body", "schema": {} },
        ] } } }));
        let item = follow(&document, &[8, 2, 2]);
        assert_eq!(follow(&item, &[8, 8, 1, 2, 3, 4]), b"fieldValidation");
        assert_eq!(follow(&item, &[8, 13, 2, 2]), br#"{"kind":"X"}"#);
        assert_eq!(follow(&item, &[8, 9, 1, 1]), b"200");
        assert_eq!(follow(&item, &[8, 9, 1, 2, 1, 2, 1, 1]), b"#/definitions/X");
        assert_eq!(follow(&item, &[9, 1, 2, 4, 4]), b"name");
        let second = fields(&item).into_iter().filter(|(n, _)| *n == 9).nth(1).unwrap().1;
        assert_eq!(follow(&second, &[1, 1, 2]), b"body");
    }

    #[test]
    fn doubles_and_enums_survive() {
        let schema = message(&json!({ "minimum": 1.5, "enum": ["a", 2] }), &SCHEMA);
        assert_eq!(follow(&schema, &[9]), 1.5_f64.to_le_bytes());
        let values: Vec<_> =
            fields(&schema).into_iter().filter(|(n, _)| *n == 20).map(|(_, v)| follow(&v, &[2])).collect();
        assert_eq!(values, [br#""a""#.to_vec(), b"2".to_vec()]);
    }
}
