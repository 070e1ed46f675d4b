//! core/v1 Namespace.

use std::sync::OnceLock;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};
use underpass_schema::{FieldError, Path};

use crate::checks::Errors;
use crate::{Builtin, Column, cells, fields, names};

const NAME_LABEL: &str = "kubernetes.io/metadata.name";

const COLUMNS: &[Column] = &[
    Column::name("Name of the namespace."),
    Column::text("Status", "Whether the namespace is in use or being emptied."),
    Column::age(),
];

pub(crate) const fn builtin() -> Builtin {
    Builtin {
        group: "",
        version: "v1",
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        short_names: &["ns"],
        categories: &[],
        namespaced: false,
        status: true,
        scale: false,
        generation: false,
        bucket: "namespaces",
        definition: "io.k8s.api.core.v1.Namespace",
        columns: COLUMNS,
        name: names::dns_label,
        define: |generator| {
            generator.subschema_for::<Namespace>();
        },
        row,
        prepare_update: |_, _| {},
        default,
        validate,
        built: OnceLock::new(),
    }
}

fn row(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cells::name(object), fields::text(object, "/status/phase").into(), cells::age(object, now)]
}

/// The finalizer only while the namespace lives: taking it away from a namespace that is being deleted is how deletion ends.
fn default(object: &mut Value) {
    let name = fields::text(object, "/metadata/name").to_owned();
    let deleted = object.pointer("/metadata/deletionTimestamp").is_some();
    if let Some(labels) = fields::section(object, "metadata").and_then(|metadata| fields::section(metadata, "labels"))
        && !name.is_empty()
    {
        labels[NAME_LABEL] = name.into();
    }
    if let Some(spec) = fields::section(object, "spec")
        && !deleted
    {
        fields::fill(spec, "finalizers", json!(["kubernetes"]));
    }
    if let Some(status) = fields::section(object, "status") {
        fields::fill(status, "phase", "Active");
    }
}

fn validate(new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let path = Path::from("spec.finalizers");
    for (index, finalizer) in fields::list(new, "/spec/finalizers").iter().enumerate() {
        let finalizer = finalizer.as_str().unwrap_or_default();
        let path = path.index(index);
        errors.rule(&path, finalizer, names::qualified_name(finalizer));
        if !finalizer.contains('/') && finalizer != "kubernetes" {
            errors.invalid(&path, finalizer, "name is neither a standard finalizer name nor is it fully qualified");
        }
    }
    errors.done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::texts;

    #[test]
    fn filled_on_creation() {
        let mut object = json!({"metadata": {"name": "team"}});
        default(&mut object);
        assert_eq!(
            object,
            json!({
                "metadata": {"name": "team", "labels": {"kubernetes.io/metadata.name": "team"}},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            })
        );
    }

    #[test]
    fn the_finalizer_does_not_come_back() {
        let mut object = json!({"metadata": {"name": "team", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}});
        default(&mut object);
        assert_eq!(object["spec"], json!({}));
    }

    #[test]
    fn shown() {
        let object = json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Active"}});
        let now = "2026-01-01T00:05:00Z".parse().unwrap();
        assert_eq!(row(&object, now), [json!("a"), json!("Active"), json!("5m")]);
    }

    #[test]
    fn names_are_labels() {
        assert!(builtin().wrong_name("a.b").is_some_and(|reason| reason == "must not contain dots"));
        assert!(builtin().wrong_name_prefix("team-").is_none());
    }

    #[test]
    fn finalizers_are_qualified() {
        let found = validate(&json!({"spec": {"finalizers": ["kubernetes", "a.b/c", "mine"]}}), None);
        assert_eq!(
            texts(&found),
            [
                "spec.finalizers[2]: Invalid value: \"mine\": name is neither a standard finalizer name nor is it fully qualified"
            ]
        );
    }
}
