//! One step on the way to a field, and the order and text of such steps.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Number, Value};

/// How to get from a container to one of its parts. The order of the variants is the order in which sets list them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathElement {
    /// `f:name`: a field of a struct or a key of a map.
    Field(String),
    /// `k:{"name":"a"}`: the item of an associative list with these key fields, sorted by name.
    Key(Vec<(String, Scalar)>),
    /// `v:"x"`: the item of a set.
    Value(Scalar),
    /// `i:0`: the item at a position.
    Index(i64),
}

/// A JSON value with a total order, in which numbers compare by what they are worth: `1` and `1.0` are the same.
#[derive(Debug, Clone)]
pub struct Scalar(pub Value);

/// A path as conflicts and error messages show it: `.spec.ports[port=80,protocol="TCP"].name`.
#[must_use]
pub fn path_text(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "[{}]", fields.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scalar {}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scalar {
    fn cmp(&self, other: &Self) -> Ordering {
        order(&self.0, &other.0)
    }
}

/// Whether two values are the same to an owner of fields.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => order_numbers(a, b) == Ordering::Equal,
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => order_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => order_lists(a, b),
        (Value::Object(a), Value::Object(b)) => {
            let fields = |map: &serde_json::Map<String, Value>| {
                let mut fields: Vec<_> = map.iter().map(|(k, v)| (k.clone(), Scalar(v.clone()))).collect();
                fields.sort();
                fields
            };
            fields(a).cmp(&fields(b))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

fn order_lists(a: &[Value], b: &[Value]) -> Ordering {
    let first_difference = a.iter().zip(b).map(|(a, b)| order(a, b)).find(|order| *order != Ordering::Equal);
    first_difference.unwrap_or_else(|| a.len().cmp(&b.len()))
}

fn order_numbers(a: &Number, b: &Number) -> Ordering {
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
        return a.cmp(&b);
    }
    if let (Some(a), Some(b)) = (a.as_u64(), b.as_u64()) {
        return a.cmp(&b);
    }
    // JSON has no NaN, so the order is total.
    a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal)
}

/// The order between values of different types.
fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}
