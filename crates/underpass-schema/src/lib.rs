//! Structural schemas, as a CustomResourceDefinition carries them and as Kubernetes' own kinds have them.
//!
//! A document goes through [`Schema::prune`] (drop what is not declared), [`Schema::default_into`] (fill what is left out) and
//! [`Schema::validate`] / [`Schema::validate_update`] (say what is wrong, field by field), in this order. Everything here is pure:
//! no clock, no I/O, no async.

mod error;
mod schema;

pub use error::{ErrorKind, FieldError, Path};
pub use schema::{AdditionalProperties, ListType, MapType, Rule, Schema, Type};
