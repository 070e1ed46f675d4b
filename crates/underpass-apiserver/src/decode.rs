//! Request bodies: JSON, YAML or protobuf into a JSON value, remembering which keys stood there twice.
//!
//! Kubernetes takes the last of two equal keys and, asked to be strict, refuses them; a plain `serde_json::Value` would forget.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;
use serde_saphyr::options::DuplicateKeyPolicy;
use underpass_builtins::protobuf::{self, Problem};

use crate::status::ApiError;

pub(crate) struct Decoded {
    pub(crate) value: Value,
    /// As strict decoding words them: `duplicate field "spec.replicas"`.
    pub(crate) duplicates: Vec<String>,
}

/// By the `Content-Type` of the request; none means JSON.
pub(crate) fn object(content_type: &str, body: &[u8]) -> Result<Decoded, ApiError> {
    match content_type.split(';').next().unwrap_or_default().trim() {
        "" | "application/json" => json(body),
        "application/yaml" => yaml(body),
        protobuf::MEDIA_TYPE => from_protobuf(body),
        other => Err(unknown_format(other)),
    }
}

pub(crate) fn json(body: &[u8]) -> Result<Decoded, ApiError> {
    let duplicates = RefCell::new(Vec::new());
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let value = Node { place: &Place::Root, duplicates: &duplicates }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|e| ApiError::bad_request(format!("the body is not valid JSON: {e}")))?;
    Ok(Decoded { value, duplicates: duplicates.into_inner() })
}

pub(crate) fn yaml(body: &[u8]) -> Result<Decoded, ApiError> {
    let text = std::str::from_utf8(body).map_err(|_| ApiError::bad_request("the body is not UTF-8"))?;
    let value = parse_yaml(text, DuplicateKeyPolicy::LastWins)
        .map_err(|e| ApiError::bad_request(format!("error decoding YAML: {e}")))?;
    let repeated = repeated_keys(text);
    let duplicates = (!repeated.is_empty()).then(|| format!("yaml: unmarshal errors:\n  {}", repeated.join("\n  ")));
    Ok(Decoded { value, duplicates: duplicates.into_iter().collect() })
}

/// A message has no keys that could stand twice.
fn from_protobuf(body: &[u8]) -> Result<Decoded, ApiError> {
    let value = protobuf::decode(body).map_err(|error| match error.problem {
        Problem::UnknownKind { .. } => ApiError::unsupported_media_type(error.to_string()),
        _ => ApiError::bad_request(format!("error decoding protobuf: {error}")),
    })?;
    Ok(Decoded { value, duplicates: Vec::new() })
}

fn unknown_format(content_type: &str) -> ApiError {
    ApiError::unsupported_media_type(format!(
        "the body of the request was in an unknown format ({content_type:?}) - accepted media types include: application/json, \
         application/yaml, {}",
        protobuf::MEDIA_TYPE
    ))
}

fn parse_yaml(text: &str, policy: DuplicateKeyPolicy) -> Result<Value, serde_saphyr::Error> {
    let options = serde_saphyr::options! { duplicate_keys: policy };
    serde_saphyr::from_str_with_options(text, options)
}

/// Every key that its map has already, with its line, as Kubernetes' YAML reader names them.
fn repeated_keys(text: &str) -> Vec<String> {
    if parse_yaml(text, DuplicateKeyPolicy::Error).is_ok() {
        return Vec::new();
    }
    let found = RefCell::new(Vec::new());
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    // The text was parsed before: there is no error that was not answered already.
    let _ = serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
        RepeatedKeys(&found).deserialize(deserializer)
    });
    found.into_inner()
}

/// Looks at the keys of all maps and at nothing else.
struct RepeatedKeys<'a>(&'a RefCell<Vec<String>>);

impl<'de> DeserializeSeed<'de> for RepeatedKeys<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for RepeatedKeys<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(RepeatedKeys(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(Spanned { value: key, referenced, .. }) = entries.next_key::<Spanned<String>>()? {
            entries.next_value_seed(RepeatedKeys(self.0))?;
            let mut found = self.0.borrow_mut();
            if seen.contains(&key) && found.iter().map(String::len).sum::<usize>() < MAX_NOTED {
                found.push(format!("line {}: key {key:?} already set in map", referenced.line()));
            }
            seen.insert(key);
        }
        Ok(())
    }
}

/// As far as every whole number has a float of its own.
#[allow(clippy::cast_possible_truncation, reason = "the range was checked")]
fn whole(float: f64) -> Option<Number> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (float.fract() == 0.0 && float.abs() <= EXACT).then(|| Number::from(float as i64))
}

/// Duplicates are noted up to this many bytes; a hostile body could otherwise be made of nothing else.
const MAX_NOTED: usize = 16 << 10;

/// Builds one value and notes duplicate keys below it.
struct Node<'a> {
    place: &'a Place<'a>,
    duplicates: &'a RefCell<Vec<String>>,
}

/// Where a value stands; written out only for a duplicate.
enum Place<'a> {
    Root,
    Field(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

impl Node<'_> {
    fn note(&self, place: &Place<'_>) {
        let mut duplicates = self.duplicates.borrow_mut();
        if duplicates.iter().map(String::len).sum::<usize>() < MAX_NOTED {
            duplicates.push(format!("duplicate field {:?}", place.to_string()));
        }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    /// A whole number is written without a point, as Kubernetes writes it again: rules and clients then read an integer.
    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(whole(v).or_else(|| Number::from_f64(v)).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let place = Place::Item(self.place, list.len());
            match items.next_element_seed(Node { place: &place, duplicates: self.duplicates })? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let place = Place::Field(self.place, &key);
            let value = entries.next_value_seed(Node { place: &place, duplicates: self.duplicates })?;
            if map.contains_key(&key) {
                self.note(&place);
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_of_two_equal_keys_wins_and_is_noted() {
        let decoded = json(br#"{"spec":{"replicas":2,"list":[{"a":1,"a":2}],"replicas":3}}"#).unwrap();
        assert_eq!(decoded.value, json!({ "spec": { "replicas": 3, "list": [{ "a": 2 }] } }));
        assert_eq!(decoded.duplicates, [r#"duplicate field "spec.list[0].a""#, r#"duplicate field "spec.replicas""#]);
    }

    #[test]
    fn yaml_names_the_line_of_a_duplicate() {
        let decoded = yaml(b"\na: 1\nspec:\n  foo: one\n  foo: two\n").unwrap();
        assert_eq!(decoded.value["spec"]["foo"], "two");
        assert_eq!(decoded.duplicates, ["yaml: unmarshal errors:\n  line 5: key \"foo\" already set in map"]);
        for text in ["data: {a: '1', a: '2'}", "- data: {\"a\": 1, \"a\": 2}", "- x: 1\n- a: 1\n  a: 2"] {
            let found = yaml(text.as_bytes()).unwrap().duplicates;
            assert!(found[0].ends_with("key \"a\" already set in map"), "{text}: {found:?}");
        }
    }

    #[test]
    fn yaml_names_every_duplicate() {
        let text = b"a: 1\nspec:\n  b: {c: 1, 'c': 2}\n  list:\n  - d: null\n    d: 1.5\na: true\n'7': x\n7: y\n";
        let lines = ["line 3: key \"c\"", "line 6: key \"d\"", "line 7: key \"a\"", "line 9: key \"7\""];
        let sentences = lines.map(|line| format!("\n  {line} already set in map")).concat();
        assert_eq!(yaml(text).unwrap().duplicates, [format!("yaml: unmarshal errors:{sentences}")]);
    }

    #[test]
    fn whole_numbers_are_integers() {
        let decoded = json(br#"{"a":1.0,"b":1e2,"c":-0.0,"d":1.5,"e":1e30}"#).unwrap();
        assert_eq!(decoded.value.to_string(), r#"{"a":1,"b":100,"c":0,"d":1.5,"e":1e+30}"#);
    }

    #[test]
    fn the_content_type_says_how_to_read() {
        let written = serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "k": "v" } });
        let message = protobuf::encode(&written).unwrap();
        let text = written.to_string();
        for (type_, body) in [
            ("", text.as_bytes()),
            ("application/json; charset=utf-8", text.as_bytes()),
            ("application/yaml", text.as_bytes()),
            ("application/vnd.kubernetes.protobuf", &message),
        ] {
            assert_eq!(object(type_, body).unwrap().value, written, "{type_}");
        }
        let code = |type_, body: &[u8]| object(type_, body).err().map(|error| error.code.as_u16());
        assert_eq!(code("text/plain", b"{}"), Some(415));
        assert_eq!(code(protobuf::MEDIA_TYPE, b"{}"), Some(400));
        // An envelope of nothing: no kind is named.
        assert_eq!(code(protobuf::MEDIA_TYPE, b"k8s\0"), Some(415));
    }

    #[test]
    fn trailing_bytes_and_broken_bodies_are_refused() {
        assert!(json(b"{} x").is_err());
        assert!(json(b"{").is_err());
        assert!(yaml(b"a: [").is_err());
    }
}
