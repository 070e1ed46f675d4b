use serde_json::json;
use underpass_testbed::{Lab, LabNamespace};

/// Envoy with three listeners that lead nowhere, under the strictest rules that Kubernetes has for pods.
fn pod(name: &str, image: &str) -> String {
    let address = |address: &str, port: u16| json!({ "socket_address": { "address": address, "port_value": port } });
    let nowhere = json!({
        "name": "envoy.filters.network.tcp_proxy",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
            "stat_prefix": "nowhere", "cluster": "nowhere",
        },
    });
    let listener =
        |port: u16| json!({ "address": address("0.0.0.0", port), "filter_chains": [{ "filters": [nowhere] }] });
    let bootstrap = json!({
        "admin": { "address": address("0.0.0.0", 9901) },
        "static_resources": {
            "listeners": [listener(443), listener(6443), listener(18000)],
            "clusters": [{ "name": "nowhere", "load_assignment": { "cluster_name": "nowhere" } }],
        },
    });
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
        "data": { "bootstrap.json": bootstrap.to_string() },
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 101, "seccompProfile": { "type": "RuntimeDefault" },
                "sysctls": [{ "name": "net.ipv4.ip_unprivileged_port_start", "value": "0" }],
            },
            "containers": [{
                "name": "envoy", "image": image,
                "command": ["/usr/local/bin/envoy", "-c", "/etc/envoy/bootstrap.json", "--concurrency", "1"],
                "readinessProbe": { "httpGet": { "path": "/ready", "port": 9901 }, "periodSeconds": 1 },
                "securityContext": {
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
                },
                "volumeMounts": [{ "name": "bootstrap", "mountPath": "/etc/envoy" }],
            }],
            "volumes": [{ "name": "bootstrap", "configMap": { "name": name } }],
        },
    });
    json!({ "apiVersion": "v1", "kind": "List", "items": [config, pod] }).to_string()
}

/// What a shell in its container prints, on both streams.
fn says(namespace: &LabNamespace, pod: &str, line: &str) -> String {
    namespace.kubectl.ok(&format!("exec {pod} -c envoy -- sh -c '({line}) 2>&1'"))
}

#[test]
fn envoy_runs_as_nobody_in_particular_and_can_be_looked_into() {
    let lab = Lab::running();
    let namespace = lab.namespace("envoy");
    namespace.kubectl.ok(&format!("label namespace {} pod-security.kubernetes.io/enforce=restricted", namespace.name));
    for (name, image) in [("usual", lab.envoy_image()), ("newest", lab.newest_envoy_image())] {
        namespace.kubectl.ok_with("apply -f -", &pod(name, image));
        namespace.kubectl.ok(&format!("wait pod/{name} --for condition=Ready --timeout 60s"));
        let limits = says(&namespace, name, "id -u; touch /anything || true");
        assert_eq!(limits, "101\ntouch: /anything: Read-only file system\n", "{image}");
        let sockets = says(&namespace, name, r#"netstat -tlnp | grep -E "443|6443""#);
        assert!(sockets.contains("0.0.0.0:443 ") && sockets.contains("0.0.0.0:6443 "), "{image}: {sockets}");
        let reached = says(&namespace, name, "nc -zv localhost 18000");
        assert!(
            reached.contains("Connection to localhost") && reached.contains("18000 port [tcp/*] succeeded!"),
            "{reached}"
        );
        assert!(
            says(&namespace, name, "curl -s localhost:9901/stats | grep cx_active").contains("downstream_cx_active")
        );
        let version = image.rsplit_once('v').unwrap().1;
        assert!(says(&namespace, name, "envoy --version").contains(version), "{image}");
    }
}
