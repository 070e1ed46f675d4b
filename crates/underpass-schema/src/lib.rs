//! Structural schemas, as a CustomResourceDefinition carries them and as Kubernetes' own kinds have them.
//!
//! A document goes through [`Schema::prune`] (drop what is not declared), [`Schema::default_into`] (fill what is left out) and
//! [`Schema::validate`] / [`Schema::validate_update`] (say what is wrong, field by field), in this order. A schema that judges more
//! than one document is put into a [`Validator`], which compiles its patterns and rules once. Everything here is pure: no clock, no
//! I/O, no async.

mod cel;
mod default;
mod error;
mod field_path;
mod format;
mod keywords;
mod parse;
mod prune;
mod rules;
mod schema;
mod structural;
mod validate;
mod write;

pub use error::{ErrorKind, FieldError, Path};
pub use schema::{AdditionalProperties, ListType, MapType, Rule, Schema, Type};
pub use validate::Validator;
