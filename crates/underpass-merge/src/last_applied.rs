//! The annotation that client-side `kubectl apply` leaves, while its users move to server-side apply.
//!
//! A field that the annotation holds unchanged was applied by the same person, so `kubectl apply --server-side` takes it from
//! the owner by update without a conflict; and the annotation is kept up to date, so that going back works too. Both only for
//! the manager `kubectl`.

use serde_json::Value;
use underpass_schema::Schema;

use crate::compare::compare;
use crate::fieldset::FieldSet;
use crate::managed::Manager;
use crate::walk::to_field_set;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
const KUBECTL: &str = "kubectl";
/// Kubernetes' limit for all annotations of an object together.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The fields that `kubectl` may take without force.
pub(crate) fn takeable(schema: &Schema, live: &Value, manager: &Manager<'_>) -> FieldSet {
    let Some(last) = last_applied(live, manager) else { return FieldSet::new() };
    let drifted = compare(schema, &last, live);
    to_field_set(schema, &last).difference(&drifted.modified).difference(&drifted.added).difference(&drifted.removed)
}

/// Writes what was applied into the annotation of an object that has one.
pub(crate) fn refresh(object: &mut Value, applied: &Value, manager: &Manager<'_>) {
    if manager.name != KUBECTL || annotation(object).is_none() {
        return;
    }
    let mut applied = applied.clone();
    if let Some(annotations) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION);
    }
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return };
    annotations.insert(ANNOTATION.to_owned(), Value::String(format!("{applied}\n")));
    let size: usize = annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(ANNOTATION);
    }
}

fn last_applied(live: &Value, manager: &Manager<'_>) -> Option<Value> {
    if manager.name != KUBECTL {
        return None;
    }
    let last: Value = serde_json::from_str(annotation(live)?).ok()?;
    (last.get("apiVersion")?.as_str()? == manager.api_version).then_some(last)
}

fn annotation(object: &Value) -> Option<&str> {
    let text = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    (!text.is_empty()).then_some(text)
}
