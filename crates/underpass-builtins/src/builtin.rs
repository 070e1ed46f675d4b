//! What the server knows about one kind.

use std::sync::OnceLock;

use jiff::Timestamp;
use schemars::SchemaGenerator;
use serde_json::Value;
use underpass_schema::{FieldError, Schema, Validator};

use crate::{definitions, names, shape, tree};

/// One stored kind. Built in `kinds/<kind>.rs`, listed by [`crate::all`].
pub struct Builtin {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub namespaced: bool,
    /// Has the `status` subresource.
    pub status: bool,
    /// Has the `scale` subresource (autoscaling/v1).
    pub scale: bool,
    /// Whether `metadata.generation` counts the changes of the spec. Many of the older kinds never got it.
    pub generation: bool,
    /// Where objects are stored. The two Event kinds share one bucket, in the shape of core/v1.
    pub bucket: &'static str,
    /// The name in the OpenAPI definitions.
    pub definition: &'static str,
    pub columns: &'static [Column],
    pub(crate) name: fn(&str) -> Vec<String>,
    pub(crate) define: fn(&mut SchemaGenerator),
    pub(crate) row: fn(&Value, Timestamp) -> Vec<Value>,
    pub(crate) prepare_update: fn(&mut Value, &Value),
    pub(crate) default: fn(&mut Value),
    pub(crate) validate: fn(&Value, Option<&Value>) -> Vec<FieldError>,
    pub(crate) built: OnceLock<Validator>,
}

/// One column of the table that `kubectl get` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    pub type_: &'static str,
    pub format: &'static str,
    pub description: &'static str,
    /// 0: always shown; 1: shown by `-o wide`.
    pub priority: i32,
}

/// A kind that is asked, not stored: POST a question, the answer comes back in `status`.
#[derive(Debug, Clone, Copy)]
pub struct Review {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub definition: &'static str,
    pub(crate) define: fn(&mut SchemaGenerator),
}

impl Builtin {
    /// `v1`, `apps/v1`
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The whole shape of a document: properties, keys of lists, patch strategies, atomic maps. Built on first use and kept without
    /// descriptions, which only [`crate::definitions`] needs.
    pub fn schema(&self) -> &Schema {
        self.validator().schema()
    }

    /// What is wrong with the shape of a document.
    pub fn validator(&self) -> &Validator {
        self.built.get_or_init(|| Validator::new(tree::schema(&definitions::of(&[self.define]), self.definition)))
    }

    /// The cells of one row, in the order of `columns`.
    pub fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        (self.row)(object, now)
    }

    /// Takes over from the stored object what an update may leave out, and drops what it cannot mean. To be called before
    /// [`Self::default`], on updates of the main resource only.
    pub fn prepare_update(&self, new: &mut Value, old: &Value) {
        (self.prepare_update)(new, old);
    }

    /// Fills what Kubernetes fills without looking at any other object, and drops what it would not write: see [`shape`].
    pub fn default(&self, object: &mut Value) {
        shape::settle_nulls(self.schema(), object);
        (self.default)(object);
        shape::omit_empty(self.schema(), object);
    }

    /// What is wrong beyond the schema, in Kubernetes' words; `old` is given for updates. The object has its defaults already. The
    /// name and the rest of `metadata` are not looked at: see [`Self::wrong_name`].
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        (self.validate)(new, old)
    }

    /// Why `name` cannot be the name of an object of this kind.
    pub fn wrong_name(&self, name: &str) -> Option<String> {
        let wrong = (self.name)(name);
        if wrong.is_empty() { None } else { Some(wrong.join(", ")) }
    }

    /// The same for the start of a name that the server completes (`metadata.generateName`): a dash may end it.
    pub fn wrong_name_prefix(&self, prefix: &str) -> Option<String> {
        self.wrong_name(&names::complete(prefix))
    }
}

impl Column {
    pub(crate) const fn text(name: &'static str, description: &'static str) -> Self {
        Self { name, type_: "string", format: "", description, priority: 0 }
    }

    pub(crate) const fn name(description: &'static str) -> Self {
        Self { name: "Name", type_: "string", format: "name", description, priority: 0 }
    }

    pub(crate) const fn age() -> Self {
        Self::text("Age", "Time since the object was created.")
    }

    #[must_use]
    pub(crate) const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }
}
