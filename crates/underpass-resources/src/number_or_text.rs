//! A number or a text, as manifests have it where both are allowed (`x-kubernetes-int-or-string`).
//!
//! Kubernetes' own type has room for 32 bits. Its servers take more than that, and one object with more would break every list of its kind
//! (see [`crate::text`]).

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum NumberOrText {
    Number(serde_json::Number),
    Text(String),
}

impl fmt::Display for NumberOrText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl From<i32> for NumberOrText {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}

impl From<&str> for NumberOrText {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_that_a_server_takes_can_be_read_and_is_written_as_it_was() {
        for text in ["1", "4294967296", "9223372036854775807", "18446744073709551615", "-1", "0.5", "\"500m\""] {
            let read: NumberOrText = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
            assert_eq!(read.to_string(), text.trim_matches('"'));
        }
    }
}
