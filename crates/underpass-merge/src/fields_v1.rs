//! The text of a set of fields: `FieldsV1`, as `metadata.managedFields[].fieldsV1` carries it.
//!
//! Each branch is an object key; `"."` says that a container with branches is itself in the set, `{}` that a field without
//! branches is. Keys of a kind that a later version may invent are skipped, as Kubernetes does.

use serde_json::{Map, Value};

use crate::fieldset::FieldSet;
use crate::path::{PathElement, Scalar};

const SELF: &str = ".";

#[derive(Debug, thiserror::Error)]
pub enum FieldsError {
    #[error("the fields below {0:?} are not an object")]
    NotAnObject(String),
    #[error("{0:?} does not name a field: it has no kind")]
    NoKind(String),
    #[error("{0:?} does not name a list position")]
    NotAnIndex(String),
    #[error("{0:?} does not name a list item")]
    NotAKey(String),
    #[error("{text:?} holds no JSON value")]
    NotJson { text: String, source: serde_json::Error },
}

impl FieldSet {
    /// Reads `fieldsV1`.
    pub fn from_fields_v1(fields: &Value) -> Result<Self, FieldsError> {
        Ok(read(SELF, fields)?.0)
    }

    /// Prints `fieldsV1`: the same set always gives the same object.
    #[must_use]
    pub fn to_fields_v1(&self) -> Value {
        Value::Object(self.branches().map(|(element, branch)| (print(element), branch_fields(branch))).collect())
    }
}

fn branch_fields(branch: &crate::fieldset::Branch) -> Value {
    let mut fields = branch.below.to_fields_v1();
    if let (true, Value::Object(fields)) = (branch.member && !branch.below.is_empty(), &mut fields) {
        fields.insert(SELF.to_owned(), Value::Object(Map::new()));
    }
    fields
}

/// What is below one key, and whether the key's own field is in the set.
fn read(key: &str, value: &Value) -> Result<(FieldSet, bool), FieldsError> {
    let fields = value.as_object().ok_or_else(|| FieldsError::NotAnObject(key.to_owned()))?;
    let mut below = FieldSet::new();
    let mut member = false;
    for (key, value) in fields {
        if key == SELF {
            member = true;
        } else if let Some(element) = parse(key)? {
            let (grandchildren, is_member) = read(key, value)?;
            below.put(element, is_member, grandchildren);
        }
    }
    let member = member || below.is_empty();
    Ok((below, member))
}

/// `None` is a kind of element that this version does not know.
fn parse(text: &str) -> Result<Option<PathElement>, FieldsError> {
    let no_kind = || FieldsError::NoKind(text.to_owned());
    if text.as_bytes().get(1) != Some(&b':') {
        return Err(no_kind());
    }
    let (kind, rest) = text.split_at_checked(2).ok_or_else(no_kind)?;
    Ok(Some(match kind {
        "f:" => PathElement::Field(rest.to_owned()),
        "v:" => PathElement::Value(Scalar(parse_json(text, rest)?)),
        "k:" => PathElement::Key(parse_key(text, rest)?),
        "i:" => PathElement::Index(rest.parse().map_err(|_| FieldsError::NotAnIndex(text.to_owned()))?),
        _ => return Ok(None),
    }))
}

fn parse_key(text: &str, rest: &str) -> Result<Vec<(String, Scalar)>, FieldsError> {
    let Value::Object(fields) = parse_json(text, rest)? else { return Err(FieldsError::NotAKey(text.to_owned())) };
    let mut fields: Vec<_> = fields.into_iter().map(|(name, value)| (name, Scalar(value))).collect();
    fields.sort();
    Ok(fields)
}

fn parse_json(text: &str, rest: &str) -> Result<Value, FieldsError> {
    serde_json::from_str(rest).map_err(|source| FieldsError::NotJson { text: text.to_owned(), source })
}

fn print(element: &PathElement) -> String {
    match element {
        PathElement::Field(name) => format!("f:{name}"),
        PathElement::Key(fields) => {
            let name_of = |name: &String| json_text(&Value::String(name.clone()));
            let fields: Vec<_> =
                fields.iter().map(|(name, value)| format!("{}:{}", name_of(name), json_text(&value.0))).collect();
            format!("k:{{{}}}", fields.join(","))
        }
        PathElement::Value(value) => format!("v:{}", json_text(&value.0)),
        PathElement::Index(index) => format!("i:{index}"),
    }
}

/// JSON as Go writes it: with the characters escaped that HTML gives a meaning.
fn json_text(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&']) {
        return text;
    }
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
