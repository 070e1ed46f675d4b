//! Event, once as core/v1 and once as events.k8s.io/v1. Both are the same stored object, in the shape of core/v1.
//!
//! Some of its fields Kubernetes writes even when they say nothing, `"lastTimestamp": null` among them, and `kubectl get events
//! --sort-by=.lastTimestamp` needs to find one. Nobody owns those, and no rule looks at them: while an event is worked on it is without
//! them ([`bare_event`]), and gets them where it is written ([`convert_event`]).

use std::sync::OnceLock;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event as CoreEvent;
use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};
use underpass_schema::{FieldError, Path};

use crate::checks::Errors;
use crate::{Builtin, Column, cells, fields, names};

const GROUP: &str = "events.k8s.io";

/// The fields that the two groups name differently: core/v1, events.k8s.io/v1.
const RENAMED: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// What may not change once written through events.k8s.io/v1, in the names of core/v1.
const FIXED: &[&str] = &[
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
];

const MOST_CHARACTERS: &[(&str, usize)] =
    &[("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024)];

const COLUMNS: &[Column] = &[
    Column::text("Last Seen", "Time since it last happened."),
    Column::text("Type", "Normal or Warning."),
    Column::text("Reason", "Why it happened, in one word."),
    Column::text("Object", "What it is about."),
    Column::text("Subobject", "Which part of the object it is about.").wide(),
    Column::text("Source", "Who reported it.").wide(),
    Column::text("Message", "What happened, for people."),
    Column::text("First Seen", "Time since it first happened.").wide(),
    Column::text("Count", "How often it happened.").wide(),
    Column::name("Name of the event.").wide(),
];

pub(crate) const fn core() -> Builtin {
    Builtin {
        group: "",
        version: "v1",
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        categories: &[],
        namespaced: true,
        status: false,
        scale: false,
        generation: false,
        bucket: "events",
        definition: "io.k8s.api.core.v1.Event",
        columns: COLUMNS,
        // Kubernetes never checked the names of core events, and clients came to rely on it.
        name: names::path_segment,
        define: |generator| {
            generator.subschema_for::<CoreEvent>();
        },
        row,
        prepare_update: |_, _| {},
        default: bare_event,
        validate: |new, _| {
            let mut errors = Errors::default();
            validate_any(new, "reportingComponent", &mut errors);
            errors.done()
        },
        built: OnceLock::new(),
    }
}

pub(crate) const fn events() -> Builtin {
    Builtin {
        group: GROUP,
        version: "v1",
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        categories: &[],
        namespaced: true,
        status: false,
        scale: false,
        generation: false,
        bucket: "events",
        definition: "io.k8s.api.events.v1.Event",
        columns: COLUMNS,
        name: names::dns_subdomain,
        define: |generator| {
            generator.subschema_for::<Event>();
        },
        row: |object, now| row(&as_core(object), now),
        prepare_update: |_, _| {},
        default: bare_event,
        validate: |new, old| validate_new_style(&as_core(new), old.map(as_core).as_ref()),
        built: OnceLock::new(),
    }
}

/// An event as it is written in a group: its fields under their names there, also those that say nothing, and the `apiVersion`.
pub fn convert_event(object: &mut Value, to_group: &str) {
    rename(object, to_group);
    bare_event(object);
    let Some(fields) = object.as_object_mut() else { return };
    for (name, nothing) in always_written(to_group) {
        fields.entry(name).or_insert(nothing);
    }
}

/// An event without the fields that say nothing.
pub fn bare_event(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    for group in ["", GROUP] {
        for (name, nothing) in always_written(group) {
            // Without what it is about an event would be none of core/v1.
            if name != "involvedObject" && fields.get(name).is_some_and(|value| *value == nothing) {
                fields.remove(name);
            }
        }
    }
}

/// What Kubernetes' types cannot leave out, and what they write when it was not said.
fn always_written(group: &str) -> Vec<(&'static str, Value)> {
    let (never, empty) = (Value::Null, json!({}));
    if group == GROUP {
        return vec![
            ("eventTime", never.clone()),
            ("regarding", empty.clone()),
            ("deprecatedSource", empty),
            ("deprecatedFirstTimestamp", never.clone()),
            ("deprecatedLastTimestamp", never),
        ];
    }
    vec![
        ("involvedObject", empty.clone()),
        ("source", empty),
        ("firstTimestamp", never.clone()),
        ("lastTimestamp", never.clone()),
        ("eventTime", never),
        ("reportingComponent", json!("")),
        ("reportingInstance", json!("")),
    ]
}

fn rename(object: &mut Value, to_group: &str) {
    let Some(fields) = object.as_object_mut() else { return };
    let to_events = to_group == GROUP;
    for (core, events) in RENAMED {
        let (from, to) = if to_events { (core, events) } else { (events, core) };
        if let Some(value) = fields.remove(*from) {
            fields.insert((*to).to_owned(), value);
        }
    }
    fields.insert("apiVersion".to_owned(), json!(if to_events { "events.k8s.io/v1" } else { "v1" }));
}

fn as_core(object: &Value) -> Value {
    let mut core = object.clone();
    rename(&mut core, "");
    bare_event(&mut core);
    core
}

fn row(event: &Value, now: Timestamp) -> Vec<Value> {
    let first = seen(event, "/firstTimestamp", now).unwrap_or_else(|| cells::since(event, "/eventTime", now));
    let last = match event.get("series") {
        Some(_) => cells::since(event, "/series/lastObservedTime", now),
        None => seen(event, "/lastTimestamp", now).unwrap_or_else(|| first.clone()),
    };
    // An event that did not repeat has no count in the newer style.
    let count =
        fields::int(event, "/series/count").or_else(|| fields::int(event, "/count").filter(|count| *count != 0));
    vec![
        last.into(),
        fields::text(event, "/type").into(),
        fields::text(event, "/reason").into(),
        about(event).into(),
        fields::text(event, "/involvedObject/fieldPath").into(),
        reporter(event).into(),
        fields::text(event, "/message").trim().into(),
        first.into(),
        count.unwrap_or(1).into(),
        cells::name(event),
    ]
}

fn seen(event: &Value, pointer: &str, now: Timestamp) -> Option<String> {
    (!fields::text(event, pointer).is_empty()).then(|| cells::since(event, pointer, now))
}

fn about(event: &Value) -> String {
    let kind = fields::text(event, "/involvedObject/kind").to_lowercase();
    match fields::text(event, "/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn reporter(event: &Value) -> String {
    let first = |pointers: [&str; 2]| {
        pointers.map(|pointer| fields::text(event, pointer)).into_iter().find(|text| !text.is_empty())
    };
    let component = first(["/source/component", "/reportingComponent"]).unwrap_or_default();
    match first(["/source/host", "/reportingInstance"]) {
        Some(instance) => format!("{component}, {instance}"),
        None => component.to_owned(),
    }
}

/// The rules for both groups. Only events in the newer style, known by `eventTime`, must say who reports what.
fn validate_any(event: &Value, reporter: &str, errors: &mut Errors) {
    let namespace = fields::text(event, "/metadata/namespace");
    let about = fields::text(event, "/involvedObject/namespace");
    let new_style = !fields::text(event, "/eventTime").is_empty();
    let agrees = match (new_style, about) {
        (false, "") => ["", "default"].contains(&namespace),
        (false, about) => namespace == about,
        (true, "") => ["default", "kube-system"].contains(&namespace),
        (true, _) => true,
    };
    if !agrees {
        errors.invalid(&Path::from("involvedObject.namespace"), about, "does not match event.namespace");
    }
    if new_style {
        validate_reporter(event, reporter, errors);
    }
}

fn validate_reporter(event: &Value, reporter: &str, errors: &mut Errors) {
    let controller = fields::text(event, "/reportingComponent");
    if controller.is_empty() {
        errors.required(&Path::from(reporter), "");
    }
    errors.rule(&Path::from(reporter), controller, names::qualified_name(controller));
    for field in ["reportingInstance", "action", "reason"]
        .into_iter()
        .filter(|field| event[*field].as_str().is_none_or(str::is_empty))
    {
        errors.required(&Path::from(field), "");
    }
    for (field, most) in
        MOST_CHARACTERS.iter().filter(|(field, most)| event[*field].as_str().unwrap_or_default().len() > *most)
    {
        errors.invalid(&Path::from(*field), "", format!("can have at most {most} characters"));
    }
}

/// The stricter rules of events.k8s.io/v1. As in Kubernetes, paths are those of core/v1 even so.
fn validate_new_style(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::default();
    validate_any(new, "reportingController", &mut errors);
    if old.is_none_or(|old| old.get("series") != new.get("series")) {
        validate_series(new, &mut errors);
    }
    match old {
        Some(old) => FIXED.iter().for_each(|field| errors.immutable(new, old, field)),
        None => validate_created(new, &mut errors),
    }
    errors.done()
}

fn validate_series(event: &Value, errors: &mut Errors) {
    let Some(series) = event.get("series") else { return };
    if fields::int(series, "/count").unwrap_or_default() < 2 {
        errors.invalid(&Path::from("series.count"), "", "should be at least 2");
    }
    if fields::text(series, "/lastObservedTime").is_empty() {
        errors.required(&Path::from("series.lastObservedTime"), "");
    }
}

fn validate_created(event: &Value, errors: &mut Errors) {
    if fields::text(event, "/eventTime").is_empty() {
        errors.required(&Path::from("eventTime"), "");
    }
    let type_ = fields::text(event, "/type");
    if !["Normal", "Warning"].contains(&type_) {
        errors.invalid(&Path::from("type"), "", format!("has invalid value: {type_}"));
    }
    let source = ["/source/component", "/source/host"].iter().any(|pointer| !fields::text(event, pointer).is_empty());
    let unset = [
        ("firstTimestamp", event.get("firstTimestamp").is_some()),
        ("lastTimestamp", event.get("lastTimestamp").is_some()),
        ("count", fields::int(event, "/count").unwrap_or_default() != 0),
        ("source", source),
    ];
    for (field, _) in unset.into_iter().filter(|(_, set)| *set) {
        errors.invalid(&Path::from(field), "", "needs to be unset");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::texts;

    fn core_event() -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "web.1", "namespace": "team"},
            "involvedObject": {"kind": "Pod", "namespace": "team", "name": "web", "fieldPath": "spec.containers{web}"},
            "reason": "Started",
            "message": " Started the container \n",
            "source": {"component": "kubelet", "host": "node-1"},
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:09:00Z",
            "count": 4,
            "type": "Normal",
            "reportingComponent": "kubelet",
            "reportingInstance": "node-1",
        })
    }

    fn new_event() -> Value {
        json!({
            "apiVersion": "events.k8s.io/v1",
            "metadata": {"name": "web.1", "namespace": "team"},
            "regarding": {"kind": "Pod", "namespace": "team", "name": "web"},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "underpass.dev/controller",
            "reportingInstance": "laptop",
            "action": "Start",
            "reason": "Started",
            "type": "Normal",
        })
    }

    #[test]
    fn there_and_back_is_the_same() {
        let mut event = core_event();
        convert_event(&mut event, GROUP);
        assert_eq!(event["apiVersion"], "events.k8s.io/v1");
        assert_eq!(event["regarding"]["name"], "web");
        assert_eq!(event["deprecatedCount"], 4);
        assert!(event.get("involvedObject").is_none() && event.get("message").is_none());
        let once = event.clone();
        convert_event(&mut event, GROUP);
        assert_eq!(event, once);
        convert_event(&mut event, "");
        bare_event(&mut event);
        assert_eq!(event, core_event());
    }

    #[test]
    fn what_says_nothing_is_written_as_kubernetes_writes_it() {
        let mut event = new_event();
        convert_event(&mut event, "");
        assert_eq!((&event["firstTimestamp"], &event["lastTimestamp"]), (&Value::Null, &Value::Null));
        assert!(event.as_object().unwrap().contains_key("lastTimestamp") && event.get("count").is_none());
        assert_eq!((&event["source"], &event["reportingInstance"]), (&json!({}), &json!("laptop")));
        let mut bare = json!({"metadata": {"name": "a"}, "involvedObject": {}, "reportingInstance": ""});
        convert_event(&mut bare, GROUP);
        let expected = json!({
            "apiVersion": "events.k8s.io/v1", "metadata": {"name": "a"}, "eventTime": null, "regarding": {},
            "deprecatedSource": {}, "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null,
        });
        assert_eq!(bare, expected);
    }

    #[test]
    fn shown_alike_in_both_groups() {
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        let expected = json!([
            "60s",
            "Normal",
            "Started",
            "pod/web",
            "spec.containers{web}",
            "kubelet, node-1",
            "Started the container",
            "10m",
            4,
            "web.1"
        ]);
        assert_eq!(json!(core().row(&core_event(), now)), expected);
        let mut event = core_event();
        convert_event(&mut event, GROUP);
        assert_eq!(json!(events().row(&event, now)), expected);
        let cells = events().row(&new_event(), now);
        assert_eq!((&cells[0], &cells[7], &cells[8]), (&json!("10m"), &json!("10m"), &json!(1)));
    }

    #[test]
    fn namespaces_agree() {
        let mut event = core_event();
        assert!(core().validate(&event, None).is_empty());
        event["metadata"]["namespace"] = "other".into();
        assert_eq!(
            texts(&core().validate(&event, None)),
            ["involvedObject.namespace: Invalid value: \"team\": does not match event.namespace"]
        );
        event["involvedObject"]["namespace"] = "".into();
        assert_eq!(
            texts(&core().validate(&event, None)),
            ["involvedObject.namespace: Invalid value: \"\": does not match event.namespace"]
        );
    }

    #[test]
    fn the_newer_group_is_stricter() {
        assert!(events().validate(&new_event(), None).is_empty());
        let mut event = new_event();
        event["type"] = "Odd".into();
        event["deprecatedCount"] = 1.into();
        event["action"] = "".into();
        event["series"] = json!({"count": 1});
        assert_eq!(
            texts(&events().validate(&event, None)),
            [
                "action: Required value",
                "series.count: Invalid value: \"\": should be at least 2",
                "series.lastObservedTime: Required value",
                "type: Invalid value: \"\": has invalid value: Odd",
                "count: Invalid value: \"\": needs to be unset",
            ]
        );
    }

    #[test]
    fn what_was_reported_stays() {
        let mut event = new_event();
        event["note"] = "changed".into();
        assert_eq!(
            texts(&events().validate(&event, Some(&new_event()))),
            ["message: Invalid value: \"changed\": field is immutable"]
        );
        let mut repeated = new_event();
        repeated["series"] = json!({"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"});
        assert!(events().validate(&repeated, Some(&new_event())).is_empty());
    }
}
