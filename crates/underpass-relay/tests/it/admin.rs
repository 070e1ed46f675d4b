//! The admin port from outside: what it tells, and to whom it does not.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Runtime;
use underpass_relay::{Admin, AdminState, RefusedSource, Relay, Settings};
use underpass_tables::{Expects, Listener, Reject, RelayTable, Route, RouteId, Rule, Rules, Transport, Unnamed};

use crate::rig::{PATIENCE, loopback};

struct Served {
    address: SocketAddr,
    relay: Arc<Relay>,
    state: Arc<AdminState>,
    _runtime: Runtime,
}

impl Served {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let settings = Settings::default();
        let relay = Arc::new(Relay::start(settings).unwrap());
        let state = AdminState::new(relay.clone());
        let admin = runtime.block_on(Admin::bind(([127, 0, 0, 1], 0).into())).unwrap();
        let address = admin.address();
        runtime.spawn(admin.serve(state.clone()));
        Self { address, relay, state, _runtime: runtime }
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    fn ok(&self, path: &str) -> String {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    fn ask(&self, request: &str) -> (u16, String) {
        let mut client = self.connect();
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap_or_else(|| panic!("no status in {answer:?}")).parse().unwrap();
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }
}

fn table(endpoint: SocketAddr) -> RelayTable {
    let api = Route { max_connections: Some(9), ..Route::new("edge-api", "cp/kube-apiserver:6443", vec![endpoint]) };
    let trouble = Some("service not found: cp/lost".into());
    let lost = Route { trouble, ..Route::new("edge-lost", "cp/lost:443", Vec::new()) };
    let mut rules = Rules::default();
    rules.add_name("api.example.com", RouteId(0)).unwrap();
    rules.unnamed = Some(Unnamed { route: RouteId(0), rule: Rule::ApiServer });
    rules.plain = Some(RouteId(0));
    let listener = Listener {
        name: "edge-listener-443".into(),
        address: ([127, 0, 0, 1], 0).into(),
        transport: Transport::Stream,
        proxy_header: false,
        expects: Expects::Hello,
        rules,
    };
    RelayTable {
        generation: 3,
        listeners: vec![listener],
        routes: vec![Arc::new(api), Arc::new(lost)],
        rejects: vec![Reject { entry: "ProxyServer cp/edge, backend bad".into(), reason: "because".into() }],
        ..RelayTable::default()
    }
}

/// A connection that was carried, has said something and is still open.
fn carried(served: &Served, backend: &TcpListener) -> (TcpStream, TcpStream) {
    let listener = served.relay.live().listeners[0].address;
    let mut client = TcpStream::connect(listener).unwrap();
    client.write_all(b"hello").unwrap();
    let (mut upstream, _) = backend.accept().unwrap();
    upstream.read_exact(&mut [0; 5]).unwrap();
    (client, upstream)
}

#[test]
fn readiness_follows_the_life_of_the_relay() {
    let served = Served::start();
    assert_eq!(served.get("/ready"), (503, "PRE_INITIALIZING\n".into()));
    let backend = TcpListener::bind(loopback()).unwrap();
    served.relay.apply(table(backend.local_addr().unwrap())).unwrap();
    assert_eq!(served.get("/ready"), (200, "LIVE\n".into()));
    served.relay.drain(Duration::ZERO);
    assert_eq!(served.get("/ready"), (503, "DRAINING\n".into()));
}

#[test]
fn the_pages_tell_what_there_is() {
    let served = Served::start();
    let backend = TcpListener::bind(loopback()).unwrap();
    let endpoint = backend.local_addr().unwrap();
    served.relay.apply(table(endpoint)).unwrap();
    let listener = served.relay.live().listeners[0].address;
    let _open = carried(&served, &backend);

    let index = served.ok("/");
    for path in ["/ready", "/stats", "/stats/prometheus", "/clusters", "/listeners", "/server_info", "/config_dump"] {
        assert!(index.contains(path), "{index}");
        served.ok(path);
    }
    assert_eq!(served.ok("/listeners"), format!("edge-listener-443::{listener}\n"));
    let clusters = served.ok("/clusters");
    for line in [
        format!("edge-api::{endpoint}::cx_active::1\n"),
        format!("edge-api::{endpoint}::cx_total::1\n"),
        format!("edge-api::{endpoint}::cx_connect_fail::0\n"),
        format!("edge-api::{endpoint}::health_flags::healthy\n"),
        "edge-api::default_priority::max_connections::9\n".into(),
        "edge-lost::trouble::service not found: cp/lost\n".into(),
    ] {
        assert!(clusters.contains(&line), "{line} is missing in\n{clusters}");
    }
    let clusters: Value = serde_json::from_str(&served.ok("/clusters?format=json")).unwrap();
    assert_eq!(clusters["cluster_statuses"][0]["host_statuses"][0]["health_flags"], "healthy");
    assert_eq!(clusters["cluster_statuses"][1]["trouble"], "service not found: cp/lost");
    let info: Value = serde_json::from_str(&served.ok("/server_info")).unwrap();
    assert_eq!((&info["state"], &info["connections"]), (&"LIVE".into(), &1.into()));
}

#[test]
fn counters_have_envoys_names() {
    let served = Served::start();
    let backend = TcpListener::bind(loopback()).unwrap();
    served.relay.apply(table(backend.local_addr().unwrap())).unwrap();
    let listener = served.relay.live().listeners[0].address.to_string().replace(':', "_");
    let _open = carried(&served, &backend);
    let prometheus = served.ok("/stats/prometheus");
    for line in [
        "envoy_cluster_upstream_cx_active{envoy_cluster_name=\"edge-api\"} 1\n".to_owned(),
        "envoy_cluster_upstream_cx_total{envoy_cluster_name=\"edge-api\"} 1\n".to_owned(),
        format!("envoy_listener_downstream_cx_active{{envoy_listener_address=\"{listener}\"}} 1\n"),
        format!("envoy_listener_downstream_cx_total{{envoy_listener_address=\"{listener}\"}} 1\n"),
        "underpass_connections_refused_total{listener=\"edge-listener-443\"} 0\n".to_owned(),
        "underpass_table_generation 3\n".to_owned(),
        "underpass_table_rejects 1\n".to_owned(),
        "underpass_table_stale 0\n".to_owned(),
    ] {
        assert!(prometheus.contains(&line), "{line} is missing in\n{prometheus}");
    }
    for name in
        ["underpass_build_info{", "process_cpu_seconds_total ", "process_resident_memory_bytes ", "process_open_fds "]
    {
        assert!(prometheus.contains(&format!("\n{name}")), "{name}");
    }
    let text = served.ok("/stats");
    let address = listener.to_string().replace(':', "_");
    for line in [
        "cluster.edge-api.upstream_cx_active: 1\n".to_owned(),
        format!("listener.{address}.downstream_cx_total: 1\n"),
        "server.live: 1\n".to_owned(),
    ] {
        assert!(text.contains(&line), "{line} is missing in\n{text}");
    }
}

#[test]
fn the_dump_has_the_table_and_what_is_not_in_it() {
    let served = Served::start();
    served.relay.apply(table(([127, 0, 0, 1], 9).into())).unwrap();
    let dump = || serde_json::from_str::<Value>(&served.ok("/config_dump")).unwrap();
    let first = dump();
    assert_eq!(first["generation"], 3);
    let listener = &first["configs"][1]["dynamic_listeners"][0];
    assert_eq!(listener["rules"]["names"]["api.example.com"], "edge-api");
    assert_eq!(listener["rules"]["unnamed"]["route"], "edge-api");
    assert_eq!(first["configs"][3]["dynamic_active_clusters"][1]["cluster"]["trouble"], "service not found: cp/lost");
    assert_eq!(first["rejects"][0]["entry"], "ProxyServer cp/edge, backend bad");
    assert_eq!(first["refused_source"], Value::Null);
    served.state.set_refused(Some(RefusedSource { source: "f.yaml".into(), reason: "half of it".into() }));
    assert_eq!(dump()["refused_source"]["reason"], "half of it");
    assert!(served.ok("/stats/prometheus").contains("underpass_table_stale 1\n"));
}

#[test]
fn nothing_can_be_changed_and_nothing_else_is_there() {
    let served = Served::start();
    let ask = |start: &str, host: &str| {
        served.ask(&format!("{start} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")).0
    };
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        assert_eq!(ask(&format!("{method} /ready"), "localhost"), 405, "{method}");
    }
    for path in ["/quitquitquit", "/ready/", "/../etc/passwd", "//"] {
        assert_eq!(ask(&format!("GET {path}"), "localhost"), 404, "{path}");
    }
    for host in ["127.0.0.1:9901", "[::1]:9901", "LOCALHOST", "10.0.0.1"] {
        assert_eq!(ask("GET /", host), 200, "{host}");
    }
    for host in ["evil.example.com", "evil.example.com:9901", "localhost.evil.example.com", ""] {
        assert_eq!(ask("GET /", host), 421, "{host}");
    }
    let (status, body) = served.ask("HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!((status, body.as_str()), (200, ""));
}

#[test]
fn long_headers_are_refused() {
    let served = Served::start();
    let long = "x".repeat(64 * 1024);
    let mut client = served.connect();
    // The answer may come before all of it was sent.
    let _ = client.write_all(format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: {long}\r\n\r\n").as_bytes());
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn who_comes_when_all_places_are_taken_gets_that_of_the_one_that_was_silent_longest() {
    let served = Served::start();
    let mut silent: Vec<TcpStream> = (0..64).map(|_| served.connect()).collect();
    for client in &mut silent {
        client.write_all(b"GET /re").unwrap();
    }
    let (_, body) = served.get("/ready");
    assert!(body.contains("PRE_INITIALIZING"), "{body}");
    assert!(matches!(silent[0].read(&mut [0]), Ok(0) | Err(_)));
    silent[63].write_all(b"ady HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    silent[63].read_to_string(&mut answer).unwrap();
    assert!(answer.contains("PRE_INITIALIZING"), "{answer}");
}

#[test]
fn without_a_listener_it_is_not_ready_and_says_so() {
    let served = Served::start();
    served.relay.apply(RelayTable { generation: 1, ..RelayTable::default() }).unwrap();
    let (status, body) = served.get("/ready");
    assert_eq!(status, 503);
    assert!(body.contains("no listener is open"), "{body}");
    assert!(served.ok("/stats/prometheus").contains("underpass_access_log_lost_total 0\n"));
}

#[test]
fn a_port_that_is_taken_is_said_to_be() {
    let taken = TcpListener::bind(loopback()).unwrap();
    let address = taken.local_addr().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(Admin::bind(address)).err().unwrap();
    assert_eq!(error.to_string(), format!("the port {address} cannot be opened"));
}
