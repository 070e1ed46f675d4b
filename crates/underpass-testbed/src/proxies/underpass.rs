//! Our own proxy: a file with a ProxyServer, and a Service with EndpointSlices for every route.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use super::routing::{Kind, Port, ProxyHeader, Route, Routing};
use super::{Place, WORKERS};
use crate::http;

const FILE: &str = "proxy.yaml";
const NAMESPACE: &str = "default";
/// Labels of the counters.
const REFUSALS: [&str; 5] = ["unknown_name", "no_name", "not_tls", "invalid_hello", "hello_timeout"];

pub(super) fn write(place: &Place, routing: &Routing) -> Instant {
    let mut documents = vec![server(place, routing)];
    documents.extend(routing.routes().flat_map(targets));
    let text: Vec<String> = documents.iter().map(Value::to_string).collect();
    place.put(FILE, &text.join("\n---\n"))
}

pub(super) fn command(program: &Path, place: &Place) -> Command {
    let mut command = Command::new(program);
    command.arg("proxy").arg("-f").arg(place.path(FILE)).args(["--admin", &place.admin.to_string()]);
    command.args(["--workers", &WORKERS.to_string(), "--access-log", "off"]);
    command.env("HOME", place.folder.path()).env_remove("KUBECONFIG").env_remove("RUST_LOG");
    command
}

/// The sum of all counters of connections that were not let through.
pub(super) fn refusals(place: &Place) -> u64 {
    let text = http::page(place.admin, "/stats/prometheus").expect("the admin port answers");
    let counts = |line: &&str| !line.starts_with('#') && REFUSALS.iter().any(|reason| line.contains(reason));
    let counters = text.lines().filter(counts);
    counters.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
}

fn server(place: &Place, routing: &Routing) -> Value {
    let backends: Vec<Value> =
        routing.ports.iter().flat_map(|port| port.routes.iter().map(|route| backend(port, route))).collect();
    json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1",
        "kind": "ProxyServer",
        "metadata": { "name": "edge", "namespace": NAMESPACE },
        "spec": {
            "dataPlane": "Native",
            "networkConfig": { "serverIP": place.listen.to_string() },
            "backends": backends,
        },
    })
}

fn backend(port: &Port, route: &Route) -> Value {
    // TLS means by name only; a route for connections without a name is a TCP one.
    let by_name_only = port.kind == Kind::Tls && !route.default;
    let mut backend = json!({
        "name": route.name,
        "hostname": route.hosts[0],
        "alternateHostnames": route.hosts[1..],
        "port": port.number,
        "targetService": route.name,
        "targetNamespace": NAMESPACE,
        "targetPort": 443,
        "protocol": if by_name_only { "TLS" } else { "TCP" },
        "default": route.default,
    });
    if port.accepts_proxy_header || route.sends.is_some() {
        let send = route.sends.map(|header| match header {
            ProxyHeader::V1 => "V1",
            ProxyHeader::V2 => "V2",
        });
        backend["proxyProtocol"] = json!({ "accept": port.accepts_proxy_header, "send": send });
    }
    backend
}

/// The Service of a route, and an EndpointSlice for each target: all endpoints of a slice share their port.
fn targets(route: &Route) -> Vec<Value> {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": route.name, "namespace": NAMESPACE },
        "spec": { "ports": [{ "name": "stream", "port": 443, "protocol": "TCP" }] },
    });
    let slices = route.targets.iter().enumerate().map(|(index, target)| {
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": format!("{}-{index}", route.name),
                "namespace": NAMESPACE,
                "labels": { "kubernetes.io/service-name": route.name },
            },
            "addressType": "IPv4",
            "ports": [{ "name": "stream", "port": target.port(), "protocol": "TCP" }],
            "endpoints": [{ "addresses": [target.ip().to_string()], "conditions": { "ready": true } }],
        })
    });
    std::iter::once(service).chain(slices).collect()
}
