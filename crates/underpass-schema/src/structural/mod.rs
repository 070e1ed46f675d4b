//! The rules by which kube-apiserver refuses a CustomResourceDefinition's schema.
//!
//! Three passes, each only where the ones before found nothing: the shape of the schema, the CEL rules against that shape, the defaults
//! against shape and rules. Otherwise one mistake would be reported as many.

mod branches;
mod defaults;
mod lists;
mod rules;

use serde_json::{Value, json};

use crate::{AdditionalProperties, FieldError, Path, Schema, Type};

/// What every object has; Kubernetes says what it looks like, not the schema.
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Schema {
    /// What keeps this schema, that of a whole object, from being served. Empty means that it can be.
    pub fn check_structural(&self, path: &Path) -> Vec<FieldError> {
        let mut check = Check { errors: Vec::new(), cost: 0 };
        check.root(self, path);
        check.node(self, path, Place::Root);
        if check.errors.is_empty() {
            check.rules(self, path);
        }
        if check.errors.is_empty() {
            check.defaults(self, path);
        }
        check.errors
    }
}

/// Where a node stands decides what its missing type is called.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Field,
    Items,
}

struct Check {
    errors: Vec<FieldError>,
    /// Of all rules so far.
    cost: u64,
}

impl Check {
    fn required(&mut self, path: &Path, detail: &str) {
        self.errors.push(FieldError::required(path, detail));
    }

    fn forbidden(&mut self, path: &Path, detail: &str) {
        self.errors.push(FieldError::forbidden(path, detail));
    }

    fn invalid(&mut self, path: &Path, value: &Value, detail: &str) {
        self.errors.push(FieldError::invalid(path, value, detail));
    }

    fn root(&mut self, schema: &Schema, path: &Path) {
        if schema.type_.is_some_and(|type_| type_ != Type::Object) {
            self.invalid(&path.field("type"), &json!(schema.type_name()), "must be object at the root");
        }
        if schema.nullable {
            self.forbidden(&path.field("nullable"), "nullable cannot be true at the root");
        }
        if schema.additional_properties.is_some() {
            self.forbidden(&path.field("additionalProperties"), "must not be used at the root");
        }
        if schema.properties.get("metadata").is_some_and(|metadata| !only_names(metadata)) {
            let detail =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            self.forbidden(&path.field("properties").key("metadata"), detail);
        }
        self.identity(schema, path);
        self.complete_branches(schema, path);
    }

    fn node(&mut self, schema: &Schema, path: &Path, place: Place) {
        self.type_(schema, path, place);
        self.object(schema, path);
        self.list(schema, path);
        self.pattern(schema, path);
        self.extensions(schema, path);
        self.branches(schema, path);
        each_below(schema, path, &mut |node, path, place| self.node(node, path, place));
    }

    fn type_(&mut self, schema: &Schema, path: &Path, place: Place) {
        // An embedded resource has its own words for a missing type.
        let declared = schema.type_.is_some() || schema.int_or_string || schema.preserve_unknown_fields;
        if declared || schema.embedded_resource {
            return;
        }
        let detail = match place {
            Place::Root => "must not be empty at the root",
            Place::Field => "must not be empty for specified object fields",
            Place::Items => "must not be empty for specified array items",
        };
        self.required(&path.field("type"), detail);
    }

    fn object(&mut self, schema: &Schema, path: &Path) {
        let open = matches!(schema.additional_properties, None | Some(AdditionalProperties::Any(true)));
        if !schema.properties.is_empty() && !open {
            let detail = "additionalProperties and properties are mutual exclusive";
            self.forbidden(&path.field("additionalProperties"), detail);
        }
        if schema.map_type.is_some() {
            self.type_for(schema, Type::Object, path, "must be object if x-kubernetes-map-type is specified");
        }
    }

    fn pattern(&mut self, schema: &Schema, path: &Path) {
        if let Some(pattern) = &schema.pattern
            && let Err(error) = regex::Regex::new(pattern)
        {
            let reason = error.to_string().lines().last().unwrap_or_default().to_owned();
            let detail = format!("must be a valid regular expression, but isn't: {reason}");
            self.invalid(&path.field("pattern"), &json!(pattern), &detail);
        }
    }

    fn extensions(&mut self, schema: &Schema, path: &Path) {
        let exclusive = [
            ("x-kubernetes-preserve-unknown-fields", schema.preserve_unknown_fields),
            ("x-kubernetes-embedded-resource", schema.embedded_resource),
        ];
        for (name, _) in exclusive.iter().filter(|(_, set)| *set && schema.int_or_string) {
            self.invalid(&path.field(name), &json!(true), "must be false if x-kubernetes-int-or-string is true");
        }
        if schema.embedded_resource {
            self.embedded(schema, path);
        }
    }

    fn embedded(&mut self, schema: &Schema, path: &Path) {
        self.type_for(schema, Type::Object, path, "must be object if x-kubernetes-embedded-resource is true");
        if schema.additional_properties.is_some() {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            self.forbidden(&path.field("additionalProperties"), detail);
        }
        if schema.properties.is_empty() && !schema.preserve_unknown_fields {
            let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
            self.required(&path.field("properties"), detail);
        }
        self.identity(schema, path);
    }

    /// The types of what every object has, where the schema repeats them.
    fn identity(&mut self, schema: &Schema, path: &Path) {
        for name in OBJECT_FIELDS {
            let (want, detail) =
                if name == "metadata" { (Type::Object, "must be object") } else { (Type::String, "must be string") };
            if let Some(node) = schema.properties.get(name).filter(|node| node.type_ != Some(want)) {
                let path = path.field("properties").key(name).field("type");
                self.invalid(&path, &json!(node.type_name()), detail);
            }
        }
    }

    /// A keyword that needs a type.
    fn type_for(&mut self, schema: &Schema, want: Type, path: &Path, detail: &str) {
        match schema.type_ {
            Some(type_) if type_ == want => {}
            Some(_) => self.invalid(&path.field("type"), &json!(schema.type_name()), detail),
            None => self.required(&path.field("type"), detail),
        }
    }
}

/// Calls `visit` with the nodes directly below, the branches of junctors left out.
fn each_below(schema: &Schema, path: &Path, visit: &mut impl FnMut(&Schema, &Path, Place)) {
    let properties = path.field("properties");
    for (name, node) in &schema.properties {
        visit(node, &properties.key(name), Place::Field);
    }
    if let Some(AdditionalProperties::Schema(node)) = &schema.additional_properties {
        visit(node, &path.field("additionalProperties"), Place::Field);
    }
    if let Some(node) = &schema.items {
        visit(node, &path.field("items"), Place::Items);
    }
}

/// An object's metadata is Kubernetes' own; a schema may only narrow its names.
fn only_names(metadata: &Schema) -> bool {
    let mut rest = metadata.clone();
    (rest.description, rest.type_, rest.default) = (None, None, None);
    rest.properties.retain(|name, _| name != "name" && name != "generateName");
    rest == Schema::default()
}
