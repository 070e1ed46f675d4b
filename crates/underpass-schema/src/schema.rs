//! The schema tree: what one node of a document may be.

use std::collections::BTreeMap;

use serde_json::Value;

/// One node of a structural schema. Plain data, so that the validator, the merger and the OpenAPI writer read the same tree.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Schema {
    pub description: Option<String>,
    /// `None` only together with `int_or_string` or `preserve_unknown_fields`.
    pub type_: Option<Type>,
    pub format: Option<String>,
    pub nullable: bool,
    pub default: Option<Value>,

    pub properties: BTreeMap<String, Schema>,
    pub required: Vec<String>,
    pub additional_properties: Option<AdditionalProperties>,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,

    pub items: Option<Box<Schema>>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,

    pub enum_: Vec<Value>,
    pub pattern: Option<String>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    pub exclusive_minimum: bool,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,

    /// Value validation without structure (`type`, `properties` there only narrow).
    pub all_of: Vec<Schema>,
    pub any_of: Vec<Schema>,
    pub one_of: Vec<Schema>,
    pub not: Option<Box<Schema>>,

    /// `x-kubernetes-preserve-unknown-fields`
    pub preserve_unknown_fields: bool,
    /// `x-kubernetes-embedded-resource`
    pub embedded_resource: bool,
    /// `x-kubernetes-int-or-string`
    pub int_or_string: bool,
    /// `x-kubernetes-list-type`; `None` is atomic for owners of fields, and unchecked.
    pub list_type: Option<ListType>,
    /// `x-kubernetes-list-map-keys`
    pub list_map_keys: Vec<String>,
    /// `x-kubernetes-map-type`; `None` is granular.
    pub map_type: Option<MapType>,
    /// `x-kubernetes-validations`
    pub rules: Vec<Rule>,
    /// `x-kubernetes-patch-merge-key`: only Kubernetes' own kinds have it; it makes a list mergeable by a strategic merge patch.
    pub patch_merge_key: Option<String>,
    /// `x-kubernetes-patch-strategy` holds `merge`.
    pub patch_merge: bool,
    /// `x-kubernetes-patch-strategy` holds `retainKeys`.
    pub patch_retain_keys: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

#[derive(Debug, Clone, PartialEq)]
pub enum AdditionalProperties {
    Any(bool),
    Schema(Box<Schema>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListType {
    Atomic,
    Set,
    Map,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapType {
    Atomic,
    Granular,
}

/// One CEL rule (`x-kubernetes-validations[]`).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rule {
    pub rule: String,
    pub message: Option<String>,
    pub message_expression: Option<String>,
    /// FieldValueInvalid (the default), FieldValueForbidden, FieldValueRequired, FieldValueDuplicate
    pub reason: Option<String>,
    pub field_path: Option<String>,
    pub optional_old_self: bool,
}

impl Schema {
    /// The schema of one map value, whether it is a declared property or an additional one.
    pub fn field(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(match &self.additional_properties {
            Some(AdditionalProperties::Schema(schema)) => Some(schema),
            _ => None,
        })
    }

    /// Maps without a declared shape: what stands in them is one value for owners of fields.
    pub fn is_untyped(&self) -> bool {
        self.type_.is_none() && self.properties.is_empty() && self.items.is_none()
    }
}
