//! What kubectl makes by itself: objects from flags, and questions about rights. It sends these in Kubernetes' protobuf, not in JSON.

use serde_json::json;

use super::{assert_contains, rows};
use crate::apiserver;

#[test]
fn objects_are_made_from_flags() {
    let server = apiserver();
    let kubectl = server.kubectl();
    assert_eq!(kubectl.ok("create namespace team"), "namespace/team created\n");
    assert_eq!(
        kubectl.ok("create configmap c -n team --from-literal=a=1 --from-literal=b='x y'"),
        "configmap/c created\n"
    );
    assert_eq!(kubectl.json("get cm c -n team")["data"], json!({ "a": "1", "b": "x y" }));
    assert_eq!(kubectl.ok("create secret generic s --from-literal=password=hunter2"), "secret/s created\n");
    let secret = kubectl.json("get secret s");
    assert_eq!((&secret["type"], &secret["data"]), (&json!("Opaque"), &json!({ "password": "aHVudGVyMg==" })));
    assert_eq!(kubectl.ok("create serviceaccount robot"), "serviceaccount/robot created\n");
    assert_eq!(kubectl.ok("create service clusterip web --tcp=80:8080"), "service/web created\n");
    let service = &kubectl.json("get svc web")["spec"];
    assert_eq!(service["ports"], json!([{ "name": "80-8080", "port": 80, "protocol": "TCP", "targetPort": 8080 }]));
    assert_eq!(service["selector"], json!({ "app": "web" }));
    assert_contains(&kubectl.fails("create configmap c -n team"), &["configmaps \"c\" already exists"]);
    assert_contains(&kubectl.fails("create configmap Bad_Name"), &["metadata.name: Invalid value: \"Bad_Name\""]);
    assert_contains(
        &kubectl.ok("create configmap d --dry-run=server -o yaml --from-literal=k=v"),
        &["  k: v\n", "uid: "],
    );
    assert_contains(&kubectl.fails("get cm d"), &["(NotFound)"]);
}

#[test]
fn a_deployment_made_from_flags_equals_one_from_a_file() {
    let server = apiserver();
    let kubectl = server.kubectl();
    assert_eq!(
        kubectl.ok("create deployment web --image=nginx --replicas=2 --port=80"),
        "deployment.apps/web created\n"
    );
    let made = kubectl.json("get deploy web");
    let file = kubectl.ok("create deployment web --image=nginx --replicas=2 --port=80 --dry-run=client -o yaml");
    kubectl.ok("delete deploy web");
    kubectl.ok_with("create -f -", &file);
    assert_eq!(kubectl.json("get deploy web")["spec"], made["spec"]);
    assert_eq!(made["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"], 80);
}

#[test]
fn rights_can_be_asked_for() {
    let server = apiserver();
    let kubectl = server.kubectl();
    assert_eq!(kubectl.ok("auth can-i create proxyservers"), "yes\n");
    assert_eq!(kubectl.ok("auth can-i '*' '*' -A"), "yes\n");
    assert_contains(&kubectl.ok("auth can-i --list"), &["*.*", "[*]"]);
    let who = kubectl.ok("auth whoami");
    assert_eq!(rows(&who)[1], ["Username", "underpass-admin"]);
}
