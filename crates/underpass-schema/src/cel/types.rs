//! What the checker knows about a value before there is one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Type {
    /// Known only when run.
    Dyn,
    /// A value without parts, by the name that CEL prints.
    Plain(&'static str),
    List(Arc<Type>),
    Map(Arc<Type>, Arc<Type>),
    /// Declared properties, by their escaped names.
    Object(Arc<BTreeMap<String, Type>>),
    Optional(Arc<Type>),
    /// A type to be found out, in signatures: 0 is `A`, 1 is `B`.
    Parameter(usize),
}

impl Type {
    pub(crate) const NULL: Self = Self::Plain("null");
    pub(crate) const BOOL: Self = Self::Plain("bool");
    pub(crate) const INT: Self = Self::Plain("int");
    pub(crate) const UINT: Self = Self::Plain("uint");
    pub(crate) const DOUBLE: Self = Self::Plain("double");
    pub(crate) const STRING: Self = Self::Plain("string");
    pub(crate) const BYTES: Self = Self::Plain("bytes");
    pub(crate) const TIMESTAMP: Self = Self::Plain("timestamp");
    pub(crate) const DURATION: Self = Self::Plain("duration");
    pub(crate) const TYPE: Self = Self::Plain("type");

    pub(crate) fn list(item: Type) -> Self {
        Self::List(Arc::new(item))
    }

    pub(crate) fn map(key: Type, value: Type) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    pub(crate) fn optional(inner: Type) -> Self {
        Self::Optional(Arc::new(inner))
    }

    /// Whether a value of one type could be one of the other. Null could be anything: fields may be nullable.
    pub(crate) fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn, _) | (_, Self::Dyn) | (&Self::NULL, _) | (_, &Self::NULL) => true,
            (Self::List(left), Self::List(right)) | (Self::Optional(left), Self::Optional(right)) => left.fits(right),
            (Self::Map(left_key, left), Self::Map(right_key, right)) => left_key.fits(right_key) && left.fits(right),
            // A map written in a rule may be compared with an object of the schema.
            (Self::Map(..), Self::Object(_)) | (Self::Object(_), Self::Map(..)) => true,
            _ => self == other,
        }
    }

    /// The type of a place that holds a value of either.
    pub(crate) fn join(self, other: Self) -> Option<Self> {
        match (&self, &other) {
            (Self::Dyn, _) | (_, Self::Dyn) => Some(Self::Dyn),
            (&Self::NULL, _) => Some(other),
            _ if self == other || self.fits(&other) => Some(self),
            _ => None,
        }
    }

    /// Whether `actual` is an argument for this parameter; finds out what `A` and `B` stand for on the way.
    pub(crate) fn accepts(&self, actual: &Self, found: &mut [Option<Type>; 2]) -> bool {
        match (self, actual) {
            (_, Self::Dyn) | (Self::Dyn, _) => true,
            (Self::Parameter(which), _) => match &found[*which] {
                Some(known) => known.fits(actual),
                None => {
                    found[*which] = Some(actual.clone());
                    true
                }
            },
            (Self::List(want), Self::List(actual)) | (Self::Optional(want), Self::Optional(actual)) => {
                want.accepts(actual, found)
            }
            (Self::Map(want_key, want), Self::Map(key, value)) => {
                want_key.accepts(key, found) && want.accepts(value, found)
            }
            _ => self == actual,
        }
    }

    /// The type with `A` and `B` replaced by what they were found to be.
    pub(crate) fn resolved(&self, found: &[Option<Type>; 2]) -> Self {
        match self {
            Self::Parameter(which) => found[*which].clone().unwrap_or(Self::Dyn),
            Self::List(item) => Self::list(item.resolved(found)),
            Self::Map(key, value) => Self::map(key.resolved(found), value.resolved(found)),
            Self::Optional(inner) => Self::optional(inner.resolved(found)),
            other => other.clone(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Plain(name) => f.write_str(name),
            Self::List(item) => write!(f, "list({item})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Object(_) => f.write_str("object"),
            Self::Optional(inner) => write!(f, "optional_type({inner})"),
            Self::Parameter(which) => f.write_str(["A", "B"].get(*which).copied().unwrap_or("?")),
        }
    }
}
