//! `kubectl describe` and `kubectl events`: what people look at when something does not work.

use super::{assert_contains, config_map, network, rows};
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
    assert_contains(&pod, &["Image:        busybox", "QoS Class:        BestEffort", "Pulled", "somebody says so"]);
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
    assert_eq!(row("get svc web")[..5], ["web", "ClusterIP", "<none>", "<none>", "80/TCP"]);
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
