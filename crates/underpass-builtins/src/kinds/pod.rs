//! core/v1 Pod, as plain storage: nothing here runs it.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use underpass_schema::{FieldError, Path};

use crate::checks::Errors;
use crate::pod_spec::{self, CONTAINER_LISTS};
use crate::quantity::Quantity;
use crate::{Builtin, Column, fields, names};

mod row;

/// What an update may change, as Kubernetes lists it.
const CHANGEABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` \
                          (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it \
                          was previously negative)";
/// The resources that decide the quality of service.
const MEASURED: [&str; 2] = ["cpu", "memory"];

const COLUMNS: &[Column] = &[
    Column::name("Name of the Pod."),
    Column::text("Ready", "Containers that are ready, of all."),
    Column::text("Status", "What the Pod is doing, or why it is not."),
    Column::text("Restarts", "How often its containers were restarted, and when last."),
    Column::age(),
    Column::text("IP", "Its address.").wide(),
    Column::text("Node", "Where it runs.").wide(),
    Column::text("Nominated Node", "Where it will run once room is made.").wide(),
    Column::text("Readiness Gates", "Conditions met, of those that it waits for.").wide(),
];

pub(crate) const fn builtin() -> Builtin {
    Builtin {
        group: "",
        version: "v1",
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        categories: &["all"],
        namespaced: true,
        status: true,
        scale: false,
        generation: true,
        bucket: "pods",
        definition: "io.k8s.api.core.v1.Pod",
        columns: COLUMNS,
        name: names::dns_subdomain,
        define: |generator| {
            generator.subschema_for::<Pod>();
        },
        row: row::row,
        prepare_update: |_, _| {},
        default,
        validate,
        built: OnceLock::new(),
    }
}

fn default(object: &mut Value) {
    if let Some(spec) = fields::section(object, "spec") {
        pod_spec::default(spec);
        fields::fill(spec, "enableServiceLinks", true);
        let host_network = fields::flag(spec, "/hostNetwork");
        for list in ["/containers", "/initContainers"] {
            for container in fields::each_mut(spec, list) {
                request_limits(container);
                if host_network {
                    fields::each_mut(container, "/ports").for_each(open_on_host);
                }
            }
        }
    }
    let quality = quality_of_service(object);
    if let Some(status) = fields::section(object, "status") {
        fields::fill(status, "phase", "Pending");
        fields::fill(status, "qosClass", quality);
    }
}

/// Who limits a resource and requests none, requests the limit.
fn request_limits(container: &mut Value) {
    let Some(limits) = container.pointer("/resources/limits").and_then(Value::as_object).cloned() else { return };
    if let Some(requests) = container.get_mut("resources").and_then(|resources| fields::section(resources, "requests"))
    {
        limits.into_iter().for_each(|(name, amount)| fields::fill(requests, &name, amount));
    }
}

fn open_on_host(port: &mut Value) {
    if let Some(number) = fields::int(port, "/containerPort") {
        fields::fill_number(port, "hostPort", number);
    }
}

/// Guaranteed: every container limits cpu and memory and requests just that. BestEffort: none says anything.
fn quality_of_service(pod: &Value) -> &'static str {
    let containers =
        || ["/spec/containers", "/spec/initContainers"].into_iter().flat_map(|list| fields::list(pod, list));
    let amount = |container: &Value, key: &str, name: &str| {
        Quantity::read(&container["resources"][key][name]).filter(|amount| !amount.is_zero())
    };
    let guaranteed = containers().all(|container| {
        MEASURED.iter().all(|name| {
            let limit = amount(container, "limits", name);
            limit.is_some() && limit == amount(container, "requests", name)
        })
    });
    let silent = containers().all(|container| {
        MEASURED.iter().all(|name| ["limits", "requests"].iter().all(|key| amount(container, key, name).is_none()))
    });
    match (silent, guaranteed) {
        (true, _) => "BestEffort",
        (false, true) => "Guaranteed",
        (false, false) => "Burstable",
    }
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let path = Path::from("spec");
    pod_spec::validate(&new["spec"], &path, &mut errors);
    for list in ["containers", "initContainers"] {
        for (index, container) in fields::list(&new["spec"], &format!("/{list}")).iter().enumerate() {
            let image = fields::text(container, "/image");
            if image.trim() != image {
                let path = path.field(list).index(index).field("image");
                errors.invalid(&path, image, "must not have leading or trailing whitespace");
            }
        }
    }
    match old {
        None => validate_create(&new["spec"], &path, &mut errors),
        Some(old) => validate_update(&new["spec"], &old["spec"], &path, &mut errors),
    }
    errors.done()
}

fn validate_create(spec: &Value, path: &Path, errors: &mut Errors) {
    if !fields::list(spec, "/ephemeralContainers").is_empty() {
        errors.forbidden(&path.field("ephemeralContainers"), "cannot be set on create");
    }
    if !fields::text(spec, "/nodeName").is_empty() && !fields::list(spec, "/schedulingGates").is_empty() {
        errors.forbidden(&path.field("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
}

/// A Pod is what it was made as: few fields may change.
fn validate_update(new: &Value, old: &Value, path: &Path, errors: &mut Errors) {
    for list in ["containers", "initContainers"] {
        let pointer = format!("/{list}");
        if fields::list(new, &pointer).len() != fields::list(old, &pointer).len() {
            return errors.forbidden(&path.field(list), "pod updates may not add or remove containers");
        }
    }
    validate_deadline(new, old, path, errors);
    validate_tolerations(new, old, path, errors);
    validate_gates(new, old, path, errors);
    let changed = fixed_fields_changed(new, old);
    if !changed.is_empty() {
        let changed: Vec<String> = changed.iter().map(|field| format!("spec.{field}")).collect();
        let detail =
            format!("pod updates may not change fields other than {CHANGEABLE}\nchanged: {}", changed.join(", "));
        errors.forbidden(path, detail);
    }
}

fn validate_deadline(new: &Value, old: &Value, path: &Path, errors: &mut Errors) {
    let path = path.field("activeDeadlineSeconds");
    let deadline = |spec: &Value| fields::int(spec, "/activeDeadlineSeconds");
    match (deadline(new), deadline(old)) {
        (Some(new), Some(old)) if new > old => {
            errors.invalid(&path, new, "must be less than or equal to previous value");
        }
        (None, Some(_)) => errors.invalid(&path, Value::Null, "must not update from a positive integer to nil value"),
        _ => {}
    }
}

fn validate_tolerations(new: &Value, old: &Value, path: &Path, errors: &mut Errors) {
    let bare = |toleration: &Value| {
        let mut bare = toleration.clone();
        bare.as_object_mut().map(|bare| bare.remove("tolerationSeconds"));
        bare
    };
    let kept: Vec<Value> = fields::list(new, "/tolerations").iter().map(bare).collect();
    if !fields::list(old, "/tolerations").iter().all(|toleration| kept.contains(&bare(toleration))) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.forbidden(&path.field("tolerations"), detail);
    }
}

fn validate_gates(new: &Value, old: &Value, path: &Path, errors: &mut Errors) {
    let known: BTreeSet<&str> =
        fields::list(old, "/schedulingGates").iter().map(|gate| fields::text(gate, "/name")).collect();
    for (index, gate) in fields::list(new, "/schedulingGates").iter().enumerate() {
        let name = fields::text(gate, "/name");
        if !known.contains(name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&path.field("schedulingGates").index(index).field("name"), detail);
        }
    }
}

fn fixed_fields_changed(new: &Value, old: &Value) -> Vec<String> {
    let (new, old) = (fixed(new, old), fixed(old, old));
    let names: BTreeSet<&String> =
        [&new, &old].into_iter().filter_map(Value::as_object).flat_map(|spec| spec.keys()).collect();
    names.into_iter().filter(|name| new.get(*name) != old.get(*name)).cloned().collect()
}

/// A spec without what may change.
fn fixed(spec: &Value, old: &Value) -> Value {
    let mut spec = spec.clone();
    for container in CONTAINER_LISTS {
        for container in fields::each_mut(&mut spec, &format!("/{container}")).filter_map(Value::as_object_mut) {
            container.remove("image");
        }
    }
    let negative = fields::int(old, "/terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0);
    let mended = negative && fields::int(&spec, "/terminationGracePeriodSeconds") == Some(1);
    if let Some(fields) = spec.as_object_mut() {
        fields
            .retain(|field, _| !["activeDeadlineSeconds", "tolerations", "schedulingGates"].contains(&field.as_str()));
        if mended {
            fields.insert("terminationGracePeriodSeconds".to_owned(), old["terminationGracePeriodSeconds"].clone());
        }
    }
    spec
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::texts;

    fn pod(changes: Value) -> Value {
        let mut spec = json!({"containers": [{"name": "web", "image": "web:1"}]});
        spec.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let mut object = json!({"metadata": {"name": "web"}, "spec": spec});
        builtin().default(&mut object);
        object
    }

    #[test]
    fn filled() {
        let object = pod(json!({}));
        assert_eq!(object["spec"]["enableServiceLinks"], true);
        assert_eq!(object["spec"]["schedulerName"], "default-scheduler");
        assert_eq!(object["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
        assert!(validate(&object, None).is_empty());
    }

    #[test]
    fn limits_are_requested_and_decide_the_quality() {
        let with = |resources: Value| pod(json!({"containers": [{"name": "a", "image": "b", "resources": resources}]}));
        let object = with(json!({"limits": {"cpu": 1, "memory": "1Gi"}}));
        assert_eq!(object["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
        assert_eq!(object["status"]["qosClass"], "Guaranteed");
        assert_eq!(with(json!({"requests": {"cpu": "1"}}))["status"]["qosClass"], "Burstable");
    }

    #[test]
    fn the_network_of_the_host_opens_ports() {
        let containers = json!([{"name": "a", "image": "b", "ports": [{"containerPort": 80}]}]);
        let object = pod(json!({"hostNetwork": true, "containers": containers}));
        assert_eq!(object["spec"]["containers"][0]["ports"][0]["hostPort"], 80);
    }

    #[test]
    fn few_fields_may_change() {
        let old = pod(json!({"activeDeadlineSeconds": 60, "tolerations": [{"key": "a", "operator": "Exists"}]}));
        for allowed in [
            json!({"containers": [{"name": "web", "image": "web:2"}]}),
            json!({"activeDeadlineSeconds": 30}),
            json!({"tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]}),
        ] {
            let mut changes = json!({"activeDeadlineSeconds": 60, "tolerations": [{"key": "a", "operator": "Exists"}]});
            changes.as_object_mut().unwrap().extend(allowed.as_object().unwrap().clone());
            let mut new = pod(changes);
            new["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
            assert!(validate(&new, Some(&old)).is_empty(), "{allowed}: {:?}", texts(&validate(&new, Some(&old))));
        }
        let mut new = old.clone();
        new["spec"]["hostname"] = "other".into();
        let found = texts(&validate(&new, Some(&old)));
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with(
                "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`"
            )
        );
        assert!(found[0].ends_with("changed: spec.hostname"));
    }

    #[test]
    fn refused_updates() {
        let old = pod(json!({"activeDeadlineSeconds": 60, "tolerations": [{"key": "a", "operator": "Exists"}]}));
        for (field, value, expected) in [
            (
                "activeDeadlineSeconds",
                json!(90),
                "spec.activeDeadlineSeconds: Invalid value: 90: must be less than or equal to previous value",
            ),
            (
                "tolerations",
                json!([]),
                "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
            ),
            (
                "schedulingGates",
                json!([{"name": "g"}]),
                "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g'",
            ),
            (
                "containers",
                json!([old["spec"]["containers"][0], {"name": "b", "image": "b", "imagePullPolicy": "Always", "terminationMessagePolicy": "File"}]),
                "spec.containers: Forbidden: pod updates may not add or remove containers",
            ),
        ] {
            let mut new = old.clone();
            new["spec"][field] = value;
            assert_eq!(texts(&validate(&new, Some(&old))), [expected]);
        }
    }

    #[test]
    fn refused_on_creation() {
        let mut object = pod(json!({"nodeName": "n", "schedulingGates": [{"name": "g"}]}));
        assert_eq!(
            texts(&validate(&object, None)),
            ["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"]
        );
        object = pod(json!({"containers": [{"name": "a", "image": " b"}]}));
        assert_eq!(
            texts(&validate(&object, None)),
            ["spec.containers[0].image: Invalid value: \" b\": must not have leading or trailing whitespace"]
        );
    }
}
