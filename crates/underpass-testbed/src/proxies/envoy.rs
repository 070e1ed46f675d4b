//! Envoy, with its listeners and clusters in files that it watches.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use super::routing::{Kind, Port, ProxyHeader, Route, Routing};
use super::{HELLO_DEADLINE, Place, WORKERS};
use crate::http;

const BOOTSTRAP: &str = "envoy.json";
const LISTENERS: &str = "listeners.json";
const CLUSTERS: &str = "clusters.json";

pub(super) fn write(place: &Place, routing: &Routing) -> Instant {
    let clusters: Vec<Value> = routing.routes().map(cluster).collect();
    let listeners: Vec<Value> = routing.ports.iter().map(|port| listener(place, port)).collect();
    place.put(BOOTSTRAP, &bootstrap(place).to_string());
    // First where connections may go, then which of them go there.
    place.put(CLUSTERS, &resources("envoy.config.cluster.v3.Cluster", clusters).to_string());
    place.put(LISTENERS, &resources("envoy.config.listener.v3.Listener", listeners).to_string())
}

pub(super) fn command(program: &Path, place: &Place) -> Command {
    let mut command = Command::new(program);
    command.arg("-c").arg(place.path(BOOTSTRAP)).args(["--concurrency", &WORKERS.to_string()]);
    command.args(["--disable-hot-restart", "--log-level", "error"]);
    command
}

/// Connections that no filter chain took, or that never said what they want.
pub(super) fn refusals(place: &Place) -> u64 {
    let text = http::page(place.admin, "/stats?filter=no_filter_chain_match|pre_cx_timeout|cx_no_route|rbac.denied")
        .expect("Envoy answers");
    text.lines().filter_map(|line| line.split_once(": ")?.1.parse::<u64>().ok()).sum()
}

fn bootstrap(place: &Place) -> Value {
    let file = |name: &str| json!({ "resource_api_version": "V3", "path_config_source": { "path": place.path(name) } });
    json!({
        "node": { "id": "bench", "cluster": "bench" },
        "admin": { "address": address(place.admin) },
        "dynamic_resources": { "lds_config": file(LISTENERS), "cds_config": file(CLUSTERS) },
    })
}

fn resources(kind: &str, mut resources: Vec<Value>) -> Value {
    for resource in &mut resources {
        resource["@type"] = json!(format!("type.googleapis.com/{kind}"));
    }
    json!({ "resources": resources })
}

fn address(address: SocketAddr) -> Value {
    json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } })
}

fn listener(place: &Place, port: &Port) -> Value {
    let mut filters = Vec::new();
    if port.accepts_proxy_header {
        filters.push(extension(
            "envoy.filters.listener.proxy_protocol",
            "envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol",
            json!({}),
        ));
    }
    if port.kind == Kind::Tls {
        filters.push(extension(
            "envoy.filters.listener.tls_inspector",
            "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector",
            json!({}),
        ));
    }
    json!({
        "name": format!("port-{}", port.number),
        "address": address((place.listen, port.number).into()),
        "listener_filters": filters,
        "listener_filters_timeout": format!("{}s", HELLO_DEADLINE.as_secs()),
        "filter_chains": port.routes.iter().map(|route| filter_chain(port, route)).collect::<Vec<_>>(),
    })
}

fn filter_chain(port: &Port, route: &Route) -> Value {
    // A chain without names takes what no other takes, with or without a name: Envoy does not tell the two apart.
    let matches = match (port.kind, route.default) {
        (Kind::Plain, _) => json!({}),
        (Kind::Tls, true) => json!({ "transport_protocol": "tls" }),
        (Kind::Tls, false) => json!({ "transport_protocol": "tls", "server_names": route.hosts }),
    };
    let proxy = json!({ "stat_prefix": "bench", "cluster": route.name, "max_connect_attempts": 3 });
    json!({
        "name": route.name,
        "filter_chain_match": matches,
        "filters": [extension(
            "envoy.filters.network.tcp_proxy",
            "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
            proxy,
        )],
    })
}

fn cluster(route: &Route) -> Value {
    let endpoints: Vec<Value> =
        route.targets.iter().map(|target| json!({ "endpoint": { "address": address(*target) } })).collect();
    let mut cluster = json!({
        "name": route.name,
        "type": "STATIC",
        "connect_timeout": "5s",
        // The defaults of 1024 are for protection, not for measuring.
        "circuit_breakers": { "thresholds": [{ "max_connections": 1_000_000, "max_pending_requests": 1_000_000 }] },
        "load_assignment": { "cluster_name": route.name, "endpoints": [{ "lb_endpoints": endpoints }] },
    });
    if let Some(header) = route.sends {
        let version = match header {
            ProxyHeader::V1 => "V1",
            ProxyHeader::V2 => "V2",
        };
        let plain = extension(
            "envoy.transport_sockets.raw_buffer",
            "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer",
            json!({}),
        );
        cluster["transport_socket"] = extension(
            "envoy.transport_sockets.upstream_proxy_protocol",
            "envoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport",
            json!({ "config": { "version": version }, "transport_socket": plain }),
        );
    }
    cluster
}

fn extension(name: &str, kind: &str, mut settings: Value) -> Value {
    settings["@type"] = json!(format!("type.googleapis.com/{kind}"));
    json!({ "name": name, "typed_config": settings })
}
