//! `metadata`: names, what may stand in it, and what the server alone writes.

use rand::RngExt;
use serde_json::{Value, json};
use underpass_builtins::names;
use underpass_schema::{ErrorKind, FieldError, Path};

use crate::delete::{FOREGROUND, ORPHAN};
use crate::object::{self, Object};
use crate::registry::{Origin, Resource};

/// Kubernetes' limit on all annotations of an object together.
const MAX_ANNOTATIONS: usize = 256 * 1024;
/// Generated names end in five of these: no vowels, so that no words appear.
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const NAME_SUFFIX: usize = 5;
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", ORPHAN, FOREGROUND];
const MAX_GENERATED_BASE: usize = 63 - NAME_SUFFIX;

pub(crate) fn generated_name(base: &str) -> String {
    let mut rng = rand::rng();
    let base: String = base.chars().take(MAX_GENERATED_BASE).collect();
    let suffix = (0..NAME_SUFFIX).map(|_| char::from(NAME_ALPHABET[rng.random_range(0..NAME_ALPHABET.len())]));
    base.chars().chain(suffix).collect()
}

/// What the server writes into a new object, whatever the client sent.
pub(crate) fn begin(object: &mut Object, now: &str, generation: bool) {
    let metadata = object::metadata_mut(object);
    for field in ["selfLink", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), json!(uuid::Uuid::new_v4().to_string()));
    metadata.insert("creationTimestamp".to_owned(), json!(now));
    if generation {
        metadata.insert("generation".to_owned(), json!(1));
    }
}

/// Gives an updated object the system fields of the live one.
pub(crate) fn carry_over(object: &mut Object, live: &Object) {
    for field in ["creationTimestamp", "generation"] {
        object::keep_metadata(object, live, field);
    }
    let metadata = object::metadata_mut(object);
    metadata.remove("selfLink");
    for field in ["name", "namespace", "generateName", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let kept = live["metadata"].get(field);
        if let (None, Some(kept)) = (metadata.get(field), kept) {
            metadata.insert(field.to_owned(), kept.clone());
        }
    }
}

/// Owners that are named twice in the same words are kept once; the warning that Kubernetes gives then.
pub(crate) fn drop_repeated_owners(object: &mut Object) -> Option<String> {
    let owners = object.pointer_mut("/metadata/ownerReferences")?.as_array_mut()?;
    let mut repeated = Vec::new();
    let mut kept: Vec<Value> = Vec::new();
    for owner in owners.drain(..) {
        match kept.contains(&owner) {
            true => repeated.push(owner["uid"].as_str().unwrap_or_default().to_owned()),
            false => kept.push(owner),
        }
    }
    *owners = kept;
    repeated.dedup();
    (!repeated.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries, which are kept once; duplicate UID(s) observed: {}",
            repeated.join(", ")
        )
    })
}

/// What is accepted of a custom resource but could be done better.
pub(crate) fn advice(resource: &Resource, object: &Object, live: Option<&Object>) -> Vec<String> {
    if resource.custom().is_none() {
        return Vec::new();
    }
    let before = live.map(object::finalizers).unwrap_or_default();
    let added = object::finalizers(object).into_iter().filter(|f| !before.contains(f) && is_unqualified(f));
    let sentence =
        "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers";
    added.map(|finalizer| format!("metadata.finalizers: {finalizer:?}: {sentence}")).collect()
}

fn is_unqualified(finalizer: &str) -> bool {
    !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer)
}

impl Resource {
    /// Most of Kubernetes' own kinds, but not those whose checks never got the rule.
    fn wants_qualified_finalizers(&self) -> bool {
        self.custom().is_none() && !matches!(self.group.as_str(), "coordination.k8s.io" | "apiextensions.k8s.io")
    }
}

pub(crate) fn validate(resource: &Resource, object: &Object, live: Option<&Object>) -> Vec<FieldError> {
    let path = Path::from("metadata");
    let mut errors = Vec::new();
    if live.is_none() {
        validate_prefix(resource, object, &path, &mut errors);
    }
    validate_name(resource, object, &path, &mut errors);
    validate_labels(object, &path, &mut errors);
    validate_annotations(object, &path, &mut errors);
    validate_finalizers(resource, object, live, &path, &mut errors);
    validate_owners(object, &path, &mut errors);
    if let Some(live) = live {
        validate_unchanged(object, live, &path, &mut errors);
    }
    errors
}

fn validate_name(resource: &Resource, object: &Object, path: &Path, errors: &mut Vec<FieldError>) {
    let name = object::name(object);
    if name.is_empty() {
        errors.push(FieldError::required(&path.field("name"), "name or generateName is required"));
        return;
    }
    let wrong = match &resource.origin {
        Origin::Builtin(builtin) => builtin.wrong_name(name),
        Origin::Custom(_) => names::dns_subdomain(name).into_iter().next(),
    };
    if let Some(why) = wrong {
        errors.push(FieldError::invalid(&path.field("name"), &json!(name), why));
    }
}

fn validate_prefix(resource: &Resource, object: &Object, path: &Path, errors: &mut Vec<FieldError>) {
    let prefix = object::text(object, "/metadata/generateName");
    let wrong = match &resource.origin {
        _ if prefix.is_empty() => None,
        Origin::Builtin(builtin) => builtin.wrong_name_prefix(prefix),
        Origin::Custom(_) => names::dns_subdomain(&names::complete(prefix)).into_iter().next(),
    };
    if let Some(why) = wrong {
        errors.push(FieldError::invalid(&path.field("generateName"), &json!(prefix), why));
    }
}

fn validate_labels(object: &Object, path: &Path, errors: &mut Vec<FieldError>) {
    let path = path.field("labels");
    for (key, value) in entries(object, "labels") {
        refuse(&path, key, names::qualified_name(key), errors);
        let value = value.as_str().unwrap_or_default();
        refuse(&path, value, names::label_value(value), errors);
    }
}

fn validate_annotations(object: &Object, path: &Path, errors: &mut Vec<FieldError>) {
    let path = path.field("annotations");
    let mut size = 0;
    for (key, value) in entries(object, "annotations") {
        size += key.len() + value.as_str().map_or(0, str::len);
        refuse(&path, key, names::qualified_name(&key.to_ascii_lowercase()), errors);
    }
    if size > MAX_ANNOTATIONS {
        errors.push(FieldError::new(
            &path,
            ErrorKind::TooLong,
            None,
            format!("may not be more than {MAX_ANNOTATIONS} bytes"),
        ));
    }
}

fn refuse(path: &Path, value: &str, reasons: Vec<String>, errors: &mut Vec<FieldError>) {
    errors.extend(reasons.into_iter().map(|why| FieldError::invalid(path, &json!(value), why)));
}

fn entries<'a>(object: &'a Object, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object["metadata"].get(field).and_then(Value::as_object).into_iter().flatten()
}

fn validate_finalizers(
    resource: &Resource,
    object: &Object,
    live: Option<&Object>,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let path = path.field("finalizers");
    let finalizers = object::finalizers(object);
    for (index, finalizer) in finalizers.iter().enumerate() {
        refuse(&path, finalizer, names::qualified_name(finalizer), errors);
        if resource.wants_qualified_finalizers() && is_unqualified(finalizer) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(&path.index(index), &json!(finalizer), why));
        }
    }
    if [ORPHAN, FOREGROUND].iter().all(|both| finalizers.contains(both)) {
        let why = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        errors.push(FieldError::invalid(&path, &json!(finalizers), why));
    }
    let Some(live) = live.filter(|live| object::is_being_deleted(live)) else { return };
    let before = object::finalizers(live);
    let added: Vec<_> = finalizers.iter().filter(|f| !before.contains(f)).collect();
    if !added.is_empty() {
        let why =
            format!("no new finalizers can be added if the object is being deleted, found new finalizers {added:?}");
        errors.push(FieldError::forbidden(&path, why));
    }
}

fn validate_owners(object: &Object, path: &Path, errors: &mut Vec<FieldError>) {
    let path = path.field("ownerReferences");
    let owners = object::owner_references(object);
    for (index, owner) in owners.iter().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                errors.push(FieldError::invalid(
                    &path.index(index).field(field),
                    &json!(""),
                    format!("{field} must not be empty"),
                ));
            }
        }
        let (api_version, kind) = (owner["apiVersion"].as_str().unwrap_or_default(), &owner["kind"]);
        if api_version.matches('/').count() > 1 || api_version.ends_with('/') {
            let path = path.index(index).field("apiVersion");
            errors.push(FieldError::invalid(&path, &json!(api_version), "version must not be empty"));
        }
        if kind == "Event" && matches!(api_version, "v1" | "events.k8s.io/v1") {
            let why = format!("{api_version}, Kind=Event is disallowed from being an owner");
            errors.push(FieldError::invalid(&path.index(index), owner, why));
        }
    }
    if owners.iter().filter(|o| o["controller"] == true).count() > 1 {
        errors.push(FieldError::invalid(
            &path,
            &json!(owners.len()),
            "Only one reference can have Controller set to true",
        ));
    }
}

fn validate_unchanged(object: &Object, live: &Object, path: &Path, errors: &mut Vec<FieldError>) {
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (new, old) = (&object["metadata"][field], &live["metadata"][field]);
        if new != old && !(new == "" && old.is_null()) {
            errors.push(FieldError::invalid(&path.field(field), new, "field is immutable"));
        }
    }
}
