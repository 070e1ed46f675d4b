//! Definitions for a document: Kubernetes' own, and those of custom resources in the dress of Kubernetes.
//!
//! OpenAPI v2 has no `nullable`, `oneOf`, `anyOf` and `not`, and kubectl takes `properties` as a complete list. So for v2 a schema
//! is widened until every object that the server takes also passes there. The rules are Kubernetes' own, so that kubectl behaves
//! alike.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::registry::{Custom, Origin, Resource};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// A kind whose `apiVersion`, `kind` and `metadata` are described as in every kind of Kubernetes.
const EXAMPLE: &str = "io.k8s.api.core.v1.ConfigMap";

/// Keywords that say nothing about the value; Kubernetes does not publish them.
const UNPUBLISHED: [&str; 4] = ["$schema", "id", "example", "externalDocs"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    V2,
    V3,
}

/// The definitions of one document, completed as references to them are made.
pub(super) struct Schemas {
    pub(super) dialect: Dialect,
    builtin: &'static Map<String, Value>,
    custom: BTreeMap<String, Value>,
    written: Map<String, Value>,
}

/// The name of a resource's definition: of the kind itself, as others refer to it.
pub(super) fn definition_name(resource: &Resource) -> String {
    match &resource.origin {
        Origin::Builtin(builtin) => builtin.definition.to_owned(),
        Origin::Custom(_) => custom_name(resource, &resource.kind),
    }
}

pub(super) fn list_definition_name(resource: &Resource) -> String {
    match &resource.origin {
        Origin::Builtin(builtin) => format!("{}List", builtin.definition),
        Origin::Custom(_) => custom_name(resource, &resource.list_kind),
    }
}

/// `dev.underpass.v1alpha1.ContainerNetwork`
fn custom_name(resource: &Resource, kind: &str) -> String {
    let reversed: Vec<&str> = resource.group.rsplit('.').collect();
    format!("{}.{}.{kind}", reversed.join("."), resource.version)
}

/// A definition of `meta/v1`.
pub(super) fn meta(kind: &str) -> String {
    format!("{META}{kind}")
}

impl Schemas {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { dialect, builtin: underpass_builtins::definitions(), custom: BTreeMap::new(), written: Map::new() }
    }

    /// Makes the definitions of a custom resource known.
    pub(super) fn add_custom(&mut self, resource: &Resource) {
        if let Some(custom) = resource.custom() {
            self.custom.insert(definition_name(resource), self.custom_kind(resource, custom));
            self.custom.insert(list_definition_name(resource), self.custom_list(resource, custom));
        }
    }

    /// A reference to a definition, which thereby becomes part of the document.
    pub(super) fn reference(&mut self, name: &str) -> Value {
        let prefix = self.dialect.prefix();
        let mut wanted = vec![name.to_owned()];
        while let Some(name) = wanted.pop() {
            if self.written.contains_key(&name) {
                continue;
            }
            let definition = self.custom.remove(&name).or_else(|| self.builtin.get(&name).map(|d| self.schema(d)));
            // A name that nobody defines is still a place that references may lead to: anything fits.
            let definition = definition.unwrap_or_else(|| json!({ "type": "object" }));
            references(&definition, &mut |reference| wanted.extend(reference.strip_prefix(prefix).map(str::to_owned)));
            self.written.insert(name, definition);
        }
        json!({ "$ref": format!("{prefix}{name}") })
    }

    pub(super) fn finish(self) -> Map<String, Value> {
        self.written
    }

    fn custom_kind(&self, resource: &Resource, custom: &Custom) -> Value {
        let open = self.dialect == Dialect::V2 && custom.schema.preserve_unknown_fields;
        let mut definition = match &custom.published {
            Some(schema) if !open => {
                let mut definition = self.schema(schema);
                self.add_object_fields(&mut definition);
                definition
            }
            // Not even `metadata` is listed: kubectl would refuse everything else.
            _ => json!({ "type": "object" }),
        };
        add_extensions(&mut definition, resource, custom, &resource.kind);
        definition
    }

    fn custom_list(&self, resource: &Resource, custom: &Custom) -> Value {
        let example = &self.builtin[&format!("{EXAMPLE}List")]["properties"]["metadata"]["description"];
        let kind = definition_name(resource);
        let mut list = self.schema(&json!({
            "type": "object",
            "description": format!("{} is a list of {} objects.", resource.list_kind, resource.kind),
            "required": ["items"],
            "properties": {
                "items": {
                    "type": "array",
                    "description": format!("The {}.", resource.plural),
                    "items": { "$ref": format!("{}{kind}", Dialect::V2.prefix()) },
                },
                "metadata": { "$ref": format!("{}{META}ListMeta", Dialect::V2.prefix()), "description": example },
            },
        }));
        for field in ["apiVersion", "kind"] {
            list["properties"][field] = self.object_field(field);
        }
        add_extensions(&mut list, resource, custom, &resource.list_kind);
        list
    }

    /// A schema in this dialect, from the form that definitions and Kubernetes' kinds are in.
    fn schema(&self, schema: &Value) -> Value {
        let Value::Object(source) = schema else { return schema.clone() };
        let mut written: Map<String, Value> = source
            .iter()
            .filter(|(keyword, _)| !UNPUBLISHED.contains(&keyword.as_str()))
            .map(|(keyword, value)| (keyword.clone(), self.keyword(keyword, value)))
            .collect();
        match self.dialect {
            Dialect::V2 => widen(&mut written, source),
            Dialect::V3 => complete(&mut written),
        }
        let mut written = Value::Object(written);
        let open = self.dialect == Dialect::V2 && holds(source, "x-kubernetes-preserve-unknown-fields");
        if holds(source, "x-kubernetes-embedded-resource") && !open {
            self.add_object_fields(&mut written);
            require(&mut written, &["apiVersion", "kind"]);
        }
        written
    }

    fn keyword(&self, keyword: &str, value: &Value) -> Value {
        match (keyword, value) {
            ("properties", Value::Object(map)) => map.iter().map(|(name, s)| (name.clone(), self.schema(s))).collect(),
            ("items" | "additionalProperties" | "not", schema) => self.schema(schema),
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => schemas.iter().map(|s| self.schema(s)).collect(),
            ("$ref", Value::String(reference)) => {
                let name = reference.rsplit('/').next().unwrap_or_default();
                json!(format!("{}{name}", self.dialect.prefix()))
            }
            _ => value.clone(),
        }
    }

    /// `apiVersion`, `kind` and `metadata`, which the server itself looks after.
    fn add_object_fields(&self, definition: &mut Value) {
        if !definition["properties"].is_object() {
            definition["properties"] = json!({});
        }
        for field in ["apiVersion", "kind", "metadata"] {
            definition["properties"][field] = self.object_field(field);
        }
    }

    fn object_field(&self, field: &str) -> Value {
        self.schema(&self.builtin[EXAMPLE]["properties"][field])
    }
}

impl Dialect {
    fn prefix(self) -> &'static str {
        match self {
            Self::V2 => "#/definitions/",
            Self::V3 => "#/components/schemas/",
        }
    }
}

/// Removes from `written` what v2 cannot say or kubectl misreads; `source` is the schema that it was made from.
fn widen(written: &mut Map<String, Value>, source: &Map<String, Value>) {
    for keyword in ["allOf", "anyOf", "oneOf", "not", "default", "nullable"] {
        written.remove(keyword);
    }
    let (nullable, open) = (holds(source, "nullable"), holds(source, "x-kubernetes-preserve-unknown-fields"));
    if nullable || open {
        written.remove("properties");
        written.remove("items");
    }
    let is = |written: &Map<String, Value>, type_: &str| written.get("type").is_some_and(|t| t == type_);
    let itemless = is(written, "array") && !written.contains_key("items");
    if nullable || itemless || (open && is(written, "object")) {
        written.remove("type");
    }
    let can_be_null = |schema: Option<&Value>| schema.and_then(Value::as_object).is_some_and(|s| holds(s, "nullable"));
    if can_be_null(source.get("additionalProperties")) {
        written.remove("required");
    }
    if let Some(Value::Array(required)) = written.get_mut("required") {
        let properties = source.get("properties").unwrap_or(&Value::Null);
        required.retain(|field| !can_be_null(field.as_str().and_then(|f| properties.get(f))));
        if required.is_empty() {
            written.remove("required");
        }
    }
}

/// Says in standard keywords what v3 readers would otherwise miss.
fn complete(written: &mut Map<String, Value>) {
    if holds(written, "x-kubernetes-int-or-string") {
        let either = json!([{ "type": "integer" }, { "type": "string" }]);
        if written.contains_key("anyOf") {
            if let Value::Array(all) = written.entry("allOf").or_insert_with(|| json!([])) {
                all.push(json!({ "anyOf": either }));
            }
        } else {
            written.insert("anyOf".to_owned(), either);
        }
    }
    // The type that v2 must have for it is not the whole truth.
    if written.get("format").is_some_and(|format| format == "int-or-string") {
        written.remove("type");
        written.insert("oneOf".to_owned(), json!([{ "type": "integer" }, { "type": "string" }]));
    }
    // What stands beside a `$ref` is ignored by readers of v3, the description too.
    if written.len() > 1
        && let Some(reference) = written.remove("$ref")
    {
        written.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
    }
}

fn holds(schema: &Map<String, Value>, keyword: &str) -> bool {
    schema.get(keyword).is_some_and(|value| *value == Value::Bool(true))
}

fn require(definition: &mut Value, fields: &[&str]) {
    let mut required = definition["required"].as_array().cloned().unwrap_or_default();
    for field in fields {
        if !required.contains(&json!(field)) {
            required.push(json!(field));
        }
    }
    definition["required"] = Value::Array(required);
}

fn add_extensions(definition: &mut Value, resource: &Resource, custom: &Custom, kind: &str) {
    definition["x-kubernetes-group-version-kind"] =
        json!([{ "group": resource.group, "version": resource.version, "kind": kind }]);
    if !custom.selectable_fields.is_empty() {
        let fields =
            custom.selectable_fields.iter().map(|f| json!({ "fieldPath": f.as_str().trim_start_matches('.') }));
        definition["x-kubernetes-selectable-fields"] = fields.collect();
    }
}

/// Calls `found` with every reference in a schema.
fn references(schema: &Value, found: &mut impl FnMut(&str)) {
    let Value::Object(schema) = schema else { return };
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            ("$ref", Value::String(reference)) => found(reference),
            ("properties", Value::Object(map)) => map.values().for_each(|s| references(s, found)),
            ("items" | "additionalProperties" | "not", schema) => references(schema, found),
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => schemas.iter().for_each(|s| references(s, found)),
            _ => {}
        }
    }
}
