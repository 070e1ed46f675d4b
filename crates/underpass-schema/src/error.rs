//! What is wrong with a field, in the words that Kubernetes' users know.

use std::fmt;

use serde_json::Value;

/// One thing wrong with one field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    pub path: Path,
    pub kind: ErrorKind,
    /// The value that was refused, where showing it helps.
    pub value: Option<Value>,
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    Required,
    Invalid,
    TypeInvalid,
    NotSupported,
    Duplicate,
    Forbidden,
    TooLong,
    TooMany,
}

impl ErrorKind {
    /// The `reason` of a StatusCause.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }
}

/// Where in the document: `spec.backends[1].port`, `metadata.labels[a/b]`. The root prints as `<nil>`, as Kubernetes does.
#[derive(Debug, Clone, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Path(String);

impl Path {
    pub fn root() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn field(&self, name: &str) -> Self {
        if self.0.is_empty() { Self(name.to_owned()) } else { Self(format!("{}.{name}", self.0)) }
    }

    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    pub fn as_str(&self) -> &str {
        if self.0.is_empty() { "<nil>" } else { &self.0 }
    }
}

impl From<&str> for Path {
    fn from(path: &str) -> Self {
        Self(path.to_owned())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FieldError {
    pub fn new(path: &Path, kind: ErrorKind, value: Option<&Value>, detail: impl Into<String>) -> Self {
        Self { path: path.clone(), kind, value: value.cloned(), detail: detail.into() }
    }

    pub fn required(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(path, ErrorKind::Required, None, detail)
    }

    pub fn invalid(path: &Path, value: &Value, detail: impl Into<String>) -> Self {
        Self::new(path, ErrorKind::Invalid, Some(value), detail)
    }

    pub fn forbidden(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(path, ErrorKind::Forbidden, None, detail)
    }

    /// The error without its path: the `message` of a StatusCause.
    pub fn message(&self) -> String {
        let mut text = self.kind.words().to_owned();
        if let Some(value) = &self.value {
            text.push_str(": ");
            text.push_str(&value.to_string());
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message())
    }
}
