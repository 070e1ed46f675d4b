//! Kubernetes' own kinds as data: names, schemas, columns, defaults, checks.
//!
//! An API server asks this crate what a kind is called, how its document is shaped ([`Builtin::schema`]), what is filled in when left
//! out ([`Builtin::default`]), what is wrong with it beyond its shape ([`Builtin::validate`]) and how `kubectl get` shows it
//! ([`Builtin::row`]). Nothing is stored, nothing is read: the object and the time are arguments.
//!
//! The shapes come from k8s-openapi at run time, so they follow one Kubernetes release with all its descriptions. What Rust types
//! cannot say (keys of lists, patch strategies, atomic maps) is the table in `facts.rs`, checked against Kubernetes' published
//! OpenAPI. Keeping that OpenAPI document in the tree instead was rejected: four megabytes to carry, and a second source of truth.

// Tests write their documents in place, as arguments.
#![cfg_attr(test, allow(clippy::needless_pass_by_value))]

mod builtin;
mod cells;
mod checks;
mod choices;
mod definitions;
mod facts;
mod fields;
mod kinds;
pub mod names;
mod pod_spec;
pub mod protobuf;
mod quantity;
mod selector;
pub mod shape;
mod tree;

pub use builtin::{Builtin, Column, Review};
pub use cells::duration;
pub use definitions::definitions;
pub use kinds::custom_resource_definition::{Approval, approval};
pub use kinds::event::{bare_event, convert_event};
pub use kinds::{all, reviews};
