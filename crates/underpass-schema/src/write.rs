//! From the tree back to JSON, for OpenAPI documents and for a CustomResourceDefinition that is read back. Deterministic: keys are
//! sorted, and what is at its default is left out.

use serde_json::{Map, Value, json};

use crate::{AdditionalProperties, ListType, MapType, Rule, Schema};

impl Schema {
    /// The schema as JSON; [`Schema::parse`] of it gives the same tree.
    pub fn to_json(&self) -> Value {
        let mut out = Writer(Map::new());
        self.write_shape(&mut out);
        self.write_limits(&mut out);
        self.write_junctors(&mut out);
        self.write_extensions(&mut out);
        Value::Object(out.0)
    }

    fn write_shape(&self, out: &mut Writer) {
        out.text("description", self.description.as_deref());
        out.text("type", self.type_.map(crate::Type::as_str));
        out.text("format", self.format.as_deref());
        out.flag("nullable", self.nullable);
        out.value("default", self.default.clone());
        let properties: Map<_, _> = self.properties.iter().map(|(name, node)| (name.clone(), node.to_json())).collect();
        out.value("properties", (!properties.is_empty()).then_some(Value::Object(properties)));
        out.list("required", &self.required);
        out.value(
            "additionalProperties",
            self.additional_properties.as_ref().map(|additional| match additional {
                AdditionalProperties::Any(any) => json!(any),
                AdditionalProperties::Schema(node) => node.to_json(),
            }),
        );
        out.value("items", self.items.as_ref().map(|node| node.to_json()));
    }

    fn write_limits(&self, out: &mut Writer) {
        out.value("minProperties", self.min_properties.map(Value::from));
        out.value("maxProperties", self.max_properties.map(Value::from));
        out.value("minItems", self.min_items.map(Value::from));
        out.value("maxItems", self.max_items.map(Value::from));
        out.flag("uniqueItems", self.unique_items);
        out.value("enum", (!self.enum_.is_empty()).then(|| Value::Array(self.enum_.clone())));
        out.text("pattern", self.pattern.as_deref());
        out.value("minLength", self.min_length.map(Value::from));
        out.value("maxLength", self.max_length.map(Value::from));
        out.value("minimum", self.minimum.map(number));
        out.value("maximum", self.maximum.map(number));
        out.flag("exclusiveMinimum", self.exclusive_minimum);
        out.flag("exclusiveMaximum", self.exclusive_maximum);
        out.value("multipleOf", self.multiple_of.map(number));
    }

    fn write_junctors(&self, out: &mut Writer) {
        for (name, branches) in [("allOf", &self.all_of), ("anyOf", &self.any_of), ("oneOf", &self.one_of)] {
            let branches: Vec<_> = branches.iter().map(Schema::to_json).collect();
            out.value(name, (!branches.is_empty()).then_some(Value::Array(branches)));
        }
        out.value("not", self.not.as_ref().map(|node| node.to_json()));
    }

    fn write_extensions(&self, out: &mut Writer) {
        out.flag("x-kubernetes-preserve-unknown-fields", self.preserve_unknown_fields);
        out.flag("x-kubernetes-embedded-resource", self.embedded_resource);
        out.flag("x-kubernetes-int-or-string", self.int_or_string);
        out.text("x-kubernetes-list-type", self.list_type.map(ListType::as_str));
        out.list("x-kubernetes-list-map-keys", &self.list_map_keys);
        out.text("x-kubernetes-map-type", self.map_type.map(MapType::as_str));
        let rules: Vec<_> = self.rules.iter().map(rule).collect();
        out.value("x-kubernetes-validations", (!rules.is_empty()).then_some(Value::Array(rules)));
        out.text("x-kubernetes-patch-merge-key", self.patch_merge_key.as_deref());
        let strategy: Vec<_> = [(self.patch_merge, "merge"), (self.patch_retain_keys, "retainKeys")]
            .into_iter()
            .filter_map(|(set, word)| set.then_some(word))
            .collect();
        out.value("x-kubernetes-patch-strategy", (!strategy.is_empty()).then(|| json!(strategy.join(","))));
    }
}

impl ListType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Atomic => "atomic",
            Self::Set => "set",
            Self::Map => "map",
        }
    }
}

impl MapType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Atomic => "atomic",
            Self::Granular => "granular",
        }
    }
}

/// Writes what is set, and nothing else.
struct Writer(Map<String, Value>);

impl Writer {
    fn value(&mut self, name: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.0.insert(name.to_owned(), value);
        }
    }

    fn text(&mut self, name: &str, text: Option<&str>) {
        self.value(name, text.map(Value::from));
    }

    fn flag(&mut self, name: &str, set: bool) {
        self.value(name, set.then_some(Value::Bool(true)));
    }

    fn list(&mut self, name: &str, items: &[String]) {
        self.value(name, (!items.is_empty()).then(|| json!(items)));
    }
}

/// A limit as a person would write it: `1`, not `1.0`.
fn number(limit: f64) -> Value {
    // Beyond 2^53 a float no longer holds every integer, so the shorter form would invent digits.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if limit.fract() == 0.0 && limit.abs() <= EXACT { json!(limit as i64) } else { json!(limit) }
}

fn rule(rule: &Rule) -> Value {
    let mut out = Writer(Map::new());
    out.text("rule", Some(&rule.rule));
    out.text("message", rule.message.as_deref());
    out.text("messageExpression", rule.message_expression.as_deref());
    out.text("reason", rule.reason.as_deref());
    out.text("fieldPath", rule.field_path.as_deref());
    out.flag("optionalOldSelf", rule.optional_old_self);
    Value::Object(out.0)
}
