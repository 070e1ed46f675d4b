//! Host names as DNS and TLS carry them, and the one form in which they are compared.
//!
//! A name is ASCII: letters, digits, hyphens, underscores (against the book, but in use), in labels. Internationalised names
//! pass in their `xn--` form and are compared as such; raw Unicode is refused, because who sends it to whom decides what it
//! would mean. Hyphens at the edges of a label are let through: such names are served in public.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// The longest name without its trailing dot (RFC 1035's 255 bytes on the wire).
pub const MAX_NAME: usize = 253;

const MAX_LABEL: usize = 63;

/// Why something is not a host name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("the name is empty")]
    Empty,
    #[error("the name is longer than {MAX_NAME} bytes")]
    TooLong,
    #[error("the name has an empty label")]
    EmptyLabel,
    #[error("the name has a label of more than {MAX_LABEL} bytes")]
    LabelTooLong,
    #[error("byte {0:#04x} does not belong into a host name")]
    Character(u8),
}

/// A host name in lower case and without the trailing dot: equal names are equal bytes. Lives on the stack.
#[derive(Clone, Copy)]
pub struct NormalName {
    bytes: [u8; MAX_NAME],
    len: u8,
}

impl NormalName {
    /// `None` when this is not a host name. Wildcards are not host names; what follows their `*.` is.
    pub fn new(name: &str) -> Option<Self> {
        check(name.as_bytes()).ok().map(Self::of_checked)
    }

    /// The name that a [`check`] has returned, which is why it fits.
    pub(crate) fn of_checked(name: &str) -> Self {
        let mut bytes = [0; MAX_NAME];
        for (to, from) in bytes.iter_mut().zip(name.as_bytes()) {
            *to = from.to_ascii_lowercase();
        }
        Self { bytes, len: name.len().min(MAX_NAME) as u8 }
    }

    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..self.len.into()]).expect("only checked names, which are ASCII, come in")
    }

    /// The names above this one, nearest first: what a wildcard may stand under.
    pub fn parents(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(parent(self), |name| parent(name))
    }
}

impl Deref for NormalName {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for NormalName {
    fn borrow(&self) -> &str {
        self
    }
}

impl AsRef<str> for NormalName {
    fn as_ref(&self) -> &str {
        self
    }
}

impl PartialEq for NormalName {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for NormalName {}

impl PartialOrd for NormalName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NormalName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_str().cmp(other)
    }
}

/// As `str` does it, so that maps can be asked with either.
impl Hash for NormalName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Display for NormalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for NormalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// The name without its trailing dot, if it is one.
pub(crate) fn check(bytes: &[u8]) -> Result<&str, NameError> {
    let name = bytes.strip_suffix(b".").unwrap_or(bytes);
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > MAX_NAME {
        return Err(NameError::TooLong);
    }
    check_labels(name)?;
    str::from_utf8(name).map_err(|error| NameError::Character(name[error.valid_up_to()]))
}

fn check_labels(name: &[u8]) -> Result<(), NameError> {
    for label in name.split(|byte| *byte == b'.') {
        if let Some(byte) = label.iter().find(|byte| !belongs(**byte)) {
            return Err(NameError::Character(*byte));
        }
        match label.len() {
            0 => return Err(NameError::EmptyLabel),
            1..=MAX_LABEL => {}
            _ => return Err(NameError::LabelTooLong),
        }
    }
    Ok(())
}

fn belongs(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

fn parent(name: &str) -> Option<&str> {
    name.split_once('.').map(|(_, parent)| parent)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn case_and_the_trailing_dot_do_not_matter() {
        let plain = NormalName::new("api.example.com").unwrap();
        assert_eq!(NormalName::new("API.Example.com.").unwrap(), plain);
        assert_eq!(&*plain, "api.example.com");
        assert_ne!(NormalName::new("api.example.org").unwrap(), plain);
    }

    #[test]
    fn a_map_by_normal_names_can_be_asked_with_text() {
        let routes = HashMap::from([(NormalName::new("A.test").unwrap(), 1)]);
        assert_eq!(routes.get("a.test"), Some(&1));
    }

    #[test]
    fn parents_are_nearest_first_and_without_the_name_itself() {
        let name = NormalName::new("a.b.example.com").unwrap();
        assert_eq!(name.parents().collect::<Vec<_>>(), ["b.example.com", "example.com", "com"]);
        assert_eq!(NormalName::new("localhost").unwrap().parents().count(), 0);
    }

    #[test]
    fn limits_are_those_of_dns() {
        let label = "a".repeat(63);
        let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
        assert_eq!(longest.len(), MAX_NAME);
        assert!(NormalName::new(&longest).is_some());
        assert!(NormalName::new(&format!("{longest}.")).is_some());
        assert_eq!(check(format!("{longest}a").as_bytes()), Err(NameError::TooLong));
        assert_eq!(check(format!("{label}a.test").as_bytes()), Err(NameError::LabelTooLong));
    }

    #[test]
    fn what_is_not_a_host_name_is_refused_with_the_reason() {
        for (name, reason) in [
            ("", NameError::Empty),
            (".", NameError::Empty),
            ("..", NameError::EmptyLabel),
            (".test", NameError::EmptyLabel),
            ("a..test", NameError::EmptyLabel),
            ("a.test..", NameError::EmptyLabel),
            ("*.test", NameError::Character(b'*')),
            ("a test", NameError::Character(b' ')),
            ("a\0.test", NameError::Character(0)),
            ("bücher.test", NameError::Character(0xc3)),
            ("a.test:443", NameError::Character(b':')),
        ] {
            assert_eq!(check(name.as_bytes()), Err(reason), "{name:?}");
        }
    }

    #[test]
    fn names_in_use_pass() {
        for name in ["xn--bcher-kva.test", "_acme-challenge.test", "r3---sn-.test", "1.test", "localhost"] {
            assert_eq!(check(name.as_bytes()), Ok(name));
        }
    }
}
