//! Who may do what: the operator as little as it can work with, people what they may do with Kubernetes' own kinds.

use serde_json::{Value, json};
use underpass_resources::proxy_server::{CONSTRAINTS_ROLE, REPLICAS_CONSTRAINTS_ROLE, TARGETS_ROLE};
use underpass_resources::{HOSTED_CLUSTER_GROUP, KINDS, UNDERPASS_GROUP};

use crate::{OPERATOR, PROXY, Terms};

const ROLES: &str = "rbac.authorization.k8s.io";
const ROLES_V1: &str = "rbac.authorization.k8s.io/v1";
/// Whose objects are made for an Infra, and stay until everything that was made for them has gone.
const WRITTEN: [&str; 1] = ["proxyservers"];

pub(crate) fn objects(terms: &Terms) -> Vec<Value> {
    vec![
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": terms.namespaced("operator", OPERATOR),
            // The pod asks for its token itself: nothing else that runs under this account gets one.
            "automountServiceAccountToken": false,
        }),
        cluster_role(terms, "operator", OPERATOR, &json!({}), &operator_rules()),
        binding(terms, "ClusterRole"),
        json!({
            "apiVersion": ROLES_V1,
            "kind": "Role",
            "metadata": terms.namespaced("operator", OPERATOR),
            "rules": lease_rules(),
        }),
        binding(terms, "Role"),
        targets(terms),
        people(terms, "underpass-view", &["view"], &["get", "list", "watch"]),
        people(
            terms,
            "underpass-edit",
            &["edit", "admin"],
            &["create", "update", "patch", "delete", "deletecollection"],
        ),
    ]
}

fn operator_rules() -> Vec<Value> {
    let mut rules: Vec<Value> = [UNDERPASS_GROUP, HOSTED_CLUSTER_GROUP].into_iter().flat_map(kinds_of_group).collect();
    // What ends or begins is told as Events.
    rules.push(json!({ "apiGroups": [""], "resources": ["events"], "verbs": ["get", "create", "patch"] }));
    rules.extend(proxy_rules());
    rules
}

/// Objects are read and their status is written; none but components of others is made, changed or deleted. A finalizer is a change of the object.
fn kinds_of_group(group: &str) -> Vec<Value> {
    let plurals = || KINDS.iter().filter(|kind| kind.group == group).map(|kind| kind.plural);
    let objects: Vec<&str> = plurals().collect();
    let status: Vec<String> = plurals().map(|plural| format!("{plural}/status")).collect();
    let written: Vec<&str> = plurals().filter(|plural| WRITTEN.contains(plural)).collect();
    let mut rules = vec![
        json!({ "apiGroups": [group], "resources": objects, "verbs": ["get", "list", "watch"] }),
        json!({ "apiGroups": [group], "resources": status, "verbs": ["patch"] }),
    ];
    if !written.is_empty() {
        rules.push(json!({ "apiGroups": [group], "resources": written, "verbs": ["create", "patch", "delete"] }));
    }
    rules
}

/// What the pods of a ProxyServer need. Of rights it can give away only what it has, and three roles by name.
fn proxy_rules() -> [Value; 9] {
    let bound = [TARGETS_ROLE, CONSTRAINTS_ROLE, REPLICAS_CONSTRAINTS_ROLE];
    let all = ["get", "list", "watch", "create", "patch", "delete"];
    [
        json!({ "apiGroups": [""], "resources": ["serviceaccounts", "configmaps", "services"], "verbs": all }),
        json!({ "apiGroups": ["apps"], "resources": ["deployments"], "verbs": all }),
        json!({ "apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": all }),
        json!({ "apiGroups": [ROLES], "resources": ["roles", "rolebindings"], "verbs": all }),
        json!({ "apiGroups": [ROLES], "resources": ["clusterroles"], "resourceNames": bound, "verbs": ["bind"] }),
        json!({ "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"] }),
        json!({ "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"] }),
        json!({ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"] }),
        json!({ "apiGroups": ["k8s.cni.cncf.io"], "resources": ["network-attachment-definitions"], "verbs": ["get"] }),
    ]
}

/// For the proxies: bound where their backends lead to, and nowhere else.
fn targets(terms: &Terms) -> Value {
    let read = ["get", "list", "watch"];
    let rules = [
        json!({ "apiGroups": [""], "resources": ["services"], "verbs": read }),
        json!({ "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read }),
    ];
    cluster_role(terms, PROXY, TARGETS_ROLE, &json!({}), &rules)
}

/// A new name cannot be granted by name.
fn lease_rules() -> Value {
    let groups = ["coordination.k8s.io"];
    json!([
        { "apiGroups": groups, "resources": ["leases"], "verbs": ["create"] },
        { "apiGroups": groups, "resources": ["leases"], "resourceNames": [OPERATOR], "verbs": ["get", "list", "watch", "update"] },
    ])
}

/// Adds our kinds to what those may do who have one of Kubernetes' own roles.
fn people(terms: &Terms, name: &str, roles: &[&str], verbs: &[&str]) -> Value {
    let rule = |group| {
        let plurals: Vec<&str> = KINDS.iter().filter(|kind| kind.group == group).map(|kind| kind.plural).collect();
        json!({ "apiGroups": [group], "resources": plurals, "verbs": verbs })
    };
    let aggregate = |role: &&str| (format!("{ROLES}/aggregate-to-{role}"), json!("true"));
    let labels: Value = roles.iter().map(aggregate).collect::<serde_json::Map<_, _>>().into();
    cluster_role(terms, "operator", name, &labels, &[UNDERPASS_GROUP, HOSTED_CLUSTER_GROUP].map(rule))
}

fn cluster_role(terms: &Terms, component: &str, name: &str, labels: &Value, rules: &[Value]) -> Value {
    let mut metadata = terms.metadata(component, name);
    for (label, value) in labels.as_object().into_iter().flatten() {
        metadata["labels"][label] = value.clone();
    }
    json!({ "apiVersion": ROLES_V1, "kind": "ClusterRole", "metadata": metadata, "rules": rules })
}

/// Gives the operator its role of that kind.
fn binding(terms: &Terms, role: &str) -> Value {
    let metadata = match role {
        "Role" => terms.namespaced("operator", OPERATOR),
        _ => terms.metadata("operator", OPERATOR),
    };
    json!({
        "apiVersion": ROLES_V1,
        "kind": format!("{role}Binding"),
        "metadata": metadata,
        "roleRef": { "apiGroup": ROLES, "kind": role, "name": OPERATOR },
        "subjects": [{ "kind": "ServiceAccount", "name": OPERATOR, "namespace": terms.namespace }],
    })
}
