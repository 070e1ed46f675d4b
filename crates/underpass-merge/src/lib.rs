//! How a write changes a document, and who owns which field of it.
//!
//! Three patch types turn a document into the next one: [`json_patch`] (RFC 6902), [`merge_patch`] (RFC 7386) and
//! [`strategic_merge_patch`] (Kubernetes' own kinds). The fourth, [`apply`], is server-side apply: it also keeps
//! `metadata.managedFields`. Every other write is followed by [`track_update`], which gives the changed fields to their writer.
//!
//! Everything is a pure function over JSON documents and a [`Schema`](underpass_schema::Schema); the time is an argument.
//! Nothing here validates beyond what merging needs: defaults, pruning and validation are the schema's business.
//!
//! The modules, from the bottom up: `path` names one step to a field, `fieldset` is a set of fields and `fields_v1` its text;
//! `node` reads the schema as ownership sees it; `walk`, `compare`, `merge` and `check` walk documents by it; `managed` is the
//! list of owners; `update`, `apply` and `last_applied` are the rules of the game.

mod apply;
mod check;
mod compare;
mod fields_v1;
mod fieldset;
mod json_patch;
mod last_applied;
mod managed;
mod merge;
mod merge_patch;
mod node;
mod path;
mod strategic;
mod strategic_list;
mod update;
mod walk;

pub use apply::{ApplyError, Conflict, apply};
pub use check::{InvalidObject, Problem};
pub use compare::{Comparison, compare};
pub use fields_v1::FieldsError;
pub use fieldset::FieldSet;
pub use json_patch::{JsonPatchError, MAX_OPERATIONS, json_patch, unknown_members};
pub use managed::{DecodeError, Manager, keep_times_if_unchanged};
pub use merge::merge;
pub use merge_patch::merge_patch;
pub use path::{PathElement, Scalar, path_text};
pub use strategic::{StrategicError, StrategicProblem, strategic_merge_patch};
pub use update::track_update;
pub use walk::to_field_set;
