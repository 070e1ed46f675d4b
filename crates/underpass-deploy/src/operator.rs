//! The operator itself: two pods of which one works, what keeps one of them alive, and whom they may talk to.

use serde_json::{Value, json};

use crate::{OPERATOR, Platform, Terms};

/// Where health and metrics are served: over plain HTTP, since the pages have no secrets and their port takes no orders.
const PORT: u16 = 8080;
/// Of the Service that leads there.
const METRICS: &str = "underpass-operator-metrics";
/// The user that the image names, which exists nowhere else.
const USER: u32 = 65532;

pub(crate) fn objects(terms: &Terms) -> Vec<Value> {
    vec![network_policy(terms), disruption_budget(terms), metrics_service(terms), deployment(terms)]
}

fn selector() -> Value {
    json!({ "app.kubernetes.io/component": "operator", "app.kubernetes.io/name": "underpass" })
}

fn deployment(terms: &Terms) -> Value {
    let metadata = terms.namespaced("operator", OPERATOR);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {
            "replicas": terms.replicas,
            "selector": { "matchLabels": selector() },
            // A pod that waits costs little, so that there is always one that can take over.
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } },
            "template": {
                "metadata": {
                    "labels": metadata["labels"],
                    "annotations": { "kubectl.kubernetes.io/default-container": "operator" },
                },
                "spec": pod(terms),
            },
        },
        "metadata": metadata,
    })
}

fn pod(terms: &Terms) -> Value {
    json!({
        "serviceAccountName": OPERATOR,
        "automountServiceAccountToken": true,
        "terminationGracePeriodSeconds": 30,
        "securityContext": security(terms.platform),
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{
                    "weight": 100,
                    "podAffinityTerm": {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": { "matchLabels": selector() },
                    },
                }],
            },
        },
        "containers": [container(terms)],
    })
}

fn container(terms: &Terms) -> Value {
    let field = |name, path| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    let probe = |path, period| json!({ "httpGet": { "path": path, "port": "http" }, "periodSeconds": period });
    json!({
        "name": "operator",
        "image": terms.image,
        "args": arguments(terms),
        "env": [field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace")],
        "ports": [{ "name": "http", "containerPort": PORT }],
        "livenessProbe": probe("/healthz", 10),
        "readinessProbe": probe("/readyz", 2),
        "resources": {
            "requests": { "cpu": "50m", "memory": "64Mi" },
            "limits": { "memory": "256Mi" },
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": { "drop": ["ALL"] },
            "readOnlyRootFilesystem": true,
        },
    })
}

fn arguments(terms: &Terms) -> Vec<String> {
    let image = terms.image.as_str().unwrap_or_default();
    // Of both families: a kubelet probes the pod by the address that the cluster gave it, and a port-forward comes by loopback.
    let mut arguments = vec!["operator".to_owned(), format!("--listen=[::]:{PORT}"), format!("--image={image}")];
    if terms.platform == Platform::OpenShift {
        arguments.push("--openshift".to_owned());
    }
    arguments
}

/// OpenShift gives every namespace users of its own and refuses others.
fn security(platform: Platform) -> Value {
    let mut context = json!({ "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } });
    if platform == Platform::Kubernetes {
        context["runAsUser"] = json!(USER);
        context["runAsGroup"] = json!(USER);
    }
    context
}

fn disruption_budget(terms: &Terms) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": terms.namespaced("operator", OPERATOR),
        "spec": {
            "maxUnavailable": 1,
            "selector": { "matchLabels": selector() },
            // One that does not work need not be kept from leaving its node.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    })
}

/// A name for what the pods count. Those that wait are among them: each tells for itself whether it leads.
fn metrics_service(terms: &Terms) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": terms.namespaced("operator", METRICS),
        "spec": {
            "selector": selector(),
            "ports": [{ "name": "http", "port": PORT, "protocol": "TCP", "targetPort": "http" }],
        },
    })
}

/// In: whoever asks for health and metrics. Out: the ports of the API server, at its Service and behind it; it looks up no names.
fn network_policy(terms: &Terms) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": terms.namespaced("operator", OPERATOR),
        "spec": {
            "podSelector": { "matchLabels": selector() },
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{ "ports": [{ "port": "http", "protocol": "TCP" }] }],
            "egress": [
                { "ports": [{ "port": 443, "protocol": "TCP" }, { "port": terms.api_server_port, "protocol": "TCP" }] },
            ],
        },
    })
}
