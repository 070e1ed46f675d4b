//! The keywords of a schema, each with the words that kube-apiserver uses when a value breaks it.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value, json};

use crate::validate::Patterns;
use crate::{AdditionalProperties, ErrorKind, FieldError, ListType, Path, Schema, Type, format};

/// One pass over a document.
pub(crate) struct Walk<'v> {
    patterns: &'v Patterns,
    pub(crate) errors: Vec<FieldError>,
}

impl<'v> Walk<'v> {
    pub(crate) fn new(patterns: &'v Patterns) -> Self {
        Self { patterns, errors: Vec::new() }
    }

    /// Checks `new` and what is below it. `old` is the value that it replaces, where the two can be told to be the same thing.
    pub(crate) fn node(&mut self, schema: &Schema, new: &Value, old: Option<&Value>, path: &Path) {
        if old == Some(new) || (new.is_null() && schema.nullable) || !self.check_type(schema, new, path) {
            return;
        }
        self.check_enum(schema, new, path);
        match new {
            Value::Object(map) => self.object(schema, map, old.and_then(Value::as_object), path),
            Value::Array(items) => self.array(schema, items, old.and_then(Value::as_array), path),
            Value::String(text) => self.string(schema, text, path),
            Value::Number(number) => self.number(schema, number.as_f64().unwrap_or(f64::NAN), new, path),
            Value::Null | Value::Bool(_) => {}
        }
        self.junctors(schema, new, path);
    }

    fn check_type(&mut self, schema: &Schema, new: &Value, path: &Path) -> bool {
        let fits = match schema.type_ {
            _ if schema.int_or_string => new.is_string() || is_integer(new),
            None => true,
            Some(Type::Object) => new.is_object(),
            Some(Type::Array) => new.is_array(),
            Some(Type::String) => new.is_string(),
            Some(Type::Integer) => is_integer(new),
            Some(Type::Number) => new.is_number(),
            Some(Type::Boolean) => new.is_boolean(),
        };
        if !fits {
            let want = if schema.int_or_string { "integer,string" } else { schema.type_name() };
            let got = type_of(new);
            let detail = format!("{} must be of type {want}: {got:?}", in_body(path));
            self.errors.push(FieldError::new(path, ErrorKind::TypeInvalid, Some(&json!(got)), detail));
        }
        fits
    }

    fn check_enum(&mut self, schema: &Schema, new: &Value, path: &Path) {
        if schema.enum_.is_empty() || schema.enum_.iter().any(|allowed| same(allowed, new)) {
            return;
        }
        let allowed: Vec<_> = schema.enum_.iter().map(quoted).collect();
        let detail = format!("supported values: {}", allowed.join(", "));
        self.errors.push(FieldError::new(path, ErrorKind::NotSupported, Some(new), detail));
    }

    fn object(&mut self, schema: &Schema, map: &Map<String, Value>, old: Option<&Map<String, Value>>, path: &Path) {
        for name in schema.required.iter().filter(|name| !map.contains_key(*name)) {
            self.errors.push(FieldError::required(&path.field(name), ""));
        }
        if schema.embedded_resource {
            self.embedded(map, path);
        }
        self.property_count(schema, map, path);
        let closed = matches!(schema.additional_properties, Some(AdditionalProperties::Any(false)));
        for (name, value) in map {
            let path = path.field(name);
            match schema.field(name) {
                Some(field) => self.node(field, value, old.and_then(|old| old.get(name)), &path),
                None if closed => self.invalid(&path, &json!(""), "is a forbidden property"),
                None => {}
            }
        }
    }

    fn embedded(&mut self, map: &Map<String, Value>, path: &Path) {
        for name in ["apiVersion", "kind"] {
            let path = path.field(name);
            match map.get(name) {
                None => self.errors.push(FieldError::required(&path, "")),
                Some(Value::String(text)) if !text.is_empty() => {}
                Some(text @ Value::String(_)) => {
                    self.errors.push(FieldError::invalid(&path, text, "must not be empty"));
                }
                Some(other) => self.errors.push(FieldError::invalid(&path, other, "must be a string")),
            }
        }
    }

    fn property_count(&mut self, schema: &Schema, map: &Map<String, Value>, path: &Path) {
        if let Some(min) = schema.min_properties.filter(|min| (map.len() as u64) < *min) {
            self.invalid(path, &json!(map.len()), &format!("should have at least {min} properties"));
        }
        self.too_many(schema.max_properties, map.len(), path);
    }

    fn array(&mut self, schema: &Schema, items: &[Value], old: Option<&Vec<Value>>, path: &Path) {
        if let Some(min) = schema.min_items.filter(|min| (items.len() as u64) < *min) {
            self.invalid(path, &json!(items.len()), &format!("should have at least {min} items"));
        }
        self.too_many(schema.max_items, items.len(), path);
        if schema.unique_items && first_duplicate(items.iter().map(canonical)).is_some() {
            self.invalid(path, &json!(""), "shouldn't contain duplicates");
        }
        if let Some(node) = &schema.items {
            let old = OldItems::new(schema, old);
            for (index, item) in items.iter().enumerate() {
                self.node(node, item, old.of(item), &path.index(index));
            }
        }
        self.duplicates(schema, items, path);
    }

    /// `x-kubernetes-list-type`: sets have distinct items, maps have distinct keys.
    fn duplicates(&mut self, schema: &Schema, items: &[Value], path: &Path) {
        let identity: fn(&Schema, &Value) -> Value = match schema.list_type {
            Some(ListType::Set) => |_, item| item.clone(),
            Some(ListType::Map) => keys_of,
            Some(ListType::Atomic) | None => return,
        };
        let mut seen = HashMap::new();
        for (index, item) in items.iter().enumerate() {
            let identity = identity(schema, item);
            let times = seen.entry(canonical(&identity)).and_modify(|times| *times += 1).or_insert(1);
            // However often a value is repeated, it is reported once.
            if *times == 2 {
                self.errors.push(FieldError::new(&path.index(index), ErrorKind::Duplicate, Some(&identity), ""));
            }
        }
    }

    fn too_many(&mut self, max: Option<u64>, count: usize, path: &Path) {
        if let Some(max) = max.filter(|max| count as u64 > *max) {
            let plural = if max == 1 { "" } else { "s" };
            let detail = format!("must have at most {max} item{plural}");
            self.errors.push(FieldError::new(path, ErrorKind::TooMany, Some(&json!(count)), detail));
        }
    }

    fn string(&mut self, schema: &Schema, text: &str, path: &Path) {
        let length = text.chars().count() as u64;
        if let Some(min) = schema.min_length.filter(|min| length < *min) {
            self.invalid(path, &json!(text), &format!("should be at least {min} chars long"));
        }
        if let Some(max) = schema.max_length.filter(|max| length > *max) {
            let plural = if max == 1 { "" } else { "s" };
            let detail = format!("may not be more than {max} byte{plural}");
            self.errors.push(FieldError::new(path, ErrorKind::TooLong, None, detail));
        }
        if let Some(pattern) = schema.pattern.as_deref().filter(|pattern| !self.patterns.matches(pattern, text)) {
            self.invalid(path, &json!(text), &format!("should match '{pattern}'"));
        }
        if let Some(name) = schema.format.as_deref().filter(|name| format::matches(name, text) == Some(false)) {
            let detail = format!("{} must be of type {name}: {text:?}", in_body(path));
            self.errors.push(FieldError::new(path, ErrorKind::TypeInvalid, Some(&json!(text)), detail));
        }
    }

    fn number(&mut self, schema: &Schema, number: f64, value: &Value, path: &Path) {
        if let Some(max) = schema.maximum {
            match schema.exclusive_maximum {
                true if number >= max => self.invalid(path, value, &format!("should be less than {max}")),
                false if number > max => self.invalid(path, value, &format!("should be less than or equal to {max}")),
                _ => {}
            }
        }
        if let Some(min) = schema.minimum {
            match schema.exclusive_minimum {
                true if number <= min => self.invalid(path, value, &format!("should be greater than {min}")),
                false if number < min => {
                    self.invalid(path, value, &format!("should be greater than or equal to {min}"));
                }
                _ => {}
            }
        }
        if let Some(step) = schema.multiple_of.filter(|step| !is_multiple(number, *step)) {
            self.invalid(path, value, &format!("should be a multiple of {step}"));
        }
        if let Some(name) = schema.format.as_deref().filter(|name| !format::integer_fits(name, number)) {
            let detail = format!("{} must be of type {name}: {value}", in_body(path));
            self.errors.push(FieldError::invalid(path, value, detail));
        }
    }

    fn junctors(&mut self, schema: &Schema, new: &Value, path: &Path) {
        for branch in &schema.all_of {
            let errors = self.branch(branch, new, path);
            self.errors.extend(errors);
        }
        if !schema.any_of.is_empty() {
            let (valid, closest) = self.branches(&schema.any_of, new, path);
            if valid == 0 {
                self.junctor(path, "must validate at least one schema (anyOf)", closest);
            }
        }
        if !schema.one_of.is_empty() {
            match self.branches(&schema.one_of, new, path) {
                (1, _) => {}
                (0, closest) => {
                    self.junctor(path, "must validate one and only one schema (oneOf). Found none valid", closest);
                }
                (valid, _) => {
                    let words =
                        format!("must validate one and only one schema (oneOf). Found {valid} valid alternatives");
                    self.junctor(path, &words, Vec::new());
                }
            }
        }
        if schema.not.as_ref().is_some_and(|branch| self.branch(branch, new, path).is_empty()) {
            self.junctor(path, "must not validate the schema (not)", Vec::new());
        }
    }

    fn branch(&self, schema: &Schema, new: &Value, path: &Path) -> Vec<FieldError> {
        let mut walk = Walk::new(self.patterns);
        walk.node(schema, new, None, path);
        walk.errors
    }

    /// How many branches accept the value, and what the one that came closest has against it.
    fn branches(&self, branches: &[Schema], new: &Value, path: &Path) -> (usize, Vec<FieldError>) {
        let results: Vec<_> = branches.iter().map(|branch| self.branch(branch, new, path)).collect();
        let valid = results.iter().filter(|errors| errors.is_empty()).count();
        (valid, results.into_iter().min_by_key(Vec::len).unwrap_or_default())
    }

    fn junctor(&mut self, path: &Path, words: &str, closest: Vec<FieldError>) {
        let name = if path.is_root() { "" } else { path.as_str() };
        self.errors.push(FieldError::invalid(path, &json!(""), format!("{name:?} {words}")));
        self.errors.extend(closest);
    }

    fn invalid(&mut self, path: &Path, value: &Value, words: &str) {
        self.errors.push(FieldError::invalid(path, value, format!("{} {words}", in_body(path))));
    }
}

/// The items of the replaced list, findable by the items of the new one. Only maps have items with an identity, and of those only
/// the items that have all their keys to themselves.
pub(crate) struct OldItems<'a> {
    schema: &'a Schema,
    by_key: HashMap<String, Option<&'a Value>>,
}

impl<'a> OldItems<'a> {
    pub(crate) fn new(schema: &'a Schema, old: Option<&'a Vec<Value>>) -> Self {
        let mut by_key = HashMap::new();
        for item in old.filter(|_| schema.list_type == Some(ListType::Map)).into_iter().flatten() {
            if let Some(identity) = identity_of(schema, item) {
                by_key.entry(identity).and_modify(|known| *known = None).or_insert(Some(item));
            }
        }
        Self { schema, by_key }
    }

    pub(crate) fn of(&self, item: &Value) -> Option<&'a Value> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.get(&identity_of(self.schema, item)?).copied().flatten()
    }
}

fn identity_of(schema: &Schema, item: &Value) -> Option<String> {
    let keys = keys_of(schema, item);
    let complete = keys.as_object().is_some_and(|keys| keys.len() == schema.list_map_keys.len());
    complete.then(|| canonical(&keys))
}

/// The key fields of one item of a list-map; a key that is absent counts as its default.
fn keys_of(schema: &Schema, item: &Value) -> Value {
    let default = |key: &str| schema.items.as_ref().and_then(|node| node.properties.get(key)?.default.clone());
    let keys = schema.list_map_keys.iter().filter_map(|key| {
        let value = item.get(key).cloned().or_else(|| default(key))?;
        Some((key.clone(), value))
    });
    Value::Object(keys.collect())
}

/// A text that is equal for equal values, whatever the order of keys.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<_> = map.iter().map(|(key, value)| format!("{key:?}:{}", canonical(value))).collect();
            fields.sort();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Value::Number(number) => match number.as_f64() {
            Some(float) if !number.is_i64() && !number.is_u64() && float.fract() == 0.0 => format!("{float}"),
            _ => number.to_string(),
        },
        scalar => scalar.to_string(),
    }
}

fn first_duplicate(texts: impl Iterator<Item = String>) -> Option<String> {
    let mut seen = BTreeSet::new();
    texts.into_iter().find(|text| !seen.insert(text.clone()))
}

/// JSON has one kind of number: `1.0` is the integer 1. What no client could hold in 64 bits is none.
fn is_integer(value: &Value) -> bool {
    const TOO_LARGE: f64 = 9_223_372_036_854_775_808.0;
    value.is_i64() || value.as_f64().is_some_and(|float| float.fract() == 0.0 && float.abs() < TOO_LARGE)
}

fn same(left: &Value, right: &Value) -> bool {
    left == right || (left.is_number() && left.as_f64() == right.as_f64())
}

fn is_multiple(number: f64, step: f64) -> bool {
    let times = number / step;
    step != 0.0 && (times - times.round()).abs() < 1e-9
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn quoted(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        other => format!("{:?}", other.to_string()),
    }
}

fn in_body(path: &Path) -> String {
    if path.is_root() { "in body".to_owned() } else { format!("{path} in body") }
}
