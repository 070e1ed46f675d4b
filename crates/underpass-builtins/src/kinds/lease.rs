//! coordination.k8s.io/v1 Lease.

use std::sync::OnceLock;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::Value;
use underpass_schema::{FieldError, Path};

use crate::checks::Errors;
use crate::{Builtin, Column, cells, fields, names};

const COLUMNS: &[Column] =
    &[Column::name("Name of the lease."), Column::text("Holder", "Who holds the lease."), Column::age()];

pub(crate) const fn builtin() -> Builtin {
    Builtin {
        group: "coordination.k8s.io",
        version: "v1",
        kind: "Lease",
        plural: "leases",
        singular: "lease",
        short_names: &[],
        categories: &[],
        namespaced: true,
        status: false,
        scale: false,
        generation: false,
        bucket: "leases.coordination.k8s.io",
        definition: "io.k8s.api.coordination.v1.Lease",
        columns: COLUMNS,
        name: names::dns_subdomain,
        define: |generator| {
            generator.subschema_for::<Lease>();
        },
        row,
        prepare_update: |_, _| {},
        default: |_| {},
        validate,
        built: OnceLock::new(),
    }
}

fn row(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cells::name(object), fields::text(object, "/spec/holderIdentity").into(), cells::age(object, now)]
}

fn validate(new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let path = Path::from("spec");
    if let Some(duration) = fields::int(new, "/spec/leaseDurationSeconds").filter(|duration| *duration <= 0) {
        errors.invalid(&path.field("leaseDurationSeconds"), duration, "must be greater than 0");
    }
    errors.not_negative(&new["spec"], &path, "leaseTransitions");
    let strategy = fields::text(new, "/spec/strategy");
    if strategy.contains('/') {
        errors.rule(&path.field("strategy"), strategy, names::qualified_name(strategy));
    } else if !strategy.is_empty() && strategy != "OldestEmulationVersion" {
        errors.not_supported(&path.field("strategy"), strategy, &["OldestEmulationVersion"]);
    }
    if strategy.is_empty() && !fields::text(new, "/spec/preferredHolder").is_empty() {
        errors.forbidden(&path.field("preferredHolder"), "may only be specified if `strategy` is defined");
    }
    errors.done()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::texts;

    #[test]
    fn shown() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "b"}});
        assert_eq!(row(&object, Timestamp::UNIX_EPOCH), [json!("a"), json!("b"), json!("<unknown>")]);
    }

    #[test]
    fn refused() {
        for (spec, expected) in [
            (json!({"leaseDurationSeconds": 0}), "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"),
            (
                json!({"leaseTransitions": -1}),
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                json!({"preferredHolder": "a"}),
                "spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined",
            ),
            (
                json!({"strategy": "Newest"}),
                "spec.strategy: Unsupported value: \"Newest\": supported values: \"OldestEmulationVersion\"",
            ),
        ] {
            assert_eq!(texts(&validate(&json!({"spec": spec}), None)), [expected]);
        }
        assert!(validate(&json!({}), None).is_empty());
    }
}
