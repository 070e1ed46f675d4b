//! Where an object of the API stands, or would, and how it is named there.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Of a label's value, and of a Service's name.
pub(crate) const LABEL_LENGTH: usize = 63;
/// Of most names.
pub(crate) const NAME_LENGTH: usize = 253;

/// A kind of Kubernetes as it is addressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectKind {
    pub api_version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
}

/// Where one object stands, or would.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    #[serde(flatten)]
    pub kind: ObjectKind,
    pub namespace: String,
    pub name: String,
}

/// What an object says of itself where it was found.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    api_version: String,
    kind: String,
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    namespace: String,
    name: String,
}

impl Place {
    pub(crate) fn is_of(&self, object: &Value) -> bool {
        let Ok(Named { api_version, kind, metadata }) = Named::deserialize(object) else { return false };
        (api_version.as_str(), kind.as_str()) == (self.kind.api_version, self.kind.kind)
            && (metadata.namespace, metadata.name) == (self.namespace.clone(), self.name.clone())
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind.kind, self.namespace, self.name)
    }
}

pub(crate) const fn kind(api_version: &'static str, kind: &'static str, plural: &'static str) -> ObjectKind {
    ObjectKind { api_version, kind, plural }
}

/// What is too long ends in a hash of all of it, so that two do not become one.
pub(crate) fn bounded(name: &str, length: usize) -> String {
    if name.len() <= length {
        return name.to_owned();
    }
    let hash = hash(name.as_bytes());
    let kept = &name[..name.floor_char_boundary(length - 9)];
    format!("{}-{}", kept.trim_end_matches(['-', '.']), &hash[..8])
}

pub(crate) fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes)[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_stay_different() {
        let (one, other) = (format!("{}a", "x".repeat(70)), format!("{}b", "x".repeat(70)));
        assert_eq!(bounded(&one, 63).len(), 63);
        assert_ne!(bounded(&one, 63), bounded(&other, 63));
        assert_eq!(bounded("short", 63), "short");
    }
}
