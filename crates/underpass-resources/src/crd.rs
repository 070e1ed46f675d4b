//! From what the derive macros make to what we ship.
//!
//! The derived schemas are Rust's view: optional fields that may be null, unsigned formats that Kubernetes does not know. Ours say what an
//! API server is to accept: a field is there or it is not, and its format is one that clients know.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool, ValidationRule,
};

use crate::kinds::CATEGORY;

/// Names of our objects become label values and, with a suffix, names of Services and Deployments.
pub const LONGEST_NAME: usize = 52;

pub(crate) fn finish(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    crd.spec.names.categories = Some(vec![CATEGORY.to_owned()]);
    for version in &mut crd.spec.versions {
        add_columns(version.additional_printer_columns.get_or_insert_default());
        if let Some(root) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            tidy(root);
            check_name(root);
        }
    }
    crd
}

/// What every kind shows after its own columns: whether it works, why (with `-o wide`), and its age. A kind that
/// declares one of them itself, to show it earlier or always, keeps it so.
fn add_columns(columns: &mut Vec<CustomResourceColumnDefinition>) {
    let all = [
        column("Ready", "string", ".status.conditions[?(@.type=='Ready')].status", None),
        column("Reason", "string", ".status.conditions[?(@.type=='Ready')].reason", Some(1)),
        column("Age", "date", ".metadata.creationTimestamp", None),
    ];
    for column in all {
        if columns.iter().all(|own| own.name != column.name) {
            columns.push(column);
        }
    }
}

fn column(name: &str, type_: &str, json_path: &str, priority: Option<i32>) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: type_.to_owned(),
        json_path: json_path.to_owned(),
        priority,
        ..CustomResourceColumnDefinition::default()
    }
}

/// Makes optional fields plain and formats known, all the way down.
fn tidy(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.description = schema.description.take().map(|text| text.replace('\n', " "));
    if let Some(format) = schema.format.as_deref().and_then(known_format) {
        schema.format = Some(format.to_owned());
    }
    if let Some(properties) = &mut schema.properties {
        properties.values_mut().for_each(tidy);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        tidy(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        tidy(values);
    }
}

/// The format that Kubernetes knows for an unsigned one of Rust.
fn known_format(format: &str) -> Option<&'static str> {
    match format {
        "uint8" | "uint16" => Some("int32"),
        "uint32" | "uint" | "uint64" => Some("int64"),
        _ => None,
    }
}

fn check_name(root: &mut JSONSchemaProps) {
    // Declared only so that the rule below can name the field; an API server knows the rest of metadata by itself.
    let name =
        JSONSchemaProps { type_: Some("string".to_owned()), max_length: Some(253), ..JSONSchemaProps::default() };
    let metadata = JSONSchemaProps {
        type_: Some("object".to_owned()),
        properties: Some([("name".to_owned(), name)].into()),
        ..JSONSchemaProps::default()
    };
    root.properties.get_or_insert_default().insert("metadata".to_owned(), metadata);
    root.x_kubernetes_validations.get_or_insert_default().push(ValidationRule {
        rule: format!("self.metadata.name.size() <= {LONGEST_NAME} && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')"),
        message: Some(format!(
            "metadata.name must be a DNS label of at most {LONGEST_NAME} characters that begins with a letter, because other objects \
             are named after it; use lower-case letters, digits and '-'"
        )),
        field_path: Some(".metadata.name".to_owned()),
        ..ValidationRule::default()
    });
}
