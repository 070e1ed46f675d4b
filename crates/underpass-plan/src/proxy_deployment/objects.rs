//! All objects of a proxy, as they should be, in the order in which they are applied.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use serde_json::{Value, json};
use underpass_resources::proxy_backend::BackendProtocol;
use underpass_resources::proxy_server::{
    ADMIN_PORT, CONSTRAINTS_ROLE, DataPlane, METRICS_PORT, REPLICAS_CONSTRAINTS_ROLE, TARGETS_ROLE,
};
use underpass_resources::{HOSTED_CLUSTER_GROUP, ProxyServer};

use super::network::{self, Network};
use super::place::{self, RECORD};
use super::{Observed, changes, own, pod, pods};
use crate::made::{OWNER_ANNOTATION, OWNER_LABEL};
use crate::place::{Place, hash};
use crate::proxy_server::{Bootstrap, key};

const ROLES: &str = "rbac.authorization.k8s.io";

/// With the place of each. The Deployment is left out as long as its network cannot be joined: one that runs stays as it is. What pods need that
/// are there, they have until they are gone, whatever is asked of the next ones.
pub(super) fn wanted(observed: &Observed, network: &Network) -> Vec<(Place, Value)> {
    let (proxy, replicas) = (&observed.object, changes::replicas(observed));
    let by_turns = replicas > 1 || pods::take_turns(&observed.pods);
    let mut all = Vec::new();
    if proxy.spec.service_account_name.is_none() {
        all.push((place::account(proxy), json!({ "automountServiceAccountToken": false })));
    }
    all.push((place::role(proxy), json!({ "rules": rules(proxy, by_turns) })));
    all.push((place::binding(proxy), binding(observed, "Role", &place::role(proxy).name)));
    if observed.site.openshift {
        all.push((place::constraints_binding(proxy), binding(observed, "ClusterRole", CONSTRAINTS_ROLE)));
        if pod::moves_an_address(observed, network) {
            let binding = binding(observed, "ClusterRole", REPLICAS_CONSTRAINTS_ROLE);
            all.push((place::replicas_constraints_binding(proxy), binding));
        }
    }
    let bootstrap = (proxy.spec.data_plane == DataPlane::Envoy).then(|| bootstrap(proxy));
    if let Some(text) = &bootstrap {
        all.push((place::config_map(proxy), json!({ "data": { "bootstrap.json": text } })));
    }
    all.push((place::service(proxy), json!({ "spec": service(proxy) })));
    if replicas > 1 {
        all.push((place::budget(proxy), json!({ "spec": budget(proxy) })));
    }
    if by_turns {
        all.push((place::lease(proxy), json!({})));
    }
    if !matches!(network, Network::Unusable(_)) {
        let template = pod::template(observed, network, bootstrap.as_deref());
        all.push((place::deployment(proxy), json!({ "spec": deployment(observed, &template) })));
    }
    for namespace in place::target_namespaces(proxy).intersection(&observed.namespaces) {
        let binding = binding(observed, "ClusterRole", TARGETS_ROLE);
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

fn rules(proxy: &ProxyServer, by_turns: bool) -> Value {
    let name = key(&proxy.metadata).1;
    let group = [HOSTED_CLUSTER_GROUP];
    let mut rules = vec![
        json!({ "apiGroups": group, "resources": ["proxyservers"], "resourceNames": [name], "verbs": ["get", "list", "watch"] }),
        json!({ "apiGroups": group, "resources": ["proxyservers/status"], "resourceNames": [name], "verbs": ["patch"] }),
    ];
    if by_turns {
        let lease = place::lease(proxy).name;
        rules.push(json!({
            "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [lease],
            "verbs": ["get", "list", "watch", "update", "patch"],
        }));
    }
    json!(rules)
}

/// For the account of the next pods, and for those of the pods that are there.
fn binding(observed: &Observed, kind: &str, role: &str) -> Value {
    let (proxy, next) = (&observed.object, pod::account(&observed.object));
    let mut accounts = pods::accounts(&observed.pods);
    accounts.insert(&next);
    let namespace = key(&proxy.metadata).0;
    let subject = |name: &str| json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace });
    json!({
        "roleRef": { "apiGroup": ROLES, "kind": kind, "name": role },
        "subjects": accounts.into_iter().map(subject).collect::<Vec<_>>(),
    })
}

fn bootstrap(proxy: &ProxyServer) -> String {
    let (namespace, name) = key(&proxy.metadata);
    let bootstrap = Bootstrap {
        node: &format!("{namespace}/{name}"),
        xds_port: proxy.spec.xds_port,
        admin: SocketAddr::from((Ipv4Addr::LOCALHOST, ADMIN_PORT)),
        only_by_loopback: true,
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

/// How many there are is the object's word, which whoever scales by hand overrules.
fn deployment(observed: &Observed, template: &Value) -> Value {
    let proxy = &observed.object;
    let (replicas, strategy) = rollout(observed, template);
    json!({
        "replicas": replicas,
        "revisionHistoryLimit": 2,
        "selector": { "matchLabels": selector(proxy) },
        "strategy": strategy,
        "template": template,
    })
}

/// How many pods there are to be now, and in which order they follow those of before. Two with one address would both be wrong: of one that
/// has it for good the old one goes first. When several take turns after that, the first of them comes while the old one serves, and takes the
/// address when that has gone; the others come afterwards, because a Deployment that is told both at once makes more pods of the old kind.
fn rollout(observed: &Observed, template: &Value) -> (u32, Value) {
    let wanted = observed.object.spec.replicas;
    let rolling = |surge: u8, unavailable: u8| {
        let pace = json!({ "maxSurge": surge, "maxUnavailable": unavailable });
        json!({ "type": "RollingUpdate", "rollingUpdate": pace })
    };
    let one_by_one = json!({ "type": "Recreate" });
    if changes::replicas(observed) <= 1 {
        return (wanted, one_by_one);
    }
    let found = own(observed, &place::deployment(&observed.object));
    let found = found.filter(|found| !network::is_static(template) && !has_followed(found));
    match found.and_then(|found| found["spec"]["replicas"].as_u64()) {
        Some(0 | 1) => (1, rolling(1, 0)),
        Some(_) => (wanted, one_by_one),
        None => (wanted, rolling(0, 1)),
    }
}

/// Whether no pod is left of a template whose pods have an address for good. Where pods follow each other as they do among several, that was
/// so before.
fn has_followed(found: &Value) -> bool {
    let (status, strategy) = (&found["status"], &found["spec"]["strategy"]);
    let is_counted = status["observedGeneration"].as_i64() >= found["metadata"]["generation"].as_i64();
    let all_new = is_counted && status["replicas"].as_u64() == status["updatedReplicas"].as_u64();
    !network::is_static(&found["spec"]["template"]) && (all_new || strategy["rollingUpdate"]["maxSurge"] == 0)
}

/// What decides whether a pod has to start anew to read its bootstrap configuration.
pub(super) fn fingerprint(bootstrap: &str) -> String {
    hash(bootstrap.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]

    use super::*;

    const STATIC: &str = r#"[{"name":"vlan","ips":["192.168.100.4/24"]}]"#;

    /// Of a proxy with three replicas, where a Deployment stands with so many pods, of which so many are new.
    fn rollout_from(asked: &str, strategy: &Value, replicas: u32, new: u32) -> (u32, Value) {
        let observed = json!({
            "object": {
                "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer",
                "metadata": { "name": "edge", "namespace": "hosted", "uid": "u-1" },
                "spec": {
                    "replicas": 3, "backends": [],
                    "networkConfig": { "serverIP": "192.168.100.4/24", "networkAttachmentName": "vlan" },
                },
            },
            "attachment": { "found": { "config": "{\"type\": \"macvlan\"}" } },
            "found": [{
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": { "name": "proxy-server-edge", "namespace": "hosted", "generation": 2, "labels": { OWNER_LABEL: "u-1" } },
                "spec": {
                    "replicas": replicas, "strategy": strategy,
                    "template": { "metadata": { "annotations": { network::NETWORKS: asked } } },
                },
                "status": { "observedGeneration": 2, "replicas": replicas.max(new), "updatedReplicas": new },
            }],
            "site": { "image": "underpass:1" },
            "now": "2026-01-01T00:00:00Z",
        });
        let observed: Observed = serde_json::from_value(observed).unwrap();
        let joined = Network::of(&observed);
        rollout(&observed, &pod::template(&observed, &joined, None))
    }

    fn rolling(surge: u8, unavailable: u8) -> Value {
        let pace = json!({ "maxSurge": surge, "maxUnavailable": unavailable });
        json!({ "type": "RollingUpdate", "rollingUpdate": pace })
    }

    /// No second pod ever gets an address that a first one has for good.
    #[test]
    fn one_becomes_several_in_two_steps() {
        let (alone, turns) = (json!({ "type": "Recreate" }), r#"[{"ips":["169.254.254.254/32"]}]"#);
        assert_eq!(
            rollout_from(STATIC, &alone, 1, 1),
            (1, rolling(1, 0)),
            "the first that takes turns comes beside it"
        );
        assert_eq!(rollout_from(turns, &rolling(1, 0), 2, 1), (3, alone.clone()), "somebody scales meanwhile");
        assert_eq!(rollout_from(turns, &rolling(1, 0), 1, 0), (1, rolling(1, 0)), "the old one is still there");
        assert_eq!(rollout_from(turns, &rolling(1, 0), 1, 1), (3, rolling(0, 1)), "the others follow");
        assert_eq!(rollout_from(turns, &rolling(0, 1), 3, 1), (3, rolling(0, 1)), "a new image is nothing special");
        assert_eq!(rollout_from(STATIC, &alone, 3, 3), (3, alone.clone()), "scaled by hand: all of these go at once");
        assert_eq!(rollout_from(turns, &alone, 3, 0), (3, alone), "until they are gone");
    }
}
