//! What Pods are made of, shared by every kind that holds a template of them.

mod defaults;
mod validate;

pub(crate) use defaults::{default, default_template};
pub(crate) use validate::{validate, validate_template};

/// The lists of containers of a Pod.
pub(crate) const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
