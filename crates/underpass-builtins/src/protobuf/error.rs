//! What is wrong with a message, and where.

use std::fmt;

/// Display names the field, as JSON calls it: `spec.template.spec.containers[1].image: is not UTF-8`.
#[derive(Debug, thiserror::Error)]
pub struct ProtobufError {
    /// Empty where the whole document is meant.
    pub path: String,
    pub problem: Problem,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("does not begin with the four bytes of Kubernetes' protobuf form (6b 38 73 00)")]
    NoMagic,
    #[error("is packed as {0:?}, which is not known")]
    ContentEncoding(String),
    #[error("is of the kind {kind:?} of {api_version:?}, which has no protobuf form here")]
    UnknownKind { api_version: String, kind: String },
    #[error("ends in the middle of a value")]
    Truncated,
    #[error("has a number of more than 64 bits")]
    LongVarint,
    #[error("has a field of the wire type {0}, which is not known")]
    UnknownWireType(u8),
    #[error("has a field with the number {0}")]
    FieldNumber(u64),
    #[error("is written as {found}, not as {expected}")]
    WireType { expected: &'static str, found: &'static str },
    #[error("is not UTF-8")]
    NotUtf8,
    #[error("is not JSON: {0}")]
    NotJson(String),
    #[error("is not {0}")]
    Not(&'static str),
    #[error("has more messages inside each other than {}", super::MOST_DEPTH)]
    TooDeep,
    #[error("has more values than a document may have")]
    TooMany,
}

impl ProtobufError {
    /// The same error seen from the message that holds the field `name`.
    pub(super) fn below(mut self, name: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{name}{dot}{}", self.path);
        self
    }

    /// The same error seen from the list that holds the item.
    pub(super) fn at(self, index: usize) -> Self {
        self.below(&format!("[{index}]"))
    }
}

impl From<Problem> for ProtobufError {
    fn from(problem: Problem) -> Self {
        Self { path: String::new(), problem }
    }
}

impl fmt::Display for ProtobufError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => write!(f, "the body {}", self.problem),
            path => write!(f, "{path}: {}", self.problem),
        }
    }
}
