//! The values of expressions. Cloning one is cheap: what is large is shared.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;

use super::quantity::Quantity;
use super::url::Url;

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    Timestamp(Timestamp),
    /// Nanoseconds, as Go counts them.
    Duration(i64),
    List(Arc<List>),
    Map(Arc<BTreeMap<Key, Value>>),
    Optional(Option<Arc<Value>>),
    Type(&'static str),
    Ip(IpAddr),
    Cidr(IpNet),
    Url(Arc<Url>),
    Quantity(Quantity),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct List {
    pub(crate) items: Vec<Value>,
    pub(crate) merge: Merge,
}

/// What `x-kubernetes-list-type` makes of `==` and `+`.
#[derive(Debug, Clone, Default)]
pub(crate) enum Merge {
    #[default]
    Atomic,
    Set,
    /// By these key fields, escaped as rules see them.
    Map(Arc<[Arc<str>]>),
}

/// What can be the key of a map.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Bool(bool),
    Int(i64),
    /// Only numbers that no `Int` can hold, so that `1` and `1u` are one key.
    Uint(u64),
    String(Arc<str>),
}

impl Value {
    pub(crate) fn string(text: impl Into<Arc<str>>) -> Self {
        Self::String(text.into())
    }

    pub(crate) fn list(items: Vec<Value>) -> Self {
        Self::List(Arc::new(List { items, merge: Merge::Atomic }))
    }

    pub(crate) fn some(value: Value) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    pub(crate) const NONE: Self = Self::Optional(None);

    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Quantity(_) => "kubernetes.Quantity",
        }
    }

    pub(crate) fn as_key(&self) -> Option<Key> {
        Some(match self {
            Self::Bool(value) => Key::Bool(*value),
            Self::Int(value) => Key::Int(*value),
            Self::Uint(value) => i64::try_from(*value).map_or(Key::Uint(*value), Key::Int),
            Self::Double(value) if value.fract() == 0.0 && value.abs() < 9.0e18 => Key::Int(*value as i64),
            Self::String(text) => Key::String(text.clone()),
            _ => return None,
        })
    }

    /// Roughly how much of it there is: what an operation over all of it costs.
    pub(crate) fn size(&self) -> usize {
        match self {
            // A step of the evaluator does as much as ten bytes of a scan.
            Self::String(text) => text.len() / 10,
            Self::Bytes(bytes) => bytes.len() / 10,
            Self::List(list) => list.items.len(),
            Self::Map(map) => map.len(),
            _ => 0,
        }
    }

    /// Everything below, counted as [`Value::size`] does: what comparing it costs.
    pub(crate) fn deep_size(&self) -> usize {
        let below: usize = match self {
            Self::List(list) => list.search_cost() + list.items.iter().map(Self::deep_size).sum::<usize>(),
            Self::Map(map) => map.values().map(Self::deep_size).sum(),
            _ => 0,
        };
        self.size() + below
    }

    /// Ordering between values that have one; numbers compare across their types.
    pub(crate) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(left), Self::Bool(right)) => Some(left.cmp(right)),
            (Self::String(left), Self::String(right)) => Some(left.cmp(right)),
            (Self::Bytes(left), Self::Bytes(right)) => Some(left.cmp(right)),
            (Self::Timestamp(left), Self::Timestamp(right)) => Some(left.cmp(right)),
            (Self::Duration(left), Self::Duration(right)) => Some(left.cmp(right)),
            _ => compare_numbers(self, other),
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::List(left), Self::List(right)) => left == right,
            (Self::Map(left), Self::Map(right)) => left == right,
            (Self::Optional(left), Self::Optional(right)) => left == right,
            (Self::Type(left), Self::Type(right)) => left == right,
            (Self::Ip(left), Self::Ip(right)) => left == right,
            (Self::Cidr(left), Self::Cidr(right)) => left == right,
            (Self::Url(left), Self::Url(right)) => left == right,
            (Self::Quantity(left), Self::Quantity(right)) => left.compare(right).is_eq(),
            _ => self.compare(other) == Some(Ordering::Equal),
        }
    }
}

impl PartialEq for List {
    fn eq(&self, other: &Self) -> bool {
        if matches!(self.merge, Merge::Atomic) || self.items.len() != other.items.len() || self.items == other.items {
            return self.items == other.items;
        }
        // Neither the order of a set nor that of a list-map means anything.
        match (keys(&self.items), keys(&other.items)) {
            (Some(left), Some(right)) => left == right,
            _ => self.items.iter().all(|item| other.items.contains(item)),
        }
    }
}

impl List {
    /// `self + other`: sets and list-maps merge, other lists are put one after the other.
    pub(crate) fn concat(&self, other: &List) -> List {
        let mut items = self.items.clone();
        match &self.merge {
            Merge::Atomic => items.extend(other.items.iter().cloned()),
            Merge::Set => {
                let known = keys(&items);
                let is_known = |item: &Value| match (&known, item.as_key()) {
                    (Some(known), Some(key)) => known.contains(&key),
                    _ => self.items.contains(item),
                };
                items.extend(other.items.iter().filter(|item| !is_known(item)).cloned());
            }
            Merge::Map(keys) => {
                for item in &other.items {
                    match items.iter_mut().find(|known| same_keys(known, item, keys)) {
                        Some(known) => *known = item.clone(),
                        None => items.push(item.clone()),
                    }
                }
            }
        }
        List { items, merge: self.merge.clone() }
    }

    /// What it costs to find every item of one such list in another: scalars are looked up, the rest are compared one by one.
    fn search_cost(&self) -> usize {
        let scalars = self.items.first().is_none_or(|item| item.as_key().is_some());
        if matches!(self.merge, Merge::Atomic) || scalars { 0 } else { self.items.len().pow(2) / 8 }
    }
}

/// The items as keys, where all of them can be.
fn keys(items: &[Value]) -> Option<BTreeSet<Key>> {
    items.iter().map(Value::as_key).collect()
}

impl From<Key> for Value {
    fn from(key: Key) -> Self {
        match key {
            Key::Bool(value) => Self::Bool(value),
            Key::Int(value) => Self::Int(value),
            Key::Uint(value) => Self::Uint(value),
            Key::String(text) => Self::String(text),
        }
    }
}

fn same_keys(left: &Value, right: &Value, keys: &[Arc<str>]) -> bool {
    let (Value::Map(left), Value::Map(right)) = (left, right) else { return false };
    keys.iter().all(|key| left.get(&Key::String(key.clone())) == right.get(&Key::String(key.clone())))
}

fn compare_numbers(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Double(left), Value::Double(right)) => left.partial_cmp(right),
        (Value::Double(left), right) => compare_to_double(right, *left).map(Ordering::reverse),
        (left, Value::Double(right)) => compare_to_double(left, *right),
        _ => Some(integer(left)?.cmp(&integer(right)?)),
    }
}

/// Exact even where the integer has more digits than a double holds.
fn compare_to_double(left: &Value, right: f64) -> Option<Ordering> {
    let left = integer(left)?;
    match right {
        _ if right.is_nan() => None,
        _ if right >= 1e20 => Some(Ordering::Less),
        _ if right <= -1e20 => Some(Ordering::Greater),
        _ => {
            let whole = right.trunc();
            let by_whole = left.cmp(&(whole as i128));
            Some(by_whole.then(0.0.partial_cmp(&(right - whole))?))
        }
    }
}

fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Int(value) => Some(i128::from(*value)),
        Value::Uint(value) => Some(i128::from(*value)),
        _ => None,
    }
}
