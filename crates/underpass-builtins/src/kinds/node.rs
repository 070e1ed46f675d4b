//! core/v1 Node.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::OnceLock;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;
use underpass_schema::{ErrorKind, FieldError, Path};

use crate::checks::Errors;
use crate::{Builtin, Column, cells, fields, names, quantity};

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
const ROLE_LABEL: &str = "kubernetes.io/role";

const COLUMNS: &[Column] = &[
    Column::name("Name of the node."),
    Column::text("Status", "Whether the node is ready, and takes new Pods."),
    Column::text("Roles", "What the node is for."),
    Column::age(),
    Column::text("Version", "Version of its kubelet."),
    Column::text("Internal-IP", "Its address inside the cluster's network.").wide(),
    Column::text("External-IP", "Its address outside.").wide(),
    Column::text("OS-Image", "Its operating system.").wide(),
    Column::text("Kernel-Version", "Version of its kernel.").wide(),
    Column::text("Container-Runtime", "Name and version of its container runtime.").wide(),
];

pub(crate) const fn builtin() -> Builtin {
    Builtin {
        group: "",
        version: "v1",
        kind: "Node",
        plural: "nodes",
        singular: "node",
        short_names: &["no"],
        categories: &[],
        namespaced: false,
        status: true,
        scale: false,
        generation: false,
        bucket: "nodes",
        definition: "io.k8s.api.core.v1.Node",
        columns: COLUMNS,
        name: names::dns_subdomain,
        define: |generator| {
            generator.subschema_for::<Node>();
        },
        row,
        prepare_update: |_, _| {},
        default,
        validate,
        built: OnceLock::new(),
    }
}

fn row(node: &Value, now: Timestamp) -> Vec<Value> {
    let address = |type_: &str| {
        let addresses = fields::list(node, "/status/addresses");
        let found = addresses.iter().find(|address| fields::text(address, "/type") == type_);
        cells::or(found.map_or("", |address| fields::text(address, "/address")), cells::NONE)
    };
    let info = |field: &str| fields::text(node, &format!("/status/nodeInfo/{field}"));
    vec![
        cells::name(node),
        status(node).into(),
        cells::or(&roles(node), cells::NONE),
        cells::age(node, now),
        info("kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        cells::or(info("osImage"), cells::UNKNOWN),
        cells::or(info("kernelVersion"), cells::UNKNOWN),
        cells::or(info("containerRuntimeVersion"), cells::UNKNOWN),
    ]
}

fn status(node: &Value) -> String {
    let conditions = fields::list(node, "/status/conditions");
    let ready = conditions.iter().rfind(|condition| fields::text(condition, "/type") == "Ready");
    let status = match ready.map(|condition| fields::text(condition, "/status")) {
        None => "Unknown",
        Some("True") => "Ready",
        Some(_) => "NotReady",
    };
    if fields::flag(node, "/spec/unschedulable") { format!("{status},SchedulingDisabled") } else { status.to_owned() }
}

fn roles(node: &Value) -> String {
    let roles: BTreeSet<&str> = fields::entries(node, "/metadata/labels")
        .filter_map(|(key, value)| match key.strip_prefix(ROLE_PREFIX) {
            Some(role) => Some(role),
            None if key == ROLE_LABEL => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.into_iter().collect::<Vec<_>>().join(",")
}

fn default(object: &mut Value) {
    quantity::canonicalize_all(object, "/status/capacity");
    quantity::canonicalize_all(object, "/status/allocatable");
    if let Some(capacity) = object.pointer("/status/capacity").cloned() {
        fields::fill(&mut object["status"], "allocatable", capacity);
    }
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::default();
    validate_taints(fields::list(new, "/spec/taints"), &mut errors);
    validate_pod_cidrs(new, &mut errors);
    if let Some(old) = old {
        validate_update(new, old, &mut errors);
    }
    errors.done()
}

/// Kubernetes reports taints below `metadata`, and so do we: scripts may look for it.
fn validate_taints(taints: &[Value], errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, taint) in taints.iter().enumerate() {
        let path = Path::from("metadata.taints").index(index);
        let [key, value, effect] = ["/key", "/value", "/effect"].map(|pointer| fields::text(taint, pointer));
        errors.rule(&path.field("key"), key, names::qualified_name(key));
        let wrong = names::label_value(value);
        if !wrong.is_empty() {
            errors.invalid(&path.field("value"), value, wrong.join(";"));
        }
        errors.taint_effect(&path.field("effect"), effect);
        if !seen.insert((key, effect)) {
            let detail = "taints must be unique by key and effect pair";
            errors.push(FieldError::new(&path, ErrorKind::Duplicate, Some(taint), detail));
        }
    }
}

fn validate_pod_cidrs(node: &Value, errors: &mut Errors) {
    let path = Path::from("spec.podCIDRs");
    let cidrs = fields::list(node, "/spec/podCIDRs");
    let parsed: Vec<Option<IpAddr>> = cidrs.iter().map(|cidr| network(cidr.as_str().unwrap_or_default())).collect();
    for (index, _) in parsed.iter().enumerate().filter(|(_, network)| network.is_none()) {
        let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        errors.invalid(&path.index(index), cidrs[index].clone(), detail);
    }
    let families: BTreeSet<bool> = parsed.iter().flatten().map(IpAddr::is_ipv4).collect();
    if cidrs.len() > 1 && (cidrs.len() > 2 || families.len() != 2) {
        errors.invalid(&path, cidrs.to_vec(), "may specify no more than one CIDR for each IP family");
    }
}

fn network(cidr: &str) -> Option<IpAddr> {
    let (address, length) = cidr.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    length.parse::<u8>().is_ok_and(|length| length <= most).then_some(address)
}

fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, address) in fields::list(new, "/status/addresses").iter().enumerate() {
        if !seen.insert((fields::text(address, "/type"), fields::text(address, "/address"))) {
            errors.duplicate(&Path::from("status.addresses").index(index), address.clone());
        }
    }
    let cidrs = fields::list(old, "/spec/podCIDRs");
    if !cidrs.is_empty() && cidrs != fields::list(new, "/spec/podCIDRs") {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        errors.forbidden(&Path::from("spec.podCIDRs"), detail);
    }
    let provider = fields::text(old, "/spec/providerID");
    if !provider.is_empty() && provider != fields::text(new, "/spec/providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.forbidden(&Path::from("spec.providerID"), detail);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::texts;

    #[test]
    fn shown() {
        let node = json!({
            "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": ""}},
            "spec": {"unschedulable": true},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "nodeInfo": {"kubeletVersion": "v1.36.0", "osImage": "Debian"},
            },
        });
        assert_eq!(
            json!(row(&node, Timestamp::UNIX_EPOCH)),
            json!([
                "n",
                "Ready,SchedulingDisabled",
                "control-plane,worker",
                "<unknown>",
                "v1.36.0",
                "10.0.0.1",
                "<none>",
                "Debian",
                "<unknown>",
                "<unknown>"
            ])
        );
        assert_eq!(row(&json!({}), Timestamp::UNIX_EPOCH)[1], "Unknown");
    }

    #[test]
    fn what_it_has_may_be_used() {
        let mut node = json!({"status": {"capacity": {"cpu": 2}}});
        default(&mut node);
        assert_eq!(node, json!({"status": {"capacity": {"cpu": "2"}, "allocatable": {"cpu": "2"}}}));
    }

    #[test]
    fn refused() {
        let taint = json!({"key": "a", "effect": "NoSchedule"});
        for (node, expected) in [
            (
                json!({"spec": {"taints": [{"key": "a", "effect": "Never"}]}}),
                "metadata.taints[0].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \
                 \"NoExecute\"",
            ),
            (
                json!({"spec": {"taints": [taint, taint]}}),
                "metadata.taints[1]: Duplicate value: {\"effect\":\"NoSchedule\",\"key\":\"a\"}: taints must be unique by key and effect \
                 pair",
            ),
            (
                json!({"spec": {"podCIDRs": ["10.0.0.0/33"]}}),
                "spec.podCIDRs[0]: Invalid value: \"10.0.0.0/33\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            ),
            (
                json!({"spec": {"podCIDRs": ["10.0.0.0/24", "10.0.1.0/24"]}}),
                "spec.podCIDRs: Invalid value: [\"10.0.0.0/24\",\"10.0.1.0/24\"]: may specify no more than one CIDR for each IP family",
            ),
        ] {
            assert_eq!(texts(&validate(&node, None)), [expected]);
        }
    }

    #[test]
    fn what_was_given_to_it_stays() {
        let old = json!({"spec": {"podCIDRs": ["10.0.0.0/24"], "providerID": "a"}});
        assert!(validate(&old, Some(&old)).is_empty());
        assert_eq!(
            texts(&validate(&json!({"spec": {"podCIDRs": ["10.0.1.0/24"], "providerID": "b"}}), Some(&old))),
            [
                "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid",
                "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid",
            ]
        );
    }
}
