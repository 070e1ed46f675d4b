//! What is wrong with the spec of a Pod.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use underpass_schema::Path;

use crate::checks::{Errors, PROTOCOLS};
use crate::fields::{entries, int, list, text};
use crate::quantity::Quantity;
use crate::{names, selector};

const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
const MESSAGE_POLICIES: &[&str] = &["File", "FallbackToLogsOnError"];
const UNSATISFIABLE: &[&str] = &["DoNotSchedule", "ScheduleAnyway"];
/// What runs once and ends is not probed.
const NOT_FOR_INIT: [&str; 4] = ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"];

pub(crate) fn validate(spec: &Value, path: &Path, errors: &mut Errors) {
    let volumes = validate_volumes(spec, &path.field("volumes"), errors);
    validate_containers(spec, &volumes, path, errors);
    errors.one_of(&path.field("restartPolicy"), text(spec, "/restartPolicy"), RESTART_POLICIES);
    errors.one_of(&path.field("dnsPolicy"), text(spec, "/dnsPolicy"), DNS_POLICIES);
    errors.labels(spec, path, "nodeSelector");
    validate_names(spec, path, errors);
    if let Some(seconds) =
        int(spec, "/activeDeadlineSeconds").filter(|seconds| !(1..=i64::from(i32::MAX)).contains(seconds))
    {
        let detail = format!("must be between 1 and {}, inclusive", i32::MAX);
        errors.invalid(&path.field("activeDeadlineSeconds"), seconds, detail);
    }
    validate_tolerations(list(spec, "/tolerations"), &path.field("tolerations"), errors);
    validate_spread(list(spec, "/topologySpreadConstraints"), &path.field("topologySpreadConstraints"), errors);
    let mut gates = BTreeSet::new();
    for (index, gate) in list(spec, "/schedulingGates").iter().enumerate() {
        let path = path.field("schedulingGates").index(index);
        let name = text(gate, "/name");
        errors.rule(&path, name, names::qualified_name(name));
        errors.unique(&path, name, &mut gates);
    }
    for (index, alias) in list(spec, "/hostAliases").iter().enumerate() {
        errors.ip(&path.field("hostAliases").index(index).field("ip"), text(alias, "/ip"));
    }
}

/// A template (`metadata` and `spec` of the Pods to be made).
pub(crate) fn validate_template(template: &Value, path: &Path, errors: &mut Errors) {
    errors.labels(&template["metadata"], path, "labels");
    for (key, _) in entries(template, "/metadata/annotations") {
        errors.rule(&path.field("annotations"), key, names::qualified_name(&key.to_lowercase()));
    }
    let path = path.field("spec");
    validate(&template["spec"], &path, errors);
    if !list(template, "/spec/ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.forbidden(&path.field("ephemeralContainers"), detail);
    }
}

fn validate_names(spec: &Value, path: &Path, errors: &mut Errors) {
    type Rule = fn(&str) -> Vec<String>;
    let rules: [(&str, Rule); 6] = [
        ("serviceAccountName", names::dns_subdomain),
        ("nodeName", names::dns_subdomain),
        ("hostname", names::dns_label),
        ("subdomain", names::dns_label),
        ("priorityClassName", names::dns_subdomain),
        ("runtimeClassName", names::dns_subdomain),
    ];
    for (field, rule) in rules {
        if let Some(name) = spec.get(field).and_then(Value::as_str).filter(|name| !name.is_empty()) {
            errors.rule(&path.field(field), name, rule(name));
        }
    }
}

/// The names of the volumes that can be mounted.
fn validate_volumes<'a>(spec: &'a Value, path: &Path, errors: &mut Errors) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for (index, volume) in list(spec, "/volumes").iter().enumerate() {
        let path = path.index(index);
        let sources: Vec<_> = volume.as_object().into_iter().flatten().filter(|(key, _)| *key != "name").collect();
        match sources.len() {
            0 => errors.required(&path, "must specify a volume type"),
            1 => {}
            _ => errors.forbidden(&path.field(sources[1].0), "may not specify more than 1 volume type"),
        }
        match text(volume, "/name") {
            "" => errors.required(&path.field("name"), ""),
            name => {
                errors.rule(&path.field("name"), name, names::dns_label(name));
                errors.unique(&path.field("name"), name, &mut seen);
            }
        }
    }
    seen
}

fn validate_containers(spec: &Value, volumes: &BTreeSet<&str>, path: &Path, errors: &mut Errors) {
    let containers = list(spec, "/containers");
    if containers.is_empty() {
        errors.required(&path.field("containers"), "");
    }
    let mut seen = BTreeSet::new();
    let mut host_ports = BTreeSet::new();
    // Regular containers first: a name that an init container repeats is reported there.
    for key in ["containers", "initContainers", "ephemeralContainers"] {
        for (index, container) in list(spec, &format!("/{key}")).iter().enumerate() {
            let path = path.field(key).index(index);
            validate_container(container, volumes, &path, errors);
            let name = text(container, "/name");
            if !name.is_empty() {
                errors.unique(&path.field("name"), name, &mut seen);
            }
            match key {
                "containers" => validate_host_ports(container, &path, &mut host_ports, errors),
                "initContainers" => {
                    validate_host_ports(container, &path, &mut BTreeSet::new(), errors);
                    validate_init(container, &path, errors);
                }
                _ => {}
            }
        }
    }
}

fn validate_container(container: &Value, volumes: &BTreeSet<&str>, path: &Path, errors: &mut Errors) {
    match text(container, "/name") {
        "" => errors.required(&path.field("name"), ""),
        name => errors.rule(&path.field("name"), name, names::dns_label(name)),
    }
    if text(container, "/image").is_empty() {
        errors.required(&path.field("image"), "");
    }
    let policy = text(container, "/terminationMessagePolicy");
    errors.one_of(&path.field("terminationMessagePolicy"), policy, MESSAGE_POLICIES);
    validate_ports(list(container, "/ports"), &path.field("ports"), errors);
    for (index, variable) in list(container, "/env").iter().enumerate() {
        validate_variable(variable, &path.field("env").index(index), errors);
    }
    validate_mounts(list(container, "/volumeMounts"), volumes, &path.field("volumeMounts"), errors);
    errors.one_of(&path.field("imagePullPolicy"), text(container, "/imagePullPolicy"), PULL_POLICIES);
    validate_resources(&container["resources"], &path.field("resources"), errors);
}

fn validate_init(container: &Value, path: &Path, errors: &mut Errors) {
    if text(container, "/restartPolicy") == "Always" {
        return;
    }
    for field in NOT_FOR_INIT.into_iter().filter(|field| container.get(*field).is_some()) {
        errors.forbidden(&path.field(field), "may not be set for init containers without restartPolicy=Always");
    }
}

fn validate_ports(ports: &[Value], path: &Path, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text(port, "/name");
        let wrong = names::port_name(name);
        match (name, wrong.is_empty()) {
            ("", _) => {}
            (_, true) => errors.unique(&path.field("name"), name, &mut seen),
            (_, false) => errors.rule(&path.field("name"), name, wrong),
        }
        match int(port, "/containerPort").unwrap_or_default() {
            0 => errors.required(&path.field("containerPort"), ""),
            number => errors.port(&path.field("containerPort"), number),
        }
        if let Some(number) = int(port, "/hostPort").filter(|number| *number != 0) {
            errors.port(&path.field("hostPort"), number);
        }
        errors.one_of(&path.field("protocol"), text(port, "/protocol"), PROTOCOLS);
    }
}

fn validate_host_ports(container: &Value, path: &Path, seen: &mut BTreeSet<String>, errors: &mut Errors) {
    for (index, port) in list(container, "/ports").iter().enumerate() {
        let Some(number) = int(port, "/hostPort").filter(|number| *number != 0) else { continue };
        let place = format!("{}/{}/{number}", text(port, "/protocol"), text(port, "/hostIP"));
        if !seen.insert(place.clone()) {
            errors.duplicate(&path.field("ports").index(index).field("hostPort"), place);
        }
    }
}

fn validate_variable(variable: &Value, path: &Path, errors: &mut Errors) {
    match text(variable, "/name") {
        "" => errors.required(&path.field("name"), ""),
        name => errors.rule(&path.field("name"), name, names::environment_variable(name)),
    }
    let Some(source) = variable.get("valueFrom") else { return };
    let path = path.field("valueFrom");
    let sources = entries(source, "").count();
    if !text(variable, "/value").is_empty() && sources > 0 {
        errors.invalid(&path, "", "may not be specified when `value` is not empty");
    }
    match sources {
        0 => {
            let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
            errors.invalid(&path, "", detail);
        }
        1 => {}
        _ => errors.invalid(&path, "", "may not have more than one field specified at a time"),
    }
}

fn validate_mounts(mounts: &[Value], volumes: &BTreeSet<&str>, path: &Path, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, mount) in mounts.iter().enumerate() {
        let path = path.index(index);
        match text(mount, "/name") {
            "" => errors.required(&path.field("name"), ""),
            name if !volumes.contains(name) => {
                // Kubernetes says "Not found" here, an error that nothing else of ours has.
                errors.invalid(&path.field("name"), name, "must be the name of a volume of the Pod");
            }
            _ => {}
        }
        match text(mount, "/mountPath") {
            "" => errors.required(&path.field("mountPath"), ""),
            place if !seen.insert(place) => errors.invalid(&path.field("mountPath"), place, "must be unique"),
            _ => {}
        }
        if !text(mount, "/subPath").is_empty() && !text(mount, "/subPathExpr").is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            errors.invalid(&path.field("subPathExpr"), text(mount, "/subPathExpr"), detail);
        }
    }
}

fn validate_resources(resources: &Value, path: &Path, errors: &mut Errors) {
    for key in ["limits", "requests"] {
        for (name, amount) in entries(resources, &format!("/{key}")) {
            let path = path.field(key).key(name);
            match Quantity::read(amount) {
                None => errors.invalid(
                    &path,
                    amount.clone(),
                    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
                ),
                Some(amount) if amount.is_negative() => {
                    errors.invalid(&path, amount.to_string(), "must be greater than or equal to 0");
                }
                Some(_) => {}
            }
        }
    }
    for (name, request) in entries(resources, "/requests") {
        let limit = resources["limits"].get(name).and_then(Quantity::read);
        if let (Some(request), Some(limit)) = (Quantity::read(request), limit)
            && request > limit
        {
            let detail = format!("must be less than or equal to {name} limit of {limit}");
            errors.invalid(&path.field("requests"), request.to_string(), detail);
        }
    }
}

fn validate_tolerations(tolerations: &[Value], path: &Path, errors: &mut Errors) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let path = path.index(index);
        let [key, operator, value, effect] =
            ["/key", "/operator", "/value", "/effect"].map(|field| text(toleration, field));
        let operator_path = path.field("operator");
        if !key.is_empty() {
            errors.rule(&path.field("key"), key, names::qualified_name(key));
        } else if operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&operator_path, operator, detail);
        }
        if toleration.get("tolerationSeconds").is_some() && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&path.field("effect"), effect, detail);
        }
        match operator {
            "Equal" | "" => {
                let wrong = names::label_value(value);
                if !wrong.is_empty() {
                    errors.invalid(&operator_path, value, wrong.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                errors.invalid(&operator_path, value, "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            other => errors.not_supported(&operator_path, other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            errors.taint_effect(&path.field("effect"), effect);
        }
    }
}

fn validate_spread(constraints: &[Value], path: &Path, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        let skew = int(constraint, "/maxSkew").unwrap_or_default();
        if skew <= 0 {
            errors.invalid(&path.field("maxSkew"), skew, "must be greater than zero");
        }
        let [key, unsatisfiable] = ["/topologyKey", "/whenUnsatisfiable"].map(|field| text(constraint, field));
        match key {
            "" => errors.required(&path.field("topologyKey"), "can not be empty"),
            key => errors.rule(&path.field("topologyKey"), key, names::qualified_name(key)),
        }
        if !UNSATISFIABLE.contains(&unsatisfiable) {
            errors.not_supported(&path.field("whenUnsatisfiable"), unsatisfiable, UNSATISFIABLE);
        }
        if !seen.insert((key, unsatisfiable)) {
            let pair = json!(format!("{{{key}, {unsatisfiable}}}"));
            errors.duplicate(&path.field("{topologyKey, whenUnsatisfiable}"), pair);
        }
        if let Some(labels) = constraint.get("labelSelector") {
            selector::validate(labels, &path.field("labelSelector"), errors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::texts;
    use crate::pod_spec::default;

    fn found(spec: Value) -> Vec<String> {
        let mut spec = spec;
        default(&mut spec);
        let mut errors = Errors::default();
        validate(&spec, &Path::from("spec"), &mut errors);
        texts(&errors.done())
    }

    fn with(container: Value) -> Value {
        let mut whole = json!({"name": "a", "image": "b"});
        whole.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        json!({"containers": [whole]})
    }

    #[test]
    fn a_good_pod_is_accepted() {
        let spec = json!({
            "containers": [{
                "name": "a",
                "image": "b:1",
                "ports": [{"name": "http", "containerPort": 80, "hostPort": 8080}],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": 1}},
            }],
            "initContainers": [{"name": "init", "image": "b"}],
            "volumes": [{"name": "data"}],
            "tolerations": [{"operator": "Exists"}, {"key": "a", "effect": "NoExecute", "tolerationSeconds": 5}],
        });
        assert_eq!(found(spec), Vec::<String>::new());
    }

    #[test]
    fn refused() {
        for (spec, expected) in [
            (json!({}), "spec.containers: Required value"),
            (json!({"containers": [{"image": "b"}]}), "spec.containers[0].name: Required value"),
            (json!({"containers": [{"name": "a"}]}), "spec.containers[0].image: Required value"),
            (
                json!({"containers": [{"name": "a", "image": "b"}, {"name": "a", "image": "b"}]}),
                "spec.containers[1].name: Duplicate value: \"a\"",
            ),
            (
                json!({"containers": [{"name": "a", "image": "b"}], "initContainers": [{"name": "a", "image": "b"}]}),
                "spec.initContainers[0].name: Duplicate value: \"a\"",
            ),
            (
                with(json!({"ports": [{"protocol": "TCP"}]})),
                "spec.containers[0].ports[0].containerPort: Required value",
            ),
            (
                with(json!({"ports": [{"containerPort": 70000}]})),
                "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            ),
            (
                with(json!({"ports": [{"containerPort": 1, "hostPort": 9}, {"containerPort": 2, "hostPort": 9}]})),
                "spec.containers[0].ports[1].hostPort: Duplicate value: \"TCP//9\"",
            ),
            (
                with(json!({"imagePullPolicy": "Sometimes"})),
                "spec.containers[0].imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \
                 \"Never\"",
            ),
            (
                with(json!({"env": [{"name": "a=b"}]})),
                "spec.containers[0].env[0].name: Invalid value: \"a=b\": a valid environment variable name must consist only of printable \
                 ASCII characters other than '='",
            ),
            (
                with(json!({"volumeMounts": [{"name": "x", "mountPath": "/x"}]})),
                "spec.containers[0].volumeMounts[0].name: Invalid value: \"x\": must be the name of a volume of the Pod",
            ),
            (
                with(json!({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}})),
                "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
            ),
            (
                json!({"containers": [{"name": "a", "image": "b"}], "restartPolicy": "Maybe"}),
                "spec.restartPolicy: Unsupported value: \"Maybe\": supported values: \"Always\", \"OnFailure\", \"Never\"",
            ),
            (
                json!({"containers": [{"name": "a", "image": "b"}], "volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]}),
                "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
            ),
            (
                json!({"containers": [{"name": "a", "image": "b"}], "tolerations": [{"key": ""}]}),
                "spec.tolerations[0].operator: Invalid value: \"\": operator must be Exists when `key` is empty, which means \"match all \
                 values and all keys\"",
            ),
            (
                json!({"containers": [{"name": "a", "image": "b"}], "initContainers": [{"name": "i", "image": "b", "livenessProbe": {}}]}),
                "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
            ),
        ] {
            assert_eq!(found(spec.clone()), [expected], "{spec}");
        }
    }
}
