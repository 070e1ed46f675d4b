//! Texts with a meaning: each is a string on the wire, a type of its own in Rust, and one schema with one message.
//!
//! The check is a CEL rule and not a `pattern`, because a rule can say what to write instead of showing a regular expression. A stored
//! object always deserializes: whether a text is well-formed was decided when it was applied, and a reader that wants the parsed value
//! asks for it and gets an `Option`. Parsing in serde was rejected: one old object would then break every list of its kind.

/// Declares a text type: its longest length, the CEL rule that it must satisfy, and what to tell who breaks it.
macro_rules! text {
    ($(#[$doc:meta])* $name:ident, max $max:literal, rule $rule:expr, says $says:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            /// The longest that it may be.
            pub const MAX_LENGTH: usize = $max;
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string",
                    "maxLength": $max,
                    "x-kubernetes-validations": [{ "rule": $rule, "message": $says }],
                })
            }
        }

        impl std::ops::Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }
    };
}

pub(crate) use text;
