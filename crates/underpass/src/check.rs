//! What an API server would say to an object of ours, without one.

use anyhow::{Context, bail};
use serde_json::Value;
use underpass_resources::{Kind, VERSION};
use underpass_schema::{Path, Schema, Validator};

use crate::manifests::Document;

/// The schemas of our kinds, ready to judge.
pub(crate) struct Checker {
    validators: Vec<(&'static Kind, Validator)>,
}

impl Checker {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let validators = underpass_resources::crds().into_iter().map(|crd| {
            let name = &crd.spec.names.kind;
            let kind =
                underpass_resources::kind(name).with_context(|| format!("{name} is missing in the table of kinds"))?;
            let version = crd.spec.versions.into_iter().find(|version| version.name == VERSION);
            let schema = version.and_then(|version| version.schema).and_then(|schema| schema.open_api_v3_schema);
            let schema = serde_json::to_value(schema.with_context(|| format!("{} has no schema", kind.kind))?)?;
            let schema = Schema::parse(&schema, &Path::root())
                .map_err(|errors| anyhow::anyhow!("the schema of {} is broken: {}", kind.kind, lines(&errors)))?;
            Ok((kind, Validator::new(schema)))
        });
        Ok(Self { validators: validators.collect::<anyhow::Result<_>>()? })
    }

    /// Refuses if any document would be refused, naming them all.
    pub(crate) fn check_all(&self, documents: &[Document]) -> anyhow::Result<()> {
        let wrong = |document: &Document| match self.check(&document.object) {
            Some(Err(errors)) => errors.into_iter().map(|error| format!("{document}: {error}")).collect(),
            _ => Vec::new(),
        };
        let errors: Vec<String> = documents.iter().flat_map(wrong).collect();
        if errors.is_empty() { Ok(()) } else { bail!("{}", errors.join("\n")) }
    }

    /// The object with its defaults, or all that is wrong with it; `None` when its kind is not ours.
    pub(crate) fn check(&self, object: &Value) -> Option<Result<Value, Vec<String>>> {
        let (kind, validator) = self
            .validators
            .iter()
            .find(|(kind, _)| object["kind"] == kind.kind && object["apiVersion"] == kind.api_version())?;
        let mut object = object.clone();
        let mut errors: Vec<String> = validator
            .schema()
            .prune_object(&mut object)
            .iter()
            .map(|field| format!("{field}: unknown field"))
            .collect();
        validator.schema().default_into(&mut object);
        place(kind, &mut object);
        errors.extend(validator.validate(&object).iter().map(ToString::to_string));
        Some(if errors.is_empty() { Ok(object) } else { Err(errors) })
    }
}

/// Where an object goes that does not say it, as kubectl does.
fn place(kind: &Kind, object: &mut Value) {
    let namespace = &mut object["metadata"]["namespace"];
    if kind.namespaced && namespace.is_null() {
        *namespace = "default".into();
    }
    if namespace.is_null()
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        metadata.remove("namespace");
    }
}

fn lines(errors: &[underpass_schema::FieldError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn network(spec: &Value) -> Value {
        json!({ "apiVersion": "underpass.dev/v1alpha1", "kind": "ContainerNetwork", "metadata": { "name": "n" }, "spec": spec })
    }

    #[test]
    fn a_good_object_gets_its_defaults() {
        let checked = Checker::new().unwrap().check(&network(&json!({}))).unwrap().unwrap();
        assert_eq!(checked["spec"]["mode"], "session");
        assert_eq!(checked["metadata"], json!({ "name": "n" }));
    }

    #[test]
    fn all_errors_are_listed_with_their_fields() {
        let bad = network(&json!({ "modes": "session", "ipv6": "yes" }));
        let errors = Checker::new().unwrap().check(&bad).unwrap().unwrap_err();
        assert!(errors.iter().any(|error| error == "spec.modes: unknown field"), "{errors:?}");
        assert!(errors.iter().any(|error| error.starts_with("spec.ipv6: ")), "{errors:?}");
    }

    #[test]
    fn what_is_not_ours_is_not_judged() {
        let checker = Checker::new().unwrap();
        assert!(
            checker.check(&json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "n" } })).is_none()
        );
    }
}
