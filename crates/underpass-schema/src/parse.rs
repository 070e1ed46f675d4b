//! From the JSON of an `openAPIV3Schema` to the tree.
//!
//! Reading is strict about the types of the keywords that we know and silent about the ones that only document (`title`,
//! `example`, `externalDocs`): what is unknown to a CustomResourceDefinition is the strict decoder's subject, not ours.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{AdditionalProperties, ErrorKind, FieldError, ListType, MapType, Path, Rule, Schema, Type};

impl Schema {
    /// Reads a schema as a CustomResourceDefinition carries it, or as Kubernetes' OpenAPI document describes its own kinds.
    pub fn parse(json: &Value, path: &Path) -> Result<Schema, Vec<FieldError>> {
        let mut errors = Vec::new();
        let schema = node(json, path, &mut errors);
        if errors.is_empty() { Ok(schema) } else { Err(errors) }
    }
}

impl Type {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::Object, Self::Array, Self::String, Self::Integer, Self::Number, Self::Boolean]
            .into_iter()
            .find(|candidate| candidate.as_str() == name)
    }
}

/// One JSON object being read; every accessor reports a keyword of the wrong type and goes on.
struct Keywords<'a> {
    map: &'a Map<String, Value>,
    path: &'a Path,
    errors: &'a mut Vec<FieldError>,
}

impl<'a> Keywords<'a> {
    fn read<T>(&mut self, name: &str, want: &str, convert: impl Fn(&'a Value) -> Option<T>) -> Option<T> {
        let value = self.map.get(name).filter(|value| !value.is_null())?;
        let converted = convert(value);
        if converted.is_none() {
            let detail = format!("must be {want}");
            self.errors.push(FieldError::new(&self.path.field(name), ErrorKind::TypeInvalid, Some(value), detail));
        }
        converted
    }

    fn string(&mut self, name: &str) -> Option<String> {
        self.read(name, "a string", |value| value.as_str().map(str::to_owned))
    }

    fn flag(&mut self, name: &str) -> bool {
        self.read(name, "a boolean", Value::as_bool).unwrap_or(false)
    }

    fn count(&mut self, name: &str) -> Option<u64> {
        self.read(name, "a non-negative integer", Value::as_u64)
    }

    fn number(&mut self, name: &str) -> Option<f64> {
        self.read(name, "a number", Value::as_f64)
    }

    fn values(&mut self, name: &str) -> Vec<Value> {
        self.read(name, "an array", |value| value.as_array().cloned()).unwrap_or_default()
    }

    fn strings(&mut self, name: &str) -> Vec<String> {
        self.read(name, "an array of strings", |value| {
            value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
        })
        .unwrap_or_default()
    }

    fn word<T: Copy>(&mut self, name: &str, allowed: &[(&str, T)]) -> Option<T> {
        let value = self.read(name, "a string", Value::as_str)?;
        let found = allowed.iter().find(|(word, _)| *word == value).map(|(_, meaning)| *meaning);
        if found.is_none() {
            let words: Vec<_> = allowed.iter().map(|(word, _)| format!("{word:?}")).collect();
            let detail = format!("supported values: {}", words.join(", "));
            let given = Value::from(value);
            self.errors.push(FieldError::new(&self.path.field(name), ErrorKind::NotSupported, Some(&given), detail));
        }
        found
    }

    fn schema(&mut self, name: &str) -> Option<Box<Schema>> {
        let value = self.read(name, "a schema", |value| value.is_object().then_some(value))?;
        Some(Box::new(node(value, &self.path.field(name), self.errors)))
    }

    fn schemas(&mut self, name: &str) -> Vec<Schema> {
        let Some(list) = self.read(name, "an array of schemas", Value::as_array) else { return Vec::new() };
        let path = self.path.field(name);
        list.iter().enumerate().map(|(index, item)| node(item, &path.index(index), self.errors)).collect()
    }

    fn properties(&mut self) -> BTreeMap<String, Schema> {
        let Some(map) = self.read("properties", "an object", Value::as_object) else { return BTreeMap::new() };
        let path = self.path.field("properties");
        map.iter().map(|(name, value)| (name.clone(), node(value, &path.key(name), self.errors))).collect()
    }

    fn additional_properties(&mut self) -> Option<AdditionalProperties> {
        match self.map.get("additionalProperties")? {
            Value::Bool(any) => Some(AdditionalProperties::Any(*any)),
            _ => self.schema("additionalProperties").map(AdditionalProperties::Schema),
        }
    }

    fn rules(&mut self) -> Vec<Rule> {
        let name = "x-kubernetes-validations";
        let Some(list) = self.read(name, "an array", Value::as_array) else { return Vec::new() };
        let path = self.path.field(name);
        list.iter().enumerate().filter_map(|(index, item)| rule(item, &path.index(index), self.errors)).collect()
    }

    fn refuse_references(&mut self) {
        for name in ["$ref", "definitions", "dependencies", "patternProperties", "additionalItems"] {
            if self.map.get(name).is_some_and(|value| !value.is_null()) {
                self.errors.push(FieldError::forbidden(&self.path.field(name), format!("{name} is not supported")));
            }
        }
    }
}

fn node(json: &Value, path: &Path, errors: &mut Vec<FieldError>) -> Schema {
    let Some(map) = json.as_object() else {
        errors.push(FieldError::new(path, ErrorKind::TypeInvalid, Some(json), "must be a schema"));
        return Schema::default();
    };
    let mut keys = Keywords { map, path, errors };
    keys.refuse_references();
    let mut schema = Schema { description: keys.string("description"), ..Schema::default() };
    read_shape(&mut keys, &mut schema);
    read_limits(&mut keys, &mut schema);
    read_junctors(&mut keys, &mut schema);
    read_extensions(&mut keys, &mut schema);
    schema
}

fn read_shape(keys: &mut Keywords<'_>, schema: &mut Schema) {
    let types = [Type::Object, Type::Array, Type::String, Type::Integer, Type::Number, Type::Boolean];
    if keys.map.get("type").and_then(Value::as_str) != Some("") {
        schema.type_ = keys.word("type", &types.map(|type_| (type_.as_str(), type_)));
    }
    schema.format = keys.string("format").filter(|format| !format.is_empty());
    schema.nullable = keys.flag("nullable");
    schema.default = keys.map.get("default").filter(|value| !value.is_null()).cloned();
    schema.properties = keys.properties();
    schema.required = keys.strings("required");
    schema.additional_properties = keys.additional_properties();
    schema.items = keys.schema("items");
}

fn read_limits(keys: &mut Keywords<'_>, schema: &mut Schema) {
    schema.min_properties = keys.count("minProperties");
    schema.max_properties = keys.count("maxProperties");
    schema.min_items = keys.count("minItems");
    schema.max_items = keys.count("maxItems");
    schema.unique_items = keys.flag("uniqueItems");
    schema.enum_ = keys.values("enum");
    schema.pattern = keys.string("pattern").filter(|pattern| !pattern.is_empty());
    schema.min_length = keys.count("minLength");
    schema.max_length = keys.count("maxLength");
    schema.minimum = keys.number("minimum");
    schema.maximum = keys.number("maximum");
    schema.exclusive_minimum = keys.flag("exclusiveMinimum");
    schema.exclusive_maximum = keys.flag("exclusiveMaximum");
    schema.multiple_of = keys.number("multipleOf");
}

fn read_junctors(keys: &mut Keywords<'_>, schema: &mut Schema) {
    schema.all_of = keys.schemas("allOf");
    schema.any_of = keys.schemas("anyOf");
    schema.one_of = keys.schemas("oneOf");
    schema.not = keys.schema("not");
}

fn read_extensions(keys: &mut Keywords<'_>, schema: &mut Schema) {
    schema.preserve_unknown_fields = keys.flag("x-kubernetes-preserve-unknown-fields");
    schema.embedded_resource = keys.flag("x-kubernetes-embedded-resource");
    schema.int_or_string = keys.flag("x-kubernetes-int-or-string");
    let lists = [("atomic", ListType::Atomic), ("set", ListType::Set), ("map", ListType::Map)];
    schema.list_type = keys.word("x-kubernetes-list-type", &lists);
    schema.list_map_keys = keys.strings("x-kubernetes-list-map-keys");
    let maps = [("atomic", MapType::Atomic), ("granular", MapType::Granular)];
    schema.map_type = keys.word("x-kubernetes-map-type", &maps);
    schema.rules = keys.rules();
    schema.patch_merge_key = keys.string("x-kubernetes-patch-merge-key");
    let strategy = keys.string("x-kubernetes-patch-strategy").unwrap_or_default();
    schema.patch_merge = strategy.split(',').any(|word| word == "merge");
    schema.patch_retain_keys = strategy.split(',').any(|word| word == "retainKeys");
}

fn rule(json: &Value, path: &Path, errors: &mut Vec<FieldError>) -> Option<Rule> {
    let Some(map) = json.as_object() else {
        errors.push(FieldError::new(path, ErrorKind::TypeInvalid, Some(json), "must be a validation rule"));
        return None;
    };
    let mut keys = Keywords { map, path, errors };
    Some(Rule {
        rule: keys.string("rule").unwrap_or_default(),
        message: keys.string("message").filter(|text| !text.is_empty()),
        message_expression: keys.string("messageExpression").filter(|text| !text.is_empty()),
        reason: keys.string("reason").filter(|text| !text.is_empty()),
        field_path: keys.string("fieldPath").filter(|text| !text.is_empty()),
        optional_old_self: keys.flag("optionalOldSelf"),
    })
}
