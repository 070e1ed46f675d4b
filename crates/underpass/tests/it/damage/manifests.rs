//! One good object of each kind that is served, and one of a kind that a definition adds.

use serde_json::{Value, json};

pub(crate) struct Sample {
    /// Of the collection.
    pub(crate) path: String,
    pub(crate) object: Value,
    pub(crate) has_status: bool,
}

impl Sample {
    pub(crate) fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap()
    }

    pub(crate) fn plural(&self) -> &str {
        self.path.rsplit('/').next().unwrap()
    }

    /// As kubectl asks for it, group and version included: there are two kinds of events.
    pub(crate) fn full_name(&self) -> String {
        let (group, version) = self.object["apiVersion"].as_str().unwrap().split_once('/').unwrap_or(("", "v1"));
        if group.is_empty() { format!("{}.v1.", self.plural()) } else { format!("{}.{version}.{group}", self.plural()) }
    }

    /// Others need it.
    pub(crate) fn is_needed(&self) -> bool {
        self.plural() == "customresourcedefinitions"
    }
}

pub(crate) fn samples() -> Vec<Sample> {
    let named = |name: &str| json!({ "name": name, "labels": { "a": "b" }, "annotations": { "c": "d" } });
    let about = json!({ "kind": "Pod", "namespace": "default", "name": "p", "apiVersion": "v1" });
    vec![
        sample("", "customresourcedefinitions", true, definition()),
        sample("default", "wells", true, well()),
        sample(
            "default",
            "configmaps",
            false,
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": named("m"), "data": { "a": "1" }, "binaryData": { "b": "YQ==" },
            }),
        ),
        sample(
            "default",
            "secrets",
            false,
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": named("s"), "type": "Opaque", "data": { "a": "YQ==" },
            }),
        ),
        sample(
            "default",
            "services",
            true,
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": named("svc"),
                "spec": { "selector": { "a": "b" }, "ports": [{ "name": "http", "port": 80, "targetPort": "web" }, { "name": "x", "port": 81 }] },
            }),
        ),
        sample(
            "default",
            "serviceaccounts",
            false,
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount", "metadata": named("sa"), "secrets": [{ "name": "s" }],
            }),
        ),
        sample(
            "default",
            "pods",
            true,
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": named("p"), "spec": pod_spec() }),
        ),
        sample(
            "default",
            "podtemplates",
            false,
            json!({
                "apiVersion": "v1", "kind": "PodTemplate", "metadata": named("t"), "template": { "spec": pod_spec() },
            }),
        ),
        sample(
            "",
            "nodes",
            true,
            json!({
                "apiVersion": "v1", "kind": "Node", "metadata": named("n"),
                "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] }, "status": { "capacity": { "cpu": "1" } },
            }),
        ),
        sample("", "namespaces", true, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": named("ns") })),
        sample(
            "default",
            "events",
            false,
            json!({
                "apiVersion": "v1", "kind": "Event", "metadata": named("e"), "involvedObject": about, "reason": "R", "message": "m",
                "firstTimestamp": "2024-01-01T00:00:00Z", "count": 1, "type": "Normal",
            }),
        ),
        sample(
            "default",
            "events",
            false,
            json!({
                "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": named("f"), "regarding": about, "reason": "R", "action": "A",
                "note": "n", "eventTime": "2024-01-01T00:00:00.000000Z", "type": "Normal", "reportingController": "x.io/c",
                "reportingInstance": "i",
            }),
        ),
        sample(
            "default",
            "deployments",
            true,
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": named("d"),
                "spec": {
                    "replicas": 1, "selector": { "matchLabels": { "a": "b" } },
                    "template": { "metadata": { "labels": { "a": "b" } }, "spec": pod_spec() },
                },
            }),
        ),
        sample(
            "default",
            "leases",
            false,
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": named("l"),
                "spec": { "holderIdentity": "h", "leaseDurationSeconds": 10, "renewTime": "2024-01-01T00:00:00.000000Z" },
            }),
        ),
        sample(
            "default",
            "endpointslices",
            false,
            json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": named("es"), "addressType": "IPv4",
                "endpoints": [{ "addresses": ["10.1.2.3"], "conditions": { "ready": true } }], "ports": [{ "name": "p", "port": 80 }],
            }),
        ),
    ]
}

fn sample(namespace: &str, plural: &str, has_status: bool, object: Value) -> Sample {
    let version = object["apiVersion"].as_str().unwrap();
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let place = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    Sample { path: format!("{root}{place}/{plural}"), object, has_status }
}

fn pod_spec() -> Value {
    json!({
        "containers": [{
            "name": "c", "image": "i", "args": ["x"], "env": [{ "name": "E", "value": "1" }], "ports": [{ "containerPort": 80 }],
            "resources": { "limits": { "cpu": "1", "memory": "1Gi" } }, "volumeMounts": [{ "name": "v", "mountPath": "/v" }],
            "readinessProbe": { "httpGet": { "path": "/", "port": 80 } },
        }],
        "volumes": [{ "name": "v", "emptyDir": {} }], "nodeSelector": { "a": "b" }, "tolerations": [{ "operator": "Exists" }],
    })
}

fn definition() -> Value {
    let spec = json!({
        "type": "object",
        "properties": {
            "depth": { "type": "integer", "minimum": 0 }, "names": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set" },
            "any": { "type": "object", "x-kubernetes-preserve-unknown-fields": true }, "port": { "x-kubernetes-int-or-string": true },
        },
        "x-kubernetes-validations": [{ "rule": "!has(self.depth) || self.depth < 1000" }],
    });
    let schema = json!({ "type": "object", "properties": { "spec": spec, "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } });
    let version = |name: &str, storage: bool| json!({ "name": name, "served": true, "storage": storage, "schema": { "openAPIV3Schema": schema }, "subresources": { "status": {} } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": "wells.damage.io" },
        "spec": {
            "group": "damage.io", "scope": "Namespaced", "names": { "plural": "wells", "singular": "well", "kind": "Well", "listKind": "WellList" },
            "versions": [version("v1", true), version("v2", false)],
        },
    })
}

fn well() -> Value {
    json!({
        "apiVersion": "damage.io/v1", "kind": "Well", "metadata": { "name": "w", "finalizers": [] },
        "spec": { "depth": 3, "names": ["a", "b"], "any": { "x": [1, { "y": null }] }, "port": "http" }, "status": { "ready": true },
    })
}
