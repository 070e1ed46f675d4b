//! apps/v1 Deployment, as plain storage: nothing here makes Pods.

use std::sync::OnceLock;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};
use underpass_schema::{FieldError, Path};

use crate::checks::Errors;
use crate::{Builtin, Column, cells, fields, names, pod_spec, selector};

const COLUMNS: &[Column] = &[
    Column::name("Name of the deployment."),
    Column::text("Ready", "Pods that are ready, of those wanted."),
    Column::text("Up-to-date", "Pods made from the current template."),
    Column::text("Available", "Pods that have been ready for long enough."),
    Column::age(),
    Column::text("Containers", "Names of the containers.").wide(),
    Column::text("Images", "Images of the containers.").wide(),
    Column::text("Selector", "Labels of its Pods.").wide(),
];

pub(crate) const fn builtin() -> Builtin {
    Builtin {
        group: "apps",
        version: "v1",
        kind: "Deployment",
        plural: "deployments",
        singular: "deployment",
        short_names: &["deploy"],
        categories: &["all"],
        namespaced: true,
        status: true,
        scale: true,
        generation: true,
        bucket: "deployments.apps",
        definition: "io.k8s.api.apps.v1.Deployment",
        columns: COLUMNS,
        name: names::dns_subdomain,
        define: |generator| {
            generator.subschema_for::<Deployment>();
        },
        row,
        prepare_update: |_, _| {},
        default,
        validate,
        built: OnceLock::new(),
    }
}

fn row(object: &Value, now: Timestamp) -> Vec<Value> {
    let number = |pointer: &str| fields::int(object, pointer).unwrap_or_default();
    let containers = fields::list(object, "/spec/template/spec/containers");
    vec![
        cells::name(object),
        format!("{}/{}", number("/status/readyReplicas"), number("/spec/replicas")).into(),
        number("/status/updatedReplicas").into(),
        number("/status/availableReplicas").into(),
        cells::age(object, now),
        cells::joined(containers, "/name"),
        cells::joined(containers, "/image"),
        selector::text(&object["spec"]["selector"]).into(),
    ]
}

fn default(object: &mut Value) {
    if let Some(spec) = fields::section(object, "spec") {
        fields::fill(spec, "replicas", 1);
        fields::fill(spec, "revisionHistoryLimit", 10);
        fields::fill(spec, "progressDeadlineSeconds", 600);
        pod_spec::default_template(spec);
        if let Some(strategy) = fields::section(spec, "strategy") {
            default_strategy(strategy);
        }
    }
    fields::section(object, "status");
}

fn default_strategy(strategy: &mut Value) {
    fields::fill(strategy, "type", "RollingUpdate");
    if fields::text(strategy, "/type") == "RollingUpdate"
        && let Some(rolling) = fields::section(strategy, "rollingUpdate")
    {
        fields::fill(rolling, "maxUnavailable", "25%");
        fields::fill(rolling, "maxSurge", "25%");
    }
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let path = Path::from("spec");
    let spec = &new["spec"];
    errors.not_negative(spec, &path, "replicas");
    validate_selector(spec, &path, &mut errors);
    pod_spec::validate_template(&spec["template"], &path.field("template"), &mut errors);
    let restart = fields::text(spec, "/template/spec/restartPolicy");
    if ["OnFailure", "Never"].contains(&restart) {
        let path = path.field("template").field("spec").field("restartPolicy");
        errors.not_supported(&path, restart, &["Always"]);
    }
    validate_strategy(&spec["strategy"], &path.field("strategy"), &mut errors);
    validate_times(spec, &path, &mut errors);
    if let Some(old) = old {
        errors.immutable(new, old, "spec.selector");
    }
    errors.done()
}

fn validate_selector(spec: &Value, path: &Path, errors: &mut Errors) {
    let path_selector = path.field("selector");
    let Some(labels) = spec.get("selector") else { return errors.required(&path_selector, "") };
    selector::validate(labels, &path_selector, errors);
    if fields::count(labels, "/matchLabels") == 0 && fields::list(labels, "/matchExpressions").is_empty() {
        errors.invalid(&path_selector, labels.clone(), "empty selector is invalid for deployment");
    } else if !selector::matches(labels, spec, "/template/metadata/labels") {
        let found = spec.pointer("/template/metadata/labels").cloned().unwrap_or_default();
        let path = path.field("template").field("metadata").field("labels");
        errors.invalid(&path, found, "`selector` does not match template `labels`");
    }
}

fn validate_strategy(strategy: &Value, path: &Path, errors: &mut Errors) {
    let path_rolling = path.field("rollingUpdate");
    match fields::text(strategy, "/type") {
        "Recreate" if strategy.get("rollingUpdate").is_some() => {
            errors.forbidden(&path_rolling, "may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" => validate_rolling(&strategy["rollingUpdate"], &path_rolling, errors),
        _ => errors.not_supported(path, strategy.clone(), &["Recreate", "RollingUpdate"]),
    }
}

fn validate_rolling(rolling: &Value, path: &Path, errors: &mut Errors) {
    let mut amounts = [Some(0), Some(0)];
    for (amount, field) in amounts.iter_mut().zip(["maxUnavailable", "maxSurge"]) {
        let value = &rolling[field];
        *amount = number_or_percent(value);
        match *amount {
            None => {
                let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex \
                              used for validation is '[0-9]+%')";
                errors.invalid(&path.field(field), value.clone(), detail);
            }
            Some(number) if number < 0 => errors.not_negative(rolling, path, field),
            Some(_) => {}
        }
    }
    let unavailable = &rolling["maxUnavailable"];
    if amounts == [Some(0), Some(0)] {
        errors.invalid(&path.field("maxUnavailable"), unavailable.clone(), "may not be 0 when `maxSurge` is 0");
    }
    if unavailable.is_string() && amounts[0].is_some_and(|percent| percent > 100) {
        errors.invalid(&path.field("maxUnavailable"), unavailable.clone(), "must not be greater than 100%");
    }
}

fn number_or_percent(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => {
            text.strip_suffix('%').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
        }
        number => number.as_i64(),
    }
}

fn validate_times(spec: &Value, path: &Path, errors: &mut Errors) {
    for field in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        errors.not_negative(spec, path, field);
    }
    let ready = fields::int(spec, "/minReadySeconds").unwrap_or_default();
    if let Some(deadline) = fields::int(spec, "/progressDeadlineSeconds").filter(|deadline| *deadline <= ready) {
        let deadline: Value = json!(deadline);
        errors.invalid(&path.field("progressDeadlineSeconds"), deadline, "must be greater than minReadySeconds");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::texts;

    fn deployment(changes: Value) -> Value {
        let mut spec = json!({
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}},
        });
        spec.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let mut object = json!({"metadata": {"name": "web"}, "spec": spec});
        builtin().default(&mut object);
        object
    }

    #[test]
    fn filled() {
        let object = deployment(json!({}));
        let spec = &object["spec"];
        assert_eq!(spec["replicas"], 1);
        assert_eq!(spec["revisionHistoryLimit"], 10);
        assert_eq!(spec["progressDeadlineSeconds"], 600);
        assert_eq!(
            spec["strategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}})
        );
        assert_eq!(spec["template"]["spec"]["containers"][0]["imagePullPolicy"], "IfNotPresent");
        assert_eq!(
            deployment(json!({"strategy": {"type": "Recreate"}}))["spec"]["strategy"],
            json!({"type": "Recreate"})
        );
        assert!(validate(&object, Some(&object)).is_empty());
    }

    #[test]
    fn shown() {
        let mut object = deployment(json!({"replicas": 3}));
        object["status"] = json!({"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1});
        assert_eq!(
            json!(row(&object, Timestamp::UNIX_EPOCH)),
            json!(["web", "1/3", 2, 1, "<unknown>", "web", "web:1", "app=web"])
        );
    }

    #[test]
    fn refused() {
        for (changes, expected) in [
            (json!({"replicas": -1}), "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
            (
                json!({"selector": {"matchLabels": {"app": "other"}}}),
                "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`",
            ),
            (json!({"selector": {}}), "spec.selector: Invalid value: {}: empty selector is invalid for deployment"),
            (json!({"selector": null}), "spec.selector: Required value"),
            (
                json!({"strategy": {"type": "Recreate", "rollingUpdate": {}}}),
                "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
            ),
            (
                json!({"strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "0%"}}}),
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
            ),
            (
                json!({"strategy": {"rollingUpdate": {"maxUnavailable": "101%"}}}),
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%",
            ),
            (
                json!({"minReadySeconds": 600}),
                "spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds",
            ),
        ] {
            assert_eq!(texts(&validate(&deployment(changes.clone()), None)), [expected], "{changes}");
        }
    }

    #[test]
    fn the_selector_stays() {
        let old = deployment(json!({"selector": {"matchLabels": {"app": "web", "v": "1"}}}));
        let new = deployment(json!({}));
        assert_eq!(
            texts(&validate(&new, Some(&old))),
            ["spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"web\"}}: field is immutable"]
        );
    }
}
