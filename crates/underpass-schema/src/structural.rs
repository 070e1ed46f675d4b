//! The rules by which kube-apiserver refuses a CustomResourceDefinition's schema.

use serde_json::{Value, json};

use crate::keywords::Walk;
use crate::rules::{check_at, compile_rules};
use crate::validate::Patterns;
use crate::{AdditionalProperties, FieldError, ListType, MapType, Path, Rule, Schema, Type};

const REASONS: [&str; 4] = ["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"];

impl Schema {
    /// What keeps this schema, that of a whole object, from being served. Empty means that it is structural.
    pub fn check_structural(&self, path: &Path) -> Vec<FieldError> {
        let mut check = Check { errors: Vec::new() };
        match self.type_ {
            Some(Type::Object) => {}
            Some(other) => {
                let detail = "must be object at the root";
                check.errors.push(FieldError::invalid(&path.field("type"), &json!(other.as_str()), detail));
            }
            None => check.required(&path.field("type"), "must not be empty at the root"),
        }
        if self.nullable {
            check.forbidden(&path.field("nullable"), "nullable cannot be true at the root");
        }
        check.metadata(self, path);
        check.node(self, path, Place::Root);
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

    fn node(&mut self, schema: &Schema, path: &Path, place: Place) {
        self.type_(schema, path, place);
        self.object(schema, path);
        self.list(schema, path);
        self.pattern(schema, path);
        self.extensions(schema, path);
        self.junctors(schema, path);
        self.rules(schema, path, place);
        self.default(schema, path);
        self.below(schema, path);
    }

    fn below(&mut self, schema: &Schema, path: &Path) {
        let properties = path.field("properties");
        for (name, node) in &schema.properties {
            self.node(node, &properties.key(name), Place::Field);
        }
        if let Some(AdditionalProperties::Schema(node)) = &schema.additional_properties {
            self.node(node, &path.field("additionalProperties"), Place::Field);
        }
        if let Some(node) = &schema.items {
            self.node(node, &path.field("items"), Place::Items);
        }
    }

    fn type_(&mut self, schema: &Schema, path: &Path, place: Place) {
        let path = path.field("type");
        match (schema.type_, schema.int_or_string) {
            (Some(_), true) => self.forbidden(&path, "must be empty if x-kubernetes-int-or-string is true"),
            (None, false) if !schema.preserve_unknown_fields && place != Place::Root => {
                let what = if place == Place::Items { "array items" } else { "object fields" };
                self.required(&path, &format!("must not be empty for specified {what}"));
            }
            _ => {}
        }
    }

    fn object(&mut self, schema: &Schema, path: &Path) {
        let additional = path.field("additionalProperties");
        match (&schema.additional_properties, schema.properties.is_empty()) {
            (Some(AdditionalProperties::Any(false)), _) => {
                self.forbidden(&additional, "additionalProperties cannot be set to false");
            }
            (Some(_), false) => {
                self.forbidden(&additional, "additionalProperties and properties are mutual exclusive");
            }
            _ => {}
        }
        if schema.type_.is_some_and(|type_| type_ != Type::Object) {
            if !schema.properties.is_empty() {
                self.forbidden(&path.field("properties"), "must be empty if type is not object");
            }
            if schema.additional_properties.is_some() {
                self.forbidden(&additional, "must be empty if type is not object");
            }
        }
    }

    fn list(&mut self, schema: &Schema, path: &Path) {
        match (schema.type_, &schema.items) {
            (Some(Type::Array), None) => self.required(&path.field("items"), "must be specified"),
            (Some(Type::Array) | None, _) | (_, None) => {}
            (Some(_), Some(_)) => self.forbidden(&path.field("items"), "must be empty if type is not array"),
        }
        if schema.unique_items {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.forbidden(&path.field("uniqueItems"), detail);
        }
        self.list_type(schema, path);
    }

    fn list_type(&mut self, schema: &Schema, path: &Path) {
        let keys = path.field("x-kubernetes-list-map-keys");
        if schema.list_type.is_some() && schema.type_ != Some(Type::Array) {
            let type_ = json!(schema.type_name());
            self.invalid(&path.field("type"), &type_, "must be array if x-kubernetes-list-type is specified");
        }
        match (schema.list_type, schema.list_map_keys.is_empty()) {
            (Some(ListType::Map), true) => self.required(&keys, "must not be empty if x-kubernetes-list-type is map"),
            (Some(ListType::Map), false) => self.list_map(schema, path),
            (Some(ListType::Set), true) => self.list_set(schema, path),
            (_, false) => self.forbidden(&keys, "must be empty if x-kubernetes-list-type is not map"),
            _ => {}
        }
    }

    fn list_map(&mut self, schema: &Schema, path: &Path) {
        let keys = path.field("x-kubernetes-list-map-keys");
        let Some(items) = schema.items.as_deref() else { return };
        if items.type_ != Some(Type::Object) {
            let type_ = json!(items.type_name());
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            self.invalid(&path.field("items").field("type"), &type_, detail);
        }
        if items.nullable {
            let detail = "cannot be nullable when x-kubernetes-list-type is map";
            self.forbidden(&path.field("items").field("nullable"), detail);
        }
        for (index, key) in schema.list_map_keys.iter().enumerate() {
            if schema.list_map_keys[..index].contains(key) {
                self.errors.push(FieldError::new(
                    &keys.index(index),
                    crate::ErrorKind::Duplicate,
                    Some(&json!(key)),
                    "",
                ));
            }
            self.list_map_key(items, key, &keys.index(index), &path.field("items"));
        }
    }

    fn list_map_key(&mut self, items: &Schema, key: &str, key_path: &Path, items_path: &Path) {
        let Some(node) = items.properties.get(key) else {
            return self.invalid(key_path, &json!(key), "entries must all be names of item properties");
        };
        let path = items_path.field("properties").key(key);
        if matches!(node.type_, Some(Type::Object | Type::Array)) {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            self.invalid(&path.field("type"), &json!(node.type_name()), detail);
        }
        if node.nullable {
            self.forbidden(&path.field("nullable"), "cannot be nullable: it is a key of a list of type map");
        }
        if !items.required.iter().any(|name| name == key) && node.default.is_none() {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            self.required(&path.field("default"), detail);
        }
    }

    fn list_set(&mut self, schema: &Schema, path: &Path) {
        let Some(items) = schema.items.as_deref() else { return };
        let path = path.field("items");
        if items.nullable {
            self.forbidden(&path.field("nullable"), "cannot be nullable when x-kubernetes-list-type is set");
        }
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        if items.type_ == Some(Type::Object) && items.map_type != Some(MapType::Atomic) {
            self.invalid(&path.field("x-kubernetes-map-type"), &json!(""), detail);
        }
        if items.type_ == Some(Type::Array) && items.list_type != Some(ListType::Atomic) {
            self.invalid(&path.field("x-kubernetes-list-type"), &json!(""), detail);
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
        let type_ = json!(schema.type_name());
        if schema.preserve_unknown_fields && schema.type_.is_some_and(|type_| type_ != Type::Object) {
            let detail = "must be object or empty if x-kubernetes-preserve-unknown-fields is true";
            self.invalid(&path.field("type"), &type_, detail);
        }
        if schema.map_type.is_some() && schema.type_ != Some(Type::Object) {
            self.invalid(&path.field("type"), &type_, "must be object if x-kubernetes-map-type is specified");
        }
        if schema.embedded_resource {
            self.embedded(schema, path);
        }
    }

    fn embedded(&mut self, schema: &Schema, path: &Path) {
        match schema.type_ {
            Some(Type::Object) => {}
            Some(other) => {
                let detail = "must be object if x-kubernetes-embedded-resource is true";
                self.invalid(&path.field("type"), &json!(other.as_str()), detail);
            }
            None => self.required(&path.field("type"), "must be object if x-kubernetes-embedded-resource is true"),
        }
        if schema.properties.is_empty() && !schema.preserve_unknown_fields {
            let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
            self.required(&path.field("properties"), detail);
        }
        self.metadata(schema, path);
    }

    /// An object's metadata is Kubernetes' own; a schema may only narrow its names.
    fn metadata(&mut self, schema: &Schema, path: &Path) {
        let Some(metadata) = schema.properties.get("metadata") else { return };
        let path = path.field("properties").key("metadata");
        let mut bare = metadata.clone();
        bare.description = None;
        bare.type_ = None;
        bare.properties.retain(|name, _| name != "name" && name != "generateName");
        if bare != Schema::default() {
            let detail =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            self.forbidden(&path, detail);
        }
        if metadata.type_ != Some(Type::Object) {
            self.invalid(&path.field("type"), &json!(metadata.type_name()), "must be object");
        }
    }

    fn junctors(&mut self, schema: &Schema, path: &Path) {
        for (name, branches) in [("allOf", &schema.all_of), ("anyOf", &schema.any_of), ("oneOf", &schema.one_of)] {
            for (index, branch) in branches.iter().enumerate() {
                self.branch(branch, schema, &path.field(name).index(index));
            }
        }
        if let Some(branch) = &schema.not {
            self.branch(branch, schema, &path.field("not"));
        }
    }

    /// A branch only judges values: whatever gives structure must stand outside of it, and what it judges must be declared there.
    fn branch(&mut self, branch: &Schema, structure: &Schema, path: &Path) {
        self.pattern(branch, path);
        let structural = [
            ("type", branch.type_.is_some() && !structure.int_or_string),
            ("description", branch.description.is_some()),
            ("default", branch.default.is_some()),
            ("nullable", branch.nullable),
            ("additionalProperties", branch.additional_properties.is_some()),
            ("x-kubernetes-preserve-unknown-fields", branch.preserve_unknown_fields),
            ("x-kubernetes-embedded-resource", branch.embedded_resource),
            ("x-kubernetes-int-or-string", branch.int_or_string),
            ("x-kubernetes-list-type", branch.list_type.is_some()),
            ("x-kubernetes-list-map-keys", !branch.list_map_keys.is_empty()),
            ("x-kubernetes-map-type", branch.map_type.is_some()),
            ("x-kubernetes-validations", !branch.rules.is_empty()),
        ];
        for (name, _) in structural.iter().filter(|(_, present)| *present) {
            self.forbidden(&path.field(name), "must be empty to be structural");
        }
        for (name, node) in &branch.properties {
            let path = path.field("properties").key(name);
            match structure.field(name) {
                Some(declared) => self.branch(node, declared, &path),
                None if structure.preserve_unknown_fields => {}
                None => self.required(&path, "must be specified in the structure outside of this branch, too"),
            }
        }
        if let (Some(node), Some(declared)) = (&branch.items, &structure.items) {
            self.branch(node, declared, &path.field("items"));
        }
        let nested = [("allOf", &branch.all_of), ("anyOf", &branch.any_of), ("oneOf", &branch.one_of)];
        for (name, branches) in nested {
            for (index, nested) in branches.iter().enumerate() {
                self.branch(nested, structure, &path.field(name).index(index));
            }
        }
        if let Some(nested) = &branch.not {
            self.branch(nested, structure, &path.field("not"));
        }
    }

    fn rules(&mut self, schema: &Schema, path: &Path, place: Place) {
        let path = path.field("x-kubernetes-validations");
        let whole_object = place == Place::Root || schema.embedded_resource;
        for (index, compiled) in compile_rules(schema, whole_object).into_iter().enumerate() {
            let (rule, path) = (&schema.rules[index], path.index(index));
            self.rule_words(rule, &path);
            if rule.rule.trim().is_empty() {
                self.required(&path.field("rule"), "rule is not specified");
            } else if let Err(error) = &compiled.program {
                self.invalid(&path.field("rule"), &json!(rule.rule), error);
            } else if rule.optional_old_self && !compiled.is_transition() {
                let detail = "may not be set if oldSelf is not used in rule";
                self.invalid(&path.field("optionalOldSelf"), &json!(true), detail);
            }
            if let Some(Err(error)) = &compiled.message {
                let detail = format!("messageExpression {error}");
                self.invalid(&path.field("messageExpression"), &json!(rule.message_expression), &detail);
            }
            if let Some(Err(error)) = &compiled.field_path {
                self.invalid(&path.field("fieldPath"), &json!(rule.field_path), error);
            }
        }
    }

    fn rule_words(&mut self, rule: &Rule, path: &Path) {
        if let Some(message) = &rule.message {
            if message.trim().is_empty() {
                self.invalid(&path.field("message"), &json!(message), "message must be non-empty if specified");
            } else if message.trim().contains('\n') {
                self.invalid(&path.field("message"), &json!(message), "message must not contain line breaks");
            }
        } else if rule.rule.trim().contains('\n') && rule.message_expression.is_none() {
            self.required(&path.field("message"), "message must be specified if rule contains line breaks");
        }
        if let Some(reason) = rule.reason.as_deref().filter(|reason| !REASONS.contains(reason)) {
            let known: Vec<_> = REASONS.iter().map(|reason| format!("{reason:?}")).collect();
            let detail = format!("supported values: {}", known.join(", "));
            let kind = crate::ErrorKind::NotSupported;
            self.errors.push(FieldError::new(&path.field("reason"), kind, Some(&json!(reason)), detail));
        }
    }

    /// A default must be a value that the schema would accept from a person, unchanged.
    fn default(&mut self, schema: &Schema, path: &Path) {
        let Some(default) = &schema.default else { return };
        let path = path.field("default");
        let mut pruned = default.clone();
        let unknown = schema.prune(&mut pruned);
        if !unknown.is_empty() {
            let detail = format!("must not have unknown fields: {}", unknown.join(", "));
            return self.invalid(&path, default, &detail);
        }
        schema.default_into(&mut pruned);
        let patterns = Patterns::of(schema);
        let mut walk = Walk::new(&patterns);
        walk.node(schema, &pruned, None, &path);
        self.errors.extend(walk.errors);
        self.errors.extend(check_at(schema, &pruned, &path));
    }
}
