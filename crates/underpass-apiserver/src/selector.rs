//! Label and field selectors, as they stand in a query.

use serde_json::Value;
use underpass_builtins::names;

use crate::registry::{Origin, Resource};
use crate::status::ApiError;

/// A conjunction of requirements on labels. Empty = everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

impl LabelSelector {
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let refuse = |part: &str| {
            ApiError::bad_request(format!("unable to parse requirement {part:?} of the label selector {text:?}"))
        };
        let mut requirements = Vec::new();
        for part in split_outside_parentheses(text) {
            requirements.push(Requirement::parse(part).ok_or_else(|| refuse(part))?);
        }
        Ok(Self(requirements))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels");
        self.0.iter().all(|r| r.matches(labels.and_then(|l| l.get(&r.key)).and_then(Value::as_str)))
    }
}

impl Requirement {
    fn parse(part: &str) -> Option<Self> {
        let part = part.trim();
        let (key, test) = if let Some(key) = part.strip_prefix('!') {
            (key, Test::Absent)
        } else if let Some((head, list)) = part.strip_suffix(')').and_then(|p| p.split_once('(')) {
            let values = list.split(',').map(|v| v.trim().to_owned()).collect();
            match head.trim().rsplit_once(char::is_whitespace)? {
                (key, "in") => (key, Test::In(values)),
                (key, "notin") => (key, Test::NotIn(values)),
                _ => return None,
            }
        } else if let Some((key, value)) = part.split_once("!=") {
            (key, Test::NotIn(vec![value.trim().to_owned()]))
        } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            (key, Test::In(vec![value.trim().to_owned()]))
        } else if let Some((key, value)) = part.split_once('>') {
            (key, Test::Above(value.trim().parse().ok()?))
        } else if let Some((key, value)) = part.split_once('<') {
            (key, Test::Below(value.trim().parse().ok()?))
        } else {
            (part, Test::Exists)
        };
        let key = key.trim();
        (names::qualified_name(key).is_empty() && test.values().iter().all(|v| names::label_value(v).is_empty()))
            .then(|| Self { key: key.to_owned(), test })
    }

    fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => value.is_some_and(|v| values.iter().any(|w| w == v)),
            Test::NotIn(values) => !value.is_some_and(|v| values.iter().any(|w| w == v)),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::Above(than) => number().is_some_and(|n| n > *than),
            Test::Below(than) => number().is_some_and(|n| n < *than),
        }
    }
}

impl Test {
    fn values(&self) -> &[String] {
        match self {
            Self::In(values) | Self::NotIn(values) => values,
            _ => &[],
        }
    }
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.retain(|p| !p.trim().is_empty());
    parts
}

/// A conjunction of `path=value` and `path!=value`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct FieldSelector(Vec<FieldTerm>);

#[derive(Debug, Clone, PartialEq)]
struct FieldTerm {
    field: String,
    equal: bool,
    value: String,
}

/// The fields of Kubernetes' own kinds that can be selected by, beyond name and namespace.
const SELECTABLE: &[(&str, &[&str])] = &[
    (
        "Pod",
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
    ),
    ("Secret", &["type"]),
    ("Namespace", &["status.phase"]),
    ("Node", &["spec.unschedulable"]),
    ("Service", &["spec.clusterIP", "spec.type"]),
    (
        "Event",
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingComponent",
            "reportingController",
            "source",
            "type",
        ],
    ),
];

impl FieldSelector {
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let mut terms = Vec::new();
        for part in text.split(',').filter(|p| !p.is_empty()) {
            let (field, equal, value) = if let Some((f, v)) = part.split_once("!=") {
                (f, false, v)
            } else if let Some((f, v)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (f, true, v)
            } else {
                return Err(ApiError::bad_request(format!(
                    "invalid field selector {part:?}: write field=value or field!=value"
                )));
            };
            terms.push(FieldTerm { field: field.trim().to_owned(), equal, value: value.trim().to_owned() });
        }
        Ok(Self(terms))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Refuses fields that cannot be selected by.
    pub(crate) fn check(&self, resource: &Resource) -> Result<(), ApiError> {
        for term in &self.0 {
            let known = match term.field.as_str() {
                "metadata.name" => true,
                "metadata.namespace" => resource.namespaced,
                field => is_selectable(resource, field),
            };
            if !known {
                return Err(ApiError::bad_request(unknown_field(resource, &term.field)));
            }
        }
        Ok(())
    }

    /// Narrows the selection to one name.
    pub(crate) fn require_name(&mut self, name: &str) {
        self.0.push(FieldTerm { field: "metadata.name".to_owned(), equal: true, value: name.to_owned() });
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|term| (field_text(object, &term.field) == term.value) == term.equal)
    }
}

/// In Kubernetes' words, which differ with who knows the fields of a kind.
fn unknown_field(resource: &Resource, field: &str) -> String {
    match &resource.origin {
        Origin::Builtin(builtin) if SELECTABLE.iter().all(|(kind, _)| *kind != builtin.kind) => {
            format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }
        _ => format!("field label not supported: {field}"),
    }
}

fn is_selectable(resource: &Resource, field: &str) -> bool {
    match &resource.origin {
        Origin::Builtin(builtin) => {
            SELECTABLE.iter().any(|(kind, fields)| *kind == builtin.kind && fields.contains(&field))
        }
        Origin::Custom(custom) => {
            custom.selectable_fields.iter().any(|path| path.as_str().trim_start_matches('.') == field)
        }
    }
}

/// The value of a dotted field as text; what is absent is empty, as Kubernetes compares it.
fn field_text(object: &Value, field: &str) -> String {
    // An Event's `source` means its component.
    let path = if field == "source" { "source.component" } else { field };
    match path.split('.').try_fold(object, |value, name| value.get(name)) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        _ if matches!(field, "spec.unschedulable" | "spec.hostNetwork") => "false".to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn selects(selector: &str, labels: &Value) -> bool {
        LabelSelector::parse(selector).unwrap().matches(&json!({ "metadata": { "labels": labels } }))
    }

    #[test]
    fn label_selectors_match_as_kubernetes_documents() {
        let labels = json!({ "env": "prod", "tier": "web", "n": "5" });
        for (selector, expected) in [
            ("", true),
            ("env=prod", true),
            ("env==prod,tier=web", true),
            ("env!=prod", false),
            ("other!=x", true),
            ("env in (prod, test)", true),
            ("env notin (prod)", false),
            ("other notin (x)", true),
            ("env", true),
            ("!env", false),
            ("!other", true),
            ("n>4,n<6", true),
            ("n>5", false),
        ] {
            assert_eq!(selects(selector, &labels), expected, "{selector}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for selector in ["a=b c", "in (x)", "a>b", "-a", "a in x", "a/b/c=d"] {
            assert!(LabelSelector::parse(selector).is_err(), "{selector}");
        }
        assert!(FieldSelector::parse("metadata.name").is_err());
    }

    #[test]
    fn absent_fields_compare_as_empty() {
        let object = json!({ "metadata": { "name": "a" }, "spec": {} });
        assert!(FieldSelector::parse("metadata.name=a,spec.nodeName=").unwrap().matches(&object));
        assert!(!FieldSelector::parse("metadata.name!=a").unwrap().matches(&object));
        assert!(FieldSelector::parse("spec.unschedulable=false").unwrap().matches(&object));
    }
}
