//! What an API server would say to an object of ours, without one.

use anyhow::{Context, bail};
use serde_json::Value;
use underpass_resources::{KINDS, Kind, VERSION};
use underpass_schema::{FieldError, Path, Schema, Validator};

use crate::manifests::Document;

/// The schemas of our kinds, ready to judge.
pub(crate) struct Checker {
    validators: Vec<(&'static Kind, Validator)>,
}

/// What is to be said of a document.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    /// Right, and this is it with its defaults.
    Good(Value),
    /// Every error with its place. Rules compare fields, and are not asked about fields that are wrong in themselves.
    Bad { errors: Vec<String>, rules_skipped: bool },
    /// Not of our kinds: only its server knows.
    Foreign,
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

    /// Refuses if any document would be refused, naming all errors.
    pub(crate) fn check_all(&self, documents: &[Document]) -> anyhow::Result<()> {
        let wrong = |document: &Document| match self.check(document) {
            Verdict::Bad { errors, .. } => errors,
            Verdict::Good(_) | Verdict::Foreign => Vec::new(),
        };
        let errors: Vec<String> = documents.iter().flat_map(wrong).collect();
        if errors.is_empty() { Ok(()) } else { bail!("{}", errors.join("\n")) }
    }

    pub(crate) fn check(&self, document: &Document) -> Verdict {
        let (api_version, name) = (document.text("/apiVersion"), document.text("/kind"));
        let found = self.validators.iter().find(|(kind, _)| name == kind.kind && api_version == kind.api_version());
        let bad = |error: String| format!("{document}: {error}");
        let Some((kind, validator)) = found else {
            return unknown(api_version, name).map_or(Verdict::Foreign, |error| Verdict::bad(vec![bad(error)]));
        };
        let mut object = document.object.clone();
        let unknown = validator.schema().prune_object(&mut object);
        validator.schema().default_into(&mut object);
        place(kind, &mut object);
        let (skipped, wrong): (Vec<_>, Vec<_>) =
            validator.validate(&object).into_iter().partition(FieldError::says_rules_were_skipped);
        let errors = unknown.iter().map(|field| format!("{field}: unknown field"));
        let errors: Vec<String> = errors.chain(wrong.iter().map(ToString::to_string)).map(bad).collect();
        match errors.is_empty() {
            true => Verdict::Good(object),
            false => Verdict::Bad { errors, rules_skipped: !skipped.is_empty() },
        }
    }
}

impl Verdict {
    fn bad(errors: Vec<String>) -> Self {
        Self::Bad { errors, rules_skipped: false }
    }
}

/// What to say of a kind that one of our groups would have if it existed.
fn unknown(api_version: &str, name: &str) -> Option<String> {
    let (group, version) = api_version.split_once('/')?;
    let kinds: Vec<&str> = KINDS.iter().filter(|kind| kind.group == group).map(|kind| kind.kind).collect();
    (!kinds.is_empty())
        .then(|| format!("{group} has no {name} in version {version}; in {VERSION} it has {}", kinds.join(", ")))
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

fn lines(errors: &[FieldError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(api_version: &str, kind: &str, spec: &Value) -> Verdict {
        let object = json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": "n" }, "spec": spec });
        Checker::new().unwrap().check(&Document::new("f.yaml", 1, object))
    }

    fn errors(verdict: Verdict) -> (Vec<String>, bool) {
        match verdict {
            Verdict::Bad { errors, rules_skipped } => (errors, rules_skipped),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_good_object_gets_its_defaults() {
        let Verdict::Good(checked) = check("underpass.dev/v1alpha1", "ContainerNetwork", &json!({})) else { panic!() };
        assert_eq!(checked["spec"]["mode"], "session");
        assert_eq!(checked["metadata"], json!({ "name": "n" }));
    }

    #[test]
    fn all_errors_are_listed_with_their_fields_and_nothing_else() {
        let spec = json!({ "modes": "session", "ipv6": "yes" });
        let (errors, rules_skipped) = errors(check("underpass.dev/v1alpha1", "ContainerNetwork", &spec));
        assert_eq!((errors.len(), rules_skipped), (2, true), "{errors:?}");
        assert_eq!(errors[0], "f.yaml, document 1 (ContainerNetwork n): spec.modes: unknown field");
        assert!(errors[1].starts_with("f.yaml, document 1 (ContainerNetwork n): spec.ipv6: "), "{errors:?}");
    }

    #[test]
    fn a_kind_that_our_groups_do_not_have_is_an_error() {
        for (api_version, kind) in
            [("underpass.dev/v1alpha1", "ContainerNetwrk"), ("underpass.dev/v1", "ContainerNetwork")]
        {
            let (errors, _) = errors(check(api_version, kind, &json!({})));
            assert!(errors[0].contains(&format!("underpass.dev has no {kind} in version ")), "{errors:?}");
            assert!(
                errors[0].contains(" in v1alpha1 it has ") && errors[0].ends_with(", ContainerNetwork"),
                "{errors:?}"
            );
        }
    }

    #[test]
    fn what_is_not_ours_is_not_judged() {
        assert_eq!(check("v1", "ConfigMap", &json!({})), Verdict::Foreign);
        assert_eq!(check("example.com/v1", "Infra", &json!({})), Verdict::Foreign);
    }
}
