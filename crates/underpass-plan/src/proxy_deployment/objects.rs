//! All objects of a proxy, as they should be, in the order in which they are applied.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use serde_json::{Value, json};
use underpass_resources::proxy_backend::BackendProtocol;
use underpass_resources::proxy_server::{ADMIN_PORT, CONSTRAINTS_ROLE, DataPlane, METRICS_PORT, TARGETS_ROLE};
use underpass_resources::{HOSTED_CLUSTER_GROUP, ProxyServer};

use super::network::Network;
use super::place::{self, Place, RECORD, hash};
use super::{OWNER_ANNOTATION, OWNER_LABEL, Observed, own, pod};
use crate::proxy_server::{Bootstrap, key};

const ROLES: &str = "rbac.authorization.k8s.io";

/// With the place of each. The Deployment is left out as long as its network cannot be joined: one that runs stays as it is.
pub(super) fn wanted(observed: &Observed, network: &Network) -> Vec<(Place, Value)> {
    let proxy = &observed.object;
    let mut all = Vec::new();
    if proxy.spec.service_account_name.is_none() {
        all.push((place::account(proxy), json!({ "automountServiceAccountToken": false })));
    }
    all.push((place::role(proxy), json!({ "rules": rules(proxy) })));
    all.push((place::binding(proxy), binding(proxy, "Role", &place::role(proxy).name)));
    if observed.site.openshift {
        all.push((place::constraints_binding(proxy), binding(proxy, "ClusterRole", CONSTRAINTS_ROLE)));
    }
    let bootstrap = (proxy.spec.data_plane == DataPlane::Envoy).then(|| bootstrap(proxy));
    if let Some(text) = &bootstrap {
        all.push((place::config_map(proxy), json!({ "data": { "bootstrap.json": text } })));
    }
    all.push((place::service(proxy), json!({ "spec": service(proxy) })));
    if proxy.spec.replicas > 1 {
        all.push((place::budget(proxy), json!({ "spec": budget(proxy) })));
        all.push((place::lease(proxy), json!({})));
    }
    if !matches!(network, Network::Unusable(_)) {
        let template = pod::template(observed, network, bootstrap.as_deref());
        all.push((place::deployment(proxy), json!({ "spec": deployment(proxy, &template) })));
    }
    for namespace in place::target_namespaces(proxy).intersection(&observed.namespaces) {
        let binding = binding(proxy, "ClusterRole", TARGETS_ROLE);
        all.push((place::target_binding(proxy, namespace), binding));
    }
    for (place, object) in &mut all {
        name(observed, place, object);
    }
    all
}

/// Gives an object its name and its owner.
fn name(observed: &Observed, place: &Place, object: &mut Value) {
    let proxy = &observed.object;
    let (namespace, name) = key(&proxy.metadata);
    object["apiVersion"] = json!(place.kind.api_version);
    object["kind"] = json!(place.kind.kind);
    object["metadata"] = json!({
        "name": place.name,
        "namespace": place.namespace,
        "labels": labels(proxy),
        "annotations": { OWNER_ANNOTATION: format!("{namespace}/{name}") },
    });
    if place.kind == place::ROLE {
        let record = own(observed, place).map(place::recorded).unwrap_or_default();
        object["metadata"]["annotations"][RECORD] = json!(to_record(observed, record));
    }
    // An owner is looked for in the object's own namespace.
    if place.namespace == namespace {
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": format!("{HOSTED_CLUSTER_GROUP}/v1alpha1"),
            "kind": "ProxyServer",
            "name": name,
            "uid": proxy.metadata.uid,
            "controller": true,
        }]);
    }
}

/// Where something may stand: where it should, and where it was made and still is.
fn to_record(observed: &Observed, record: BTreeSet<String>) -> String {
    let proxy = &observed.object;
    let still =
        record.into_iter().filter(|namespace| own(observed, &place::target_binding(proxy, namespace)).is_some());
    let all: BTreeSet<String> = place::target_namespaces(proxy).into_iter().chain(still).collect();
    Vec::from_iter(all).join(",")
}

pub(super) fn labels(proxy: &ProxyServer) -> Value {
    let mut labels = selector(proxy);
    labels["app.kubernetes.io/component"] = json!("proxy");
    labels["app.kubernetes.io/instance"] = json!(place::instance(proxy));
    labels["app.kubernetes.io/managed-by"] = json!("underpass");
    labels["app.kubernetes.io/name"] = json!("underpass");
    labels["app.kubernetes.io/part-of"] = json!("underpass");
    labels[OWNER_LABEL] = json!(proxy.metadata.uid);
    labels
}

/// The two labels by which the pods of one proxy, and of no other, are chosen.
pub(super) fn selector(proxy: &ProxyServer) -> Value {
    json!({ "app": "proxy-server", HOSTED_CLUSTER_GROUP: place::instance(proxy) })
}

fn rules(proxy: &ProxyServer) -> Value {
    let name = key(&proxy.metadata).1;
    let group = [HOSTED_CLUSTER_GROUP];
    let mut rules = vec![
        json!({ "apiGroups": group, "resources": ["proxyservers"], "resourceNames": [name], "verbs": ["get", "list", "watch"] }),
        json!({ "apiGroups": group, "resources": ["proxyservers/status"], "resourceNames": [name], "verbs": ["patch"] }),
    ];
    if proxy.spec.replicas > 1 {
        let lease = place::lease(proxy).name;
        rules.push(json!({
            "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [lease], "verbs": ["get", "update", "patch"],
        }));
    }
    json!(rules)
}

fn binding(proxy: &ProxyServer, kind: &str, role: &str) -> Value {
    json!({
        "roleRef": { "apiGroup": ROLES, "kind": kind, "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": pod::account(proxy), "namespace": key(&proxy.metadata).0 }],
    })
}

fn bootstrap(proxy: &ProxyServer) -> String {
    let (namespace, name) = key(&proxy.metadata);
    let bootstrap = Bootstrap {
        node: &format!("{namespace}/{name}"),
        xds_port: proxy.spec.xds_port,
        admin: SocketAddr::from((Ipv4Addr::LOCALHOST, ADMIN_PORT)),
        max_connections: proxy.spec.limits.as_ref().and_then(|limits| limits.max_connections),
    };
    format!("{:#}\n", bootstrap.to_json())
}

/// One port per port of a backend, and the metrics.
fn service(proxy: &ProxyServer) -> Value {
    let transport = |protocol| if protocol == BackendProtocol::Udp { "UDP" } else { "TCP" };
    let ports: BTreeSet<(u16, &str)> =
        proxy.spec.backends.iter().map(|backend| (backend.port, transport(backend.protocol))).collect();
    let named = |(port, protocol): &(u16, &str)| {
        let name = match (*port == proxy.spec.port, *protocol) {
            (true, "TCP") => "proxy".to_owned(),
            (_, "TCP") => format!("proxy-{port}"),
            _ => format!("proxy-{port}-udp"),
        };
        json!({ "name": name, "port": port, "targetPort": port, "protocol": protocol })
    };
    let mut ports: Vec<Value> = ports.iter().map(named).collect();
    ports.push(json!({ "name": "metrics", "port": METRICS_PORT, "targetPort": METRICS_PORT, "protocol": "TCP" }));
    json!({ "type": "ClusterIP", "selector": selector(proxy), "ports": ports })
}

fn budget(proxy: &ProxyServer) -> Value {
    json!({
        "maxUnavailable": 1,
        "selector": { "matchLabels": selector(proxy) },
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    })
}

/// Two pods with one address would both be wrong: the old one goes first.
fn deployment(proxy: &ProxyServer, template: &Value) -> Value {
    let strategy = match proxy.spec.replicas {
        1 => json!({ "type": "Recreate" }),
        _ => json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } }),
    };
    json!({
        "replicas": proxy.spec.replicas,
        "revisionHistoryLimit": 2,
        "selector": { "matchLabels": selector(proxy) },
        "strategy": strategy,
        "template": template,
    })
}

/// What decides whether a pod has to start anew to read its bootstrap configuration.
pub(super) fn fingerprint(bootstrap: &str) -> String {
    hash(bootstrap.as_bytes())
}
