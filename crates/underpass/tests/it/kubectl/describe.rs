//! `kubectl describe` and `kubectl events`: what people look at when something does not work.

use serde_json::{Value, json};
use underpass_testbed::{PATIENCE, wait_until};

use super::{assert_contains, config_map, network, rows};
use crate::server::Own;
use crate::{apiserver, up};

#[test]
fn an_object_of_ours_is_described_with_its_condition_and_events() {
    let server = up();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &network("net"));
    kubectl.ok("wait --for=condition=Ready=False ctrnet/net --timeout=60s");
    kubectl.ok("wait --for=create events --all --timeout=60s");
    let text = kubectl.ok("describe ctrnet net");
    assert_contains(
        &text,
        &[
            "Kind:         ContainerNetwork",
            "Mode:        session",
            "no container engine found",
            "Observed Generation:   1",
        ],
    );
    let events = text.split("Events:").nth(1).unwrap();
    assert_contains(events, &["Warning", "NoContainerEngine", "underpass.dev/controllers"]);
    let events = kubectl.ok("events --for=ContainerNetwork/net");
    assert_eq!(rows(&events)[1][1..4], ["Warning", "NoContainerEngine", "ContainerNetwork/net"]);
    let listed = kubectl.ok("get events");
    assert_eq!(rows(&listed)[0], ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]);
}

#[test]
fn events_are_sorted_by_when_they_were_seen_last() {
    let server = up();
    let kubectl = server.kubectl();
    for name in ["b", "a"] {
        kubectl.ok_with("apply -f -", &network(name));
        kubectl.ok(&format!("wait --for=condition=Ready=False ctrnet/{name} --timeout=60s"));
        // Times are to the second.
        let about = format!("get events --field-selector=involvedObject.name={name}");
        wait_until("an event that is over a second old", PATIENCE, || {
            rows(&kubectl.ok(&about)).get(1).is_some_and(|row| row[0] != "0s" && row[0] != "1s").then_some(())
        });
    }
    // A real API server has events of its own.
    let ours = "--field-selector=involvedObject.kind=ContainerNetwork";
    let sorted = kubectl.ok(&format!("get events --sort-by=.lastTimestamp {ours}"));
    let objects: Vec<_> = rows(&sorted)[1..].iter().map(|row| row[3]).collect();
    assert_eq!(objects, ["containernetwork/b", "containernetwork/a"], "{sorted}");
    let wide = kubectl.ok("get events -o wide --field-selector=involvedObject.name=a");
    assert_contains(&wide, &["underpass.dev/controllers"]);
}

/// Written through one group and read through the other, with the fields that a real kube-apiserver shows, and no others.
#[test]
fn events_of_both_groups_are_read_as_kubernetes_writes_them() {
    let server = apiserver();
    let kubectl = server.kubectl();
    kubectl.ok_with("create -f -", NEWER_EVENT);
    let fields = |path: &str| {
        let mut event: Value =
            serde_json::from_str(&kubectl.ok(&format!("get --raw {path}/default/events/new"))).unwrap();
        let managed = event["metadata"]["managedFields"][0]["fieldsV1"].take();
        event["metadata"].take();
        (event, managed)
    };
    let about = json!({"kind": "Pod", "namespace": "default", "name": "web"});
    let owned = json!({"f:action": {}, "f:eventTime": {}, "f:note": {}, "f:reason": {}, "f:regarding": {},
        "f:reportingController": {}, "f:reportingInstance": {}, "f:type": {}});
    let core = json!({
        "kind": "Event", "apiVersion": "v1", "metadata": null, "involvedObject": about, "reason": "Started",
        "message": "hello", "source": {}, "firstTimestamp": null, "lastTimestamp": null, "type": "Normal",
        "eventTime": "2026-01-01T00:00:00.000000Z", "action": "Start", "reportingComponent": "example.com/controller",
        "reportingInstance": "laptop",
    });
    assert_eq!(fields("/api/v1/namespaces"), (core, owned.clone()));
    let newer = json!({
        "kind": "Event", "apiVersion": "events.k8s.io/v1", "metadata": null, "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/controller", "reportingInstance": "laptop", "action": "Start",
        "reason": "Started", "regarding": about, "note": "hello", "type": "Normal", "deprecatedSource": {},
        "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null,
    });
    assert_eq!(fields("/apis/events.k8s.io/v1/namespaces"), (newer, owned));
    assert_contains(&kubectl.ok("get events --sort-by=.lastTimestamp"), &["pod/web", "hello"]);
    let before = kubectl.ok("get event new -o jsonpath='{.metadata.resourceVersion}'");
    kubectl.ok_with("replace -f -", &kubectl.ok("get event new -o yaml"));
    let unchanged = kubectl.ok("get event new -o jsonpath='{.metadata.resourceVersion}'") == before;
    assert_eq!(unchanged, Own::EventsKeepOwners.holds());
    kubectl.ok_with("create -f - --dry-run=server -o yaml", &NEWER_EVENT.replace("name: new", "name: newer"));
}

const NEWER_EVENT: &str = "
apiVersion: events.k8s.io/v1
kind: Event
metadata: {name: new, namespace: default}
regarding: {kind: Pod, namespace: default, name: web}
eventTime: \"2026-01-01T00:00:00.000000Z\"
reportingController: example.com/controller
reportingInstance: laptop
action: Start
reason: Started
note: hello
type: Normal
";

#[test]
fn kubernetes_kinds_are_described() {
    let server = apiserver();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", OBJECTS);
    kubectl.ok_with("apply -f -", &config_map("settings", "key", "value"));
    assert_contains(&kubectl.ok("describe cm settings"), &["Name:         settings", "key:\n----\nvalue\n"]);
    let secret = kubectl.ok("describe secret s");
    assert_contains(&secret, &["Type:  Opaque", "password:  7 bytes"]);
    assert!(!secret.contains("hunter2"), "{secret}");
    let service = kubectl.ok("describe svc web");
    assert_contains(&service, &["Selector:                 app=web", "TargetPort:               8080/TCP"]);
    assert_contains(&service, &["Endpoints:                10.0.0.7:8080"]);
    assert_contains(
        &kubectl.ok("describe node n1"),
        &["Name:               n1", "Kubelet Version:            v1.2.3", "Non-terminated Pods:"],
    );
    assert_contains(
        &kubectl.ok("describe ns default"),
        &["Status:       Active", "kubernetes.io/metadata.name=default"],
    );
    let uid = kubectl.ok("get pod p -o jsonpath='{.metadata.uid}'");
    kubectl.ok_with("create -f -", &EVENT.replace("UID", &uid));
    let pod = kubectl.ok("describe pod p");
    assert_contains(&pod, &["Image:        busybox", "Pulled", "somebody says so"]);
    assert!(rows(&pod).contains(&vec!["QoS", "Class:", "BestEffort"]), "{pod}");
    let deployment = kubectl.ok("describe deploy web");
    assert_contains(&deployment, &["2 desired", "RollingUpdateStrategy:  25% max unavailable, 25% max surge"]);
    assert_contains(
        &kubectl.ok("describe crd infras.hostedcluster.densityops.com"),
        &["Kind:         CustomResourceDefinition"],
    );
}

#[test]
fn kubernetes_kinds_have_their_tables() {
    let server = apiserver();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", OBJECTS);
    let row = |line: &str| rows(&kubectl.ok(line))[1].iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    assert_eq!(row("get pod p")[..4], ["p", "0/1", "Pending", "0"]);
    assert_eq!(row("get deploy web")[..4], ["web", "0/2", "0", "0"]);
    let service = row("get svc web");
    let address = if Own::NoServiceAddress.holds() { "<none>" } else { &service[2] };
    assert_eq!(service[..5], ["web", "ClusterIP", address, "<none>", "80/TCP"]);
    assert_eq!(row("get endpointslice web-1")[..4], ["web-1", "IPv4", "8080", "10.0.0.7"]);
    assert_eq!(row("get secret s")[..3], ["s", "Opaque", "1"]);
    assert_eq!(row("get node n1")[..3], ["n1", "Unknown", "<none>"]);
    assert_eq!(row("get ns default")[..2], ["default", "Active"]);
    assert_eq!(row("get sa default")[..2], ["default", "0"]);
}

const OBJECTS: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.7], conditions: {ready: true}}]
ports: [{name: "", port: 8080, protocol: TCP}]
---
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {password: hunter2}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {nodeInfo: {kubeletVersion: v1.2.3, architecture: amd64, bootID: b, containerRuntimeVersion: c, kernelVersion: k,
  kubeProxyVersion: v1.2.3, machineID: m, operatingSystem: linux, osImage: o, systemUUID: u}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec: {replicas: 2, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: nginx}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: c, image: busybox}]}
"#;

const EVENT: &str = r#"
apiVersion: v1
kind: Event
metadata: {name: p.1}
involvedObject: {apiVersion: v1, kind: Pod, name: p, namespace: default, uid: UID}
type: Normal
reason: Pulled
message: somebody says so
firstTimestamp: 2026-01-01T00:00:00Z
lastTimestamp: 2026-01-01T00:00:00Z
count: 1
source: {component: test}
"#;
