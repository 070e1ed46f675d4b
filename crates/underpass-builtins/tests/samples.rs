//! One good document of each kind: accepted whole, and whatever is put in place of any part of it, nothing panics.

use serde_json::{Value, json};
use underpass_builtins::{Builtin, all};
use underpass_schema::FieldError;

#[test]
fn accepted_whole_and_filled_once() {
    for (builtin, mut object) in samples() {
        let kind = builtin.kind;
        builtin.default(&mut object);
        assert_eq!(builtin.schema().prune(&mut object), Vec::<String>::new(), "{kind}");
        let found: Vec<String> = builtin.schema().validate(&object).iter().map(FieldError::to_string).collect();
        assert_eq!(found, Vec::<String>::new(), "{kind}");
        for old in [None, Some(&object)] {
            let found: Vec<String> = builtin.validate(&object, old).iter().map(FieldError::to_string).collect();
            assert_eq!(found, Vec::<String>::new(), "{kind}");
        }
        let mut again = object.clone();
        builtin.default(&mut again);
        assert_eq!(again, object, "{kind}: filling twice differs from filling once");
    }
}

#[test]
fn a_row_has_a_cell_for_each_column() {
    for (builtin, object) in samples() {
        for object in [&object, &json!({})] {
            let cells = builtin.row(object, jiff::Timestamp::UNIX_EPOCH);
            assert_eq!(cells.len(), builtin.columns.len(), "{}", builtin.kind);
            assert!(cells.iter().all(|cell| cell.is_string() || cell.is_number()), "{}: {cells:?}", builtin.kind);
        }
    }
}

#[test]
fn nothing_panics_on_odd_documents() {
    let odd = [json!(null), json!(-1), json!("ä%-."), json!([[1]]), json!({"a": {}})];
    for (builtin, sample) in samples() {
        for pointer in pointers(&sample) {
            for odd in &odd {
                let mut object = sample.clone();
                *object.pointer_mut(&pointer).unwrap() = odd.clone();
                exercise(builtin, &mut object, &sample);
            }
        }
    }
}

fn exercise(builtin: &Builtin, object: &mut Value, sample: &Value) {
    builtin.prepare_update(object, sample);
    builtin.default(object);
    builtin.validate(object, None);
    builtin.validate(object, Some(sample));
    builtin.validate(sample, Some(object));
    builtin.row(object, jiff::Timestamp::UNIX_EPOCH);
    underpass_builtins::convert_event(object, "events.k8s.io");
}

fn pointers(value: &Value) -> Vec<String> {
    let escape = |key: &String| key.replace('~', "~0").replace('/', "~1");
    let below: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(key, field)| (escape(key), field)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(index, item)| (index.to_string(), item)).collect(),
        _ => Vec::new(),
    };
    let below =
        below.into_iter().flat_map(|(key, value)| pointers(value).into_iter().map(move |rest| format!("/{key}{rest}")));
    std::iter::once(String::new()).chain(below).collect()
}

fn samples() -> Vec<(&'static Builtin, Value)> {
    all().iter().map(|builtin| (builtin, sample(builtin))).collect()
}

fn sample(builtin: &Builtin) -> Value {
    let mut object = match (builtin.group, builtin.kind) {
        ("", "Event") => core_event(),
        (_, "Event") => event(),
        (_, "Namespace") => json!({}),
        (_, "ConfigMap") => json!({"data": {"a": "1"}, "binaryData": {"b": "AAE="}}),
        (_, "Secret") => json!({"stringData": {"tls.crt": "c", "tls.key": "k"}, "type": "kubernetes.io/tls"}),
        (_, "ServiceAccount") => json!({"secrets": [{"name": "a"}], "imagePullSecrets": [{"name": "b"}]}),
        (_, "Service") => service(),
        (_, "Pod") => json!({"spec": pod_spec(), "status": pod_status()}),
        (_, "PodTemplate") => json!({"template": {"metadata": {"labels": {"app": "web"}}, "spec": pod_spec()}}),
        (_, "Node") => node(),
        (_, "Lease") => {
            json!({"spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}})
        }
        (_, "EndpointSlice") => endpoint_slice(),
        (_, "Deployment") => deployment(),
        (_, "CustomResourceDefinition") => definition(),
        (_, kind) => panic!("no sample of {kind}"),
    };
    object["apiVersion"] = builtin.api_version().into();
    object["kind"] = builtin.kind.into();
    let name = if builtin.kind == "CustomResourceDefinition" { "widgets.example.com" } else { "web" };
    object["metadata"] = json!({"name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "web"}});
    if builtin.namespaced {
        object["metadata"]["namespace"] = "default".into();
    }
    object
}

fn core_event() -> Value {
    json!({
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web"},
        "reason": "Started",
        "message": "Started the container",
        "source": {"component": "kubelet"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
        "type": "Normal",
    })
}

fn event() -> Value {
    json!({
        "regarding": {"kind": "Pod", "namespace": "default", "name": "web"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "underpass.dev/controller",
        "reportingInstance": "laptop",
        "action": "Start",
        "reason": "Started",
        "note": "Started the container",
        "type": "Normal",
        "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"},
    })
}

fn service() -> Value {
    json!({"spec": {
        "type": "NodePort",
        "clusterIP": "10.0.0.1",
        "selector": {"app": "web"},
        "sessionAffinity": "ClientIP",
        "externalIPs": ["203.0.113.1"],
        "ports": [{"name": "http", "port": 80, "targetPort": "http", "nodePort": 30080}, {"name": "dns", "port": 53, "protocol": "UDP"}],
    }})
}

fn pod_spec() -> Value {
    json!({
        "serviceAccountName": "builder",
        "containers": [{
            "name": "web",
            "image": "web:1",
            "ports": [{"name": "http", "containerPort": 80}],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "envFrom": [{"configMapRef": {"name": "a"}}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "resources": {"requests": {"cpu": 0.5}, "limits": {"cpu": 1, "memory": "1Gi"}},
            "livenessProbe": {"httpGet": {"port": "http"}},
            "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
        }],
        "initContainers": [{"name": "init", "image": "init"}, {"name": "side", "image": "side", "restartPolicy": "Always"}],
        "volumes": [
            {"name": "data"},
            {"name": "config", "configMap": {"name": "a", "items": [{"key": "k", "path": "p"}]}},
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        ],
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
        "topologySpreadConstraints": [{
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }],
        "hostAliases": [{"ip": "10.0.0.9", "hostnames": ["a"]}],
        "readinessGates": [{"conditionType": "example.com/ready"}],
    })
}

fn pod_status() -> Value {
    json!({
        "phase": "Running",
        "podIPs": [{"ip": "10.0.0.2"}],
        "conditions": [{"type": "Ready", "status": "True"}],
        "initContainerStatuses": [{"name": "init", "restartCount": 1, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}],
        "containerStatuses": [{
            "name": "web",
            "ready": true,
            "restartCount": 2,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:00:00Z"}},
        }],
    })
}

fn node() -> Value {
    json!({
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "podCIDRs": ["10.0.0.0/24", "fd00::/64"], "providerID": "x"},
        "status": {
            "capacity": {"cpu": "4", "memory": "8Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    })
}

fn endpoint_slice() -> Value {
    json!({
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 80, "appProtocol": "http"}],
        "endpoints": [{
            "addresses": ["10.0.0.1"],
            "conditions": {"ready": true},
            "nodeName": "n",
            "hostname": "h",
            "hints": {"forZones": [{"name": "z"}], "forNodes": [{"name": "n"}]},
        }],
    })
}

fn deployment() -> Value {
    json!({"spec": {
        "selector": {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]},
        "template": {"metadata": {"labels": {"app": "web"}, "annotations": {"Note": "x"}}, "spec": pod_spec()},
        "strategy": {"rollingUpdate": {"maxSurge": 1}},
    }})
}

fn definition() -> Value {
    json!({"spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
        "versions": [{
            "name": "v1",
            "served": true,
            "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "default": null}}}},
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
            "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
        }],
    }})
}
