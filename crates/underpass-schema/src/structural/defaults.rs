//! A default must be a value that the schema would accept from a person, unchanged.

use super::{Check, OBJECT_FIELDS, each_below};
use crate::keywords::Walk;
use crate::rules::check_at;
use crate::validate::Patterns;
use crate::{Path, Schema};

impl Check {
    pub(super) fn defaults(&mut self, schema: &Schema, path: &Path) {
        for name in OBJECT_FIELDS {
            if let Some(node) = schema.properties.get(name) {
                self.no_defaults(node, &path.field("properties").key(name), name);
            }
        }
        self.default(schema, path);
    }

    fn no_defaults(&mut self, schema: &Schema, path: &Path, within: &str) {
        if schema.default.is_some() {
            self.forbidden(&path.field("default"), &format!("must not be set in top-level {within}"));
        }
        each_below(schema, path, &mut |node, path, _| self.no_defaults(node, path, within));
    }

    fn default(&mut self, schema: &Schema, path: &Path) {
        if let Some(default) = &schema.default {
            let path = path.field("default");
            let mut value = default.clone();
            let unknown = schema.prune(&mut value);
            if !unknown.is_empty() {
                let detail = format!("must not have unknown fields: {}", unknown.join(", "));
                return self.invalid(&path, default, &detail);
            }
            // Not filled up first: a default that relies on those below it is refused, as in Kubernetes.
            let patterns = Patterns::of(schema);
            let mut walk = Walk::new(&patterns);
            walk.node(schema, &value, None, &path);
            self.errors.extend(walk.errors);
            self.errors.extend(check_at(schema, &value, &path));
        }
        each_below(schema, path, &mut |node, path, _| self.default(node, path));
    }
}
