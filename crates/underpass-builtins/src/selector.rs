//! Label selectors as documents hold them: checked, shown, matched.

use std::collections::BTreeSet;

use serde_json::Value;
use underpass_schema::Path;

use crate::checks::Errors;
use crate::{fields, names};

pub(crate) fn validate(selector: &Value, path: &Path, errors: &mut Errors) {
    errors.labels(selector, path, "matchLabels");
    for (index, requirement) in fields::list(selector, "/matchExpressions").iter().enumerate() {
        validate_requirement(requirement, &path.field("matchExpressions").index(index), errors);
    }
}

/// As `kubectl get -o wide` shows it: `app=web,tier in (back,front),!draft`.
pub(crate) fn text(selector: &Value) -> String {
    let equal = fields::entries(selector, "/matchLabels")
        .map(|(key, value)| (key.as_str(), format!("{key}={}", value.as_str().unwrap_or_default())));
    let requirements = fields::list(selector, "/matchExpressions");
    let requirements =
        requirements.iter().map(|requirement| (fields::text(requirement, "/key"), requirement_text(requirement)));
    let mut parts: Vec<_> = equal.chain(requirements).collect();
    parts.sort_by_key(|(key, _)| *key);
    parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

/// Whether the labels at `pointer` of `object` are selected. An empty selector selects all.
pub(crate) fn matches(selector: &Value, object: &Value, pointer: &str) -> bool {
    let label = |key: &str| object.pointer(pointer).and_then(|labels| labels.get(key)).and_then(Value::as_str);
    let equal = fields::entries(selector, "/matchLabels").all(|(key, value)| label(key) == value.as_str());
    equal
        && fields::list(selector, "/matchExpressions").iter().all(|requirement| {
            let found = label(fields::text(requirement, "/key"));
            let listed =
                found.is_some_and(|found| fields::list(requirement, "/values").iter().any(|value| value == found));
            match fields::text(requirement, "/operator") {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}

fn validate_requirement(requirement: &Value, path: &Path, errors: &mut Errors) {
    let values = fields::list(requirement, "/values");
    match fields::text(requirement, "/operator") {
        "In" | "NotIn" => {
            if values.is_empty() {
                errors.required(&path.field("values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.forbidden(&path.field("values"), detail);
            }
        }
        other => errors.invalid(&path.field("operator"), other, "not a valid selector operator"),
    }
    let key = fields::text(requirement, "/key");
    errors.rule(&path.field("key"), key, names::qualified_name(key));
    for (index, value) in values.iter().filter_map(Value::as_str).enumerate() {
        errors.rule(&path.field("values").index(index), value, names::label_value(value));
    }
}

fn requirement_text(requirement: &Value) -> String {
    let key = fields::text(requirement, "/key");
    let values: BTreeSet<_> = fields::list(requirement, "/values").iter().filter_map(Value::as_str).collect();
    let values = values.into_iter().collect::<Vec<_>>().join(",");
    match fields::text(requirement, "/operator") {
        "In" => format!("{key} in ({values})"),
        "NotIn" => format!("{key} notin ({values})"),
        "DoesNotExist" => format!("!{key}"),
        _ => key.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shown_and_matched() {
        let selector = json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["front", "back"]},
                {"key": "draft", "operator": "DoesNotExist"},
                {"key": "a", "operator": "NotIn", "values": ["x"]},
                {"key": "z", "operator": "Exists"},
            ],
        });
        assert_eq!(text(&selector), "a notin (x),app=web,!draft,tier in (back,front),z");
        let selected = |labels: Value| matches(&selector, &json!({"labels": labels}), "/labels");
        assert!(selected(json!({"app": "web", "tier": "back", "z": ""})));
        assert!(!selected(json!({"app": "web", "tier": "side", "z": ""})));
        assert!(!selected(json!({"app": "web", "tier": "back", "z": "", "draft": "1"})));
        assert!(!selected(json!({"tier": "back", "z": ""})));
        assert!(matches(&json!({}), &json!({}), "/labels"));
    }

    #[test]
    fn wrong_selectors_are_named() {
        let selector = json!({
            "matchLabels": {"-a": "b c"},
            "matchExpressions": [
                {"key": "a", "operator": "In"},
                {"key": "a", "operator": "Exists", "values": ["b"]},
                {"key": "a", "operator": "Like"},
            ],
        });
        let mut errors = Errors::default();
        validate(&selector, &Path::from("spec.selector"), &mut errors);
        let found: Vec<String> = errors.done().iter().map(|error| error.path.to_string()).collect();
        assert_eq!(
            found,
            [
                "spec.selector.matchLabels",
                "spec.selector.matchLabels",
                "spec.selector.matchExpressions[0].values",
                "spec.selector.matchExpressions[1].values",
                "spec.selector.matchExpressions[2].operator",
            ]
        );
    }
}
