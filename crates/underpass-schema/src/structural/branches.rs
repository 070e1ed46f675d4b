//! `allOf`, `anyOf`, `oneOf`, `not`: their branches judge values and may not give structure.

use super::Check;
use crate::{Path, Schema, Type};

impl Check {
    pub(super) fn branches(&mut self, schema: &Schema, path: &Path) {
        each_branch(schema, path, &mut |branch, path| self.branch(branch, path));
    }

    fn branch(&mut self, branch: &Schema, path: &Path) {
        self.pattern(branch, path);
        let structure = [
            ("type", branch.type_.is_some(), "empty"),
            ("additionalProperties", branch.additional_properties.is_some(), "undefined"),
            ("default", branch.default.is_some(), "undefined"),
            ("description", branch.description.is_some(), "empty"),
            ("nullable", branch.nullable, "false"),
            ("x-kubernetes-preserve-unknown-fields", branch.preserve_unknown_fields, "false"),
            ("x-kubernetes-embedded-resource", branch.embedded_resource, "false"),
            ("x-kubernetes-int-or-string", branch.int_or_string, "false"),
            ("x-kubernetes-list-map-keys", !branch.list_map_keys.is_empty(), "empty"),
            ("x-kubernetes-list-type", branch.list_type.is_some(), "undefined"),
            ("x-kubernetes-map-type", branch.map_type.is_some(), "undefined"),
            ("x-kubernetes-validations", !branch.rules.is_empty(), "empty"),
        ];
        for (name, _, want) in structure.iter().filter(|(_, given, _)| *given) {
            self.forbidden(&path.field(name), &format!("must be {want} to be structural"));
        }
        let properties = path.field("properties");
        if branch.properties.contains_key("metadata") {
            self.forbidden(&properties.key("metadata"), "must not be specified in a nested context");
        }
        for (name, node) in &branch.properties {
            self.branch(node, &properties.key(name));
        }
        if let Some(node) = &branch.items {
            self.branch(node, &path.field("items"));
        }
        self.branches(branch, path);
    }

    /// Whatever a branch of the root talks about must be declared outside of it, too.
    pub(super) fn complete_branches(&mut self, schema: &Schema, path: &Path) {
        self.complete(schema, schema, path, path);
    }

    /// `schema_path` is where the structure stands, `path` where the branch does.
    fn complete(&mut self, branch: &Schema, schema: &Schema, schema_path: &Path, path: &Path) {
        each_branch(branch, path, &mut |nested, path| {
            self.complete_fields(nested, schema, schema_path, path);
            self.complete(nested, schema, schema_path, path);
        });
    }

    fn complete_fields(&mut self, branch: &Schema, schema: &Schema, schema_path: &Path, path: &Path) {
        let fields = branch.properties.iter().map(|(name, node)| {
            let step = |path: &Path| path.field("properties").key(name);
            (node, schema.properties.get(name), step(schema_path), step(path))
        });
        let step = |path: &Path| path.field("items");
        let items = branch.items.iter().map(|node| (&**node, schema.items.as_deref(), step(schema_path), step(path)));
        for (node, declared, schema_path, path) in fields.chain(items).collect::<Vec<_>>() {
            let Some(declared) = declared else {
                self.required(&schema_path, &format!("because it is defined in {path}"));
                continue;
            };
            self.complete_fields(node, declared, &schema_path, &path);
            self.complete(node, declared, &schema_path, &path);
        }
    }
}

fn each_branch(schema: &Schema, path: &Path, visit: &mut impl FnMut(&Schema, &Path)) {
    for (name, branches) in [("allOf", &schema.all_of), ("anyOf", &schema.any_of), ("oneOf", &schema.one_of)] {
        if name == "anyOf" && is_int_or_string(branches) {
            continue;
        }
        for (index, branch) in branches.iter().enumerate() {
            visit(branch, &path.field(name).index(index));
        }
    }
    if let Some(branch) = &schema.not {
        visit(branch, &path.field("not"));
    }
}

/// The one place where branches may have types: how int-or-string is said to readers of OpenAPI that do not know our extension.
fn is_int_or_string(branches: &[Schema]) -> bool {
    let of_type = |type_| Schema { type_: Some(type_), ..Schema::default() };
    branches == [of_type(Type::Integer), of_type(Type::String)]
}
