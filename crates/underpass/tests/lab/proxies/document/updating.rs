//! What changes in the running proxy, and what starts its pods anew.

use serde_json::{Value, json};
use underpass_testbed::{PATIENCE, wait_until};

use super::super::IMAGE;
use super::reader::Reader;
use super::starting::ENVOY_LOGS;
use super::{ANY, API, OAUTH, SERVER_IP, Tenant};

const EDIT: &str = "kubectl edit proxyserver mycluster-proxy -n hosted-clusters";
/// The document's amounts.
const RESOURCES: [(&str, &str, &str); 2] = [("requests", "256Mi", "500m"), ("limits", "1Gi", "2000m")];

/// Backends come and go, lead to other Services and namespaces, get other timeouts and protocols; the pod and its containers stay.
pub(super) fn without_a_restart(reader: &Reader<'_>, tenant: &Tenant<'_>) {
    let before = (reader.deployment()["spec"]["template"].clone(), pod_and_restarts(reader));
    reader.edits(EDIT, &json!(common_backends().iter().map(added).collect::<Vec<_>>()));
    becomes(tenant, ANY, 443, Some("any"));
    tenant.reaches(
        SERVER_IP,
        &[
            (API, 6443, "kube-apiserver"),
            ("api-int.mycluster.example.com", 6443, "kube-apiserver"),
            (OAUTH, 443, "oauth-openshift"),
            ("ignition-server.mycluster.example.com", 443, "ignition-server"),
            ("konnectivity-server.mycluster.example.com", 8090, "konnectivity-server"),
        ],
    );
    reader.edits(EDIT, &json!([{ "op": "remove", "path": "/spec/backends/3" }]));
    becomes(tenant, "ignition-server.mycluster.example.com", 443, None);
    leads_elsewhere(reader, tenant);
    let timeout = json!({ "op": "add", "path": "/spec/backends/1/timeoutSeconds", "value": 600 });
    let protocol = json!({ "op": "replace", "path": "/spec/backends/1/protocol", "value": "HTTPS" });
    reader.edits("kubectl edit proxyserver mycluster-proxy", &json!([timeout, protocol]));
    let timeouts = reader.types(
        r#"kubectl get proxyserver mycluster-proxy -o jsonpath='{range .spec.backends[*]}{.name}: {.timeoutSeconds}s{"\n"}{end}'"#,
    );
    assert!(timeouts.starts_with("kube-apiserver-external: 300s\noauth-openshift: 600s\n"), "{timeouts}");
    tenant.reaches(SERVER_IP, &[(OAUTH, 443, "oauth-openshift")]);
    assert_eq!(
        (reader.deployment()["spec"]["template"].clone(), pod_and_restarts(reader)),
        before,
        "nothing starts anew"
    );
}

/// To another Service, to another namespace, and back.
fn leads_elsewhere(reader: &Reader<'_>, tenant: &Tenant<'_>) {
    let service = |name: &str| json!([{ "op": "replace", "path": "/spec/backends/1/targetService", "value": name }]);
    let namespace =
        |name: &str| json!([{ "op": "replace", "path": "/spec/backends/1/targetNamespace", "value": name }]);
    reader.edits(EDIT, &service("any"));
    becomes(tenant, OAUTH, 443, Some("any"));
    reader.edits(EDIT, &service("oauth-openshift"));
    becomes(tenant, OAUTH, 443, Some("oauth-openshift"));
    reader.edits(EDIT, &namespace("default"));
    becomes(tenant, OAUTH, 443, None);
    reader.edits(EDIT, &namespace("clusters-mycluster"));
    becomes(tenant, OAUTH, 443, Some("oauth-openshift"));
}

/// Address, ports and images; how much is logged, and under which account; and resources, of the object and of the Deployment.
pub(super) fn with_a_restart(reader: &Reader<'_>, tenant: &Tenant<'_>) {
    let replaced = |path: &str, value: Value| json!([{ "op": "replace", "path": path, "value": value }]);
    restarts(reader, EDIT, &replaced("/spec/networkConfig/serverIP", json!("192.168.100.5")));
    restarts(reader, EDIT, &replaced("/spec/port", json!(8443)));
    restarts(reader, EDIT, &replaced("/spec/xdsPort", json!(18001)));
    restarts(reader, EDIT, &replaced("/spec/proxyImage", json!(reader.lab.newest_envoy_image())));
    restarts(reader, EDIT, &replaced("/spec/managerImage", json!(IMAGE)));
    restarts(reader, EDIT, &replaced("/spec/logLevel", json!("debug")));
    restarts(reader, EDIT, &json!([{ "op": "add", "path": "/spec/serviceAccountName", "value": "default" }]));
    let memory = json!({ "requests": { "memory": "64Mi" } });
    restarts(
        reader,
        "kubectl edit proxyserver mycluster-proxy",
        &json!([{ "op": "add", "path": "/spec/resources", "value": memory }]),
    );
    let amounts = RESOURCES.map(|(part, memory, cpu)| (part.to_owned(), json!({ "memory": memory, "cpu": cpu })));
    let resources = Value::Object(amounts.into_iter().collect());
    restarts(
        reader,
        "kubectl edit deployment proxy-server-mycluster-proxy -n hosted-clusters",
        &json!([{ "op": "add", "path": "/spec/template/spec/containers/0/resources", "value": resources }]),
    );
    reader.sees_pods(1);
    wait_until("an answer at the new address", PATIENCE, || {
        let ended = tenant.vm.fetch(&format!("https://{API}:6443/"), "192.168.100.5", &tenant.plane.authority());
        (ended.code == Some(0)).then_some(())
    });
    assert_eq!(tenant.who(API, 6443), None, "nobody has the old address");
    keeps_resources(reader);
    reader.looks_for(ENVOY_LOGS, &["[debug]"]);
    // Under the account of which the document says that it is the manager's.
    let may =
        "kubectl auth can-i get services --as=system:serviceaccount:hosted-clusters:default -n clusters-mycluster";
    assert_eq!(reader.types(may), "yes\n");
}

/// What was written into the Deployment by hand.
#[track_caller]
pub(super) fn keeps_resources(reader: &Reader<'_>) {
    let deployment = reader.deployment();
    let found = &deployment["spec"]["template"]["spec"]["containers"][0]["resources"];
    assert_eq!(found["limits"], json!({ "memory": "1Gi", "cpu": "2" }), "{found}");
    assert_eq!(found["requests"], json!({ "memory": "256Mi", "cpu": "500m" }), "{found}");
}

/// New pods are made when, and only when, their template changes.
#[track_caller]
fn restarts(reader: &Reader<'_>, command: &str, patch: &Value) {
    let template = || reader.deployment()["spec"]["template"].clone();
    let before = template();
    reader.edits(command, patch);
    wait_until(&format!("another template after {patch}"), PATIENCE, || (template() != before).then_some(()));
}

#[track_caller]
fn becomes(tenant: &Tenant<'_>, name: &str, port: u16, service: Option<&str>) {
    let expected = service.map(|service| tenant.plane.name_of(service));
    wait_until(&format!("{expected:?} for {name}"), PATIENCE, || (tenant.who(name, port) == expected).then_some(()));
}

/// Those that the manifest lacks of what the document calls common, and the one that has the name that it asks for.
fn common_backends() -> [Value; 4] {
    [
        ("kube-apiserver-internal", "api-int.mycluster.example.com", 6443, "kube-apiserver", 6443),
        ("ignition-server", "ignition-server.mycluster.example.com", 443, "ignition-server", 443),
        ("konnectivity-server", "konnectivity-server.mycluster.example.com", 8090, "konnectivity-server", 8090),
        ("any", ANY, 443, "any", 443),
    ]
    .map(|(name, hostname, port, service, target)| {
        json!({
            "name": name, "hostname": hostname, "port": port,
            "targetService": service, "targetPort": target, "targetNamespace": "clusters-mycluster",
        })
    })
}

pub(super) fn added(backend: &Value) -> Value {
    json!({ "op": "add", "path": "/spec/backends/-", "value": backend })
}

fn pod_and_restarts(reader: &Reader<'_>) -> (String, Vec<Value>) {
    let pod = reader.pod();
    let statuses = reader.json(&format!("get pod {pod}"))["status"]["containerStatuses"].as_array().unwrap().clone();
    (pod, statuses.into_iter().map(|status| status["restartCount"].clone()).collect())
}
