//! A ProxyServer of a cluster, carried by our own data plane or by an Envoy: the same object, the same changes, the same answers.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use serde_json::{Value, json};
use tempfile::TempDir;
use underpass_testbed::{Envoy, Kubectl, Launch, PATIENCE, Process, Underpass, wait_until};

use super::plane::Plane;
use super::{Backend, answer, own_address};
use crate::BINARY;
use crate::server::embedded_apiserver;

/// A cluster, and a proxy that obeys its ProxyServer cp/edge. Services stand for names outside: a cluster's endpoints cannot be on loopback.
struct Edge {
    plane: Plane,
    server: Underpass,
    proxy: Process,
    folder: TempDir,
    _home: TempDir,
    envoy: Option<Envoy>,
    port: u16,
}

impl Edge {
    #[track_caller]
    fn start(plane: Plane, backends: &[(&str, &Backend)]) -> Self {
        Self::start_with(plane, backends, &[])
    }

    #[track_caller]
    fn start_with(plane: Plane, backends: &[(&str, &Backend)], arguments: &[&str]) -> Self {
        let port = free_port();
        Self::start_of(plane, port, &objects(port, backends), arguments)
    }

    #[track_caller]
    fn start_of(plane: Plane, port: u16, objects: &str, arguments: &[&str]) -> Self {
        let (server, folder) = (embedded_apiserver(), tempfile::tempdir().unwrap());
        let kubectl = server.kubectl();
        kubectl.ok("create namespace cp");
        kubectl.ok_with("apply -f -", objects);
        let launch = Launch::command(BINARY, "proxy").args(["--proxy-name", "edge", "--namespace", "cp"]);
        let launch = launch.args(["--proxy-log-level", "info", "--admin", "127.0.0.1:0", "--output", "json"]);
        let launch = launch.args(arguments).arg("--kubeconfig").arg(server.kubeconfig());
        let bootstrap = folder.path().join("bootstrap.json");
        let launch = match plane {
            Plane::Native => launch,
            Plane::Envoy => launch.args(["--xds-port", "0", "--envoy-bootstrap"]).arg(&bootstrap),
        };
        let (mut proxy, home) = launch.spawn();
        proxy.wait_for_stdout("the ready line", |text| text.lines().next().map(str::to_owned));
        let mut edge = Self { plane, server, proxy, folder, _home: home, envoy: None, port };
        edge.start_envoy();
        edge
    }

    fn start_envoy(&mut self) {
        if self.plane == Plane::Envoy {
            self.envoy = Some(Envoy::start(&self.folder.path().join("bootstrap.json")));
        }
    }

    fn kubectl(&self) -> Kubectl {
        self.server.kubectl()
    }

    fn door(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Backends from now on.
    fn change(&self, backends: &[(&str, &Backend)]) {
        self.kubectl().ok_with("apply -f -", &objects(self.port, backends));
    }

    #[track_caller]
    fn becomes(&self, name: &str, expected: Option<&str>) {
        wait_until(&format!("{expected:?} for {name}"), PATIENCE, || {
            (self.who(name).as_deref() == expected).then_some(())
        });
    }

    /// Waits until its pod has tried a backend, and returns what it says of this one and of the others.
    #[track_caller]
    fn wait_until_tried(&self, backend: &str) -> Vec<Value> {
        wait_until(&format!("what became of {backend}"), PATIENCE, || {
            let proxy: Value = serde_json::from_str(&self.kubectl().ok("get proxyserver edge -n cp -o json")).unwrap();
            let all = proxy["status"]["pods"][0]["backends"].as_array()?;
            let known = all.iter().find(|known| known["name"] == backend)?;
            // Not so where it is not known yet to what it leads.
            let is_tried = known["reason"].is_null() || known["reason"] == "NotCrossed";
            is_tried.then(|| all.clone())
        })
    }

    /// Who answers for a name; None: nobody.
    fn who(&self, name: &str) -> Option<String> {
        answer(self.door(), name)
    }
}

/// Free now; not from the range that the kernel hands out, so that it stays so.
fn free_port() -> u16 {
    let mut free = (12_000..20_000).filter(|port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok());
    let number = usize::try_from(std::process::id()).unwrap() % 512;
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    free.nth(number + NEXT.fetch_add(8, std::sync::atomic::Ordering::Relaxed)).unwrap()
}

fn edge_of(port: u16, backends: &[(&str, &Backend)]) -> Value {
    let entry = |(name, backend): &(&str, &Backend)| {
        json!({
            "name": name, "hostname": format!("{name}.example.com"), "port": port,
            "targetService": name, "targetNamespace": "cp", "targetPort": backend.address.port(),
        })
    };
    json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer",
        "metadata": { "name": "edge", "namespace": "cp" },
        "spec": {
            "networkConfig": { "serverIP": "192.0.2.4/24", "networkAttachmentName": "vlan" },
            "backends": backends.iter().map(entry).collect::<Vec<_>>(),
        },
    })
}

fn objects(port: u16, backends: &[(&str, &Backend)]) -> String {
    with_services(&edge_of(port, backends), backends)
}

fn with_services(proxy: &Value, backends: &[(&str, &Backend)]) -> String {
    let services = backends.iter().map(|(name, _)| service(name, "localhost"));
    let documents: Vec<String> = services.chain([proxy.clone()]).map(|object| object.to_string()).collect();
    documents.join("\n")
}

pub(super) fn service(name: &str, outside: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": "cp" },
        "spec": { "type": "ExternalName", "externalName": outside },
    })
}

#[track_caller]
fn changes_of_a_cluster_are_obeyed(plane: Plane) {
    let (api, web) = (Backend::start("api"), Backend::start("web"));
    let mut edge = Edge::start(plane, &[("api", &api)]);
    edge.becomes("api.example.com", Some("api"));
    assert_eq!(edge.who("web.example.com"), None, "an unknown name is nobody's");

    edge.change(&[("api", &api), ("web", &web)]);
    edge.becomes("web.example.com", Some("web"));

    edge.kubectl().ok_with("apply -f -", &service("web", "nowhere.invalid").to_string());
    edge.becomes("web.example.com", None);
    edge.proxy.wait_until_told(&["nowhere.invalid cannot be resolved: "]);
    edge.proxy.wait_until_told(&["failed to discover endpoints: service cp/web leads to nowhere.invalid"]);
    edge.kubectl().ok("delete service web -n cp");
    edge.proxy.wait_until_told(&["failed to discover endpoints: service not found: cp/web"]);
    assert_eq!(edge.who("api.example.com").as_deref(), Some("api"), "the others are served");

    edge.change(&[("web", &web)]);
    edge.becomes("web.example.com", Some("web"));
    edge.becomes("api.example.com", None);
}

/// Everything around a connection changes, and its own backend's names, time-out and endpoints: it goes on.
#[track_caller]
fn connections_outlive_changes(plane: Plane) {
    let (api, web) = (Backend::start("api"), Backend::start("web"));
    let edge = Edge::start(plane, &[("api", &api)]);
    edge.becomes("api.example.com", Some("api"));
    let mut open: Vec<TcpStream> = (0..20).map(|_| super::open(edge.door(), "api.example.com", "api")).collect();
    for round in 0..30 {
        let fixed = format!("round-{round}.example.com");
        let mut proxy = edge_of(edge.port, &[("api", &api), ("web", &web)]);
        proxy["spec"]["backends"][0]["alternateHostnames"] = json!([fixed]);
        proxy["spec"]["backends"][0]["timeoutSeconds"] = json!(10 + round);
        if round % 2 == 0 {
            proxy["spec"]["backends"].as_array_mut().unwrap().pop();
        }
        edge.kubectl().ok_with("apply -f -", &proxy.to_string());
        edge.becomes(&fixed, Some("api"));
        for connection in &mut open {
            super::assert_carries(connection);
        }
    }
}

#[test]
fn connections_outlive_changes_of_our_own_data_plane() {
    connections_outlive_changes(Plane::Native);
}

#[test]
fn connections_outlive_changes_of_an_envoy() {
    connections_outlive_changes(Plane::Envoy);
}

#[test]
fn changes_are_obeyed_by_our_own_data_plane() {
    changes_of_a_cluster_are_obeyed(Plane::Native);
}

#[test]
fn changes_are_obeyed_by_an_envoy() {
    changes_of_a_cluster_are_obeyed(Plane::Envoy);
}

/// What an Envoy was told and took, by its own count, and what became of it.
const TOLD: [&str; 7] = [
    "cluster_manager.cds.update_success",
    "cluster.edge-api.update_success",
    "listener_manager.lds.update_success",
    "cluster_manager.cluster_added",
    "cluster_manager.cluster_modified",
    "listener_manager.listener_modified",
    "listener_manager.listener_in_place_updated",
];

#[test]
fn an_envoy_serves_on_without_its_manager_and_its_successor_tells_it_nothing_new() {
    let api = Backend::start("api");
    let mut edge = Edge::start(Plane::Envoy, &[("api", &api)]);
    edge.becomes("api.example.com", Some("api"));
    let bootstrap: Value =
        serde_json::from_slice(&std::fs::read(edge.folder.path().join("bootstrap.json")).unwrap()).unwrap();
    let xds = &bootstrap["static_resources"]["clusters"][0]["load_assignment"]["endpoints"][0]["lb_endpoints"][0];
    let xds = xds["endpoint"]["address"]["socket_address"]["port_value"].to_string();
    edge.proxy.signal(underpass_testbed::Signal::KILL);
    wait_until("the manager to be gone", PATIENCE, || (!edge.proxy.is_running()).then_some(()));
    assert_eq!(edge.who("api.example.com").as_deref(), Some("api"));
    let envoy = edge.envoy.as_ref().unwrap();
    let counts = || TOLD.map(|name| envoy.stat(name).unwrap());
    let before = counts();

    let launch = Launch::command(BINARY, "proxy").args(["--proxy-name", "edge", "--namespace", "cp"]);
    let launch = launch.args(["--xds-port", &xds, "--output", "json", "--log-level", "underpass_xds=debug"]);
    let (mut manager, _home) = launch.arg("--kubeconfig").arg(edge.server.kubeconfig()).spawn();
    manager.wait_until_told(&["connected"]);
    let web = Backend::start("web");
    edge.change(&[("api", &api), ("web", &web)]);
    edge.becomes("web.example.com", Some("web"));
    let told: Vec<String> = manager.stderr().lines().filter(|line| line.contains(" told")).map(str::to_owned).collect();
    assert!(told.iter().all(|line| line.contains("changed=1")), "only what is new: {told:#?}");
    let grown: Vec<u64> = counts().iter().zip(before).map(|(now, before)| now - before).collect();
    assert_eq!(grown, [1, 0, 1, 1, 0, 1, 1], "a cluster more, and a listener that has it, in place: {TOLD:?}");
}

#[test]
fn an_envoy_that_starts_anew_is_told_everything() {
    let api = Backend::start("api");
    let mut edge = Edge::start(Plane::Envoy, &[("api", &api)]);
    edge.becomes("api.example.com", Some("api"));
    edge.envoy.take().unwrap().kill();
    assert_eq!(edge.who("api.example.com"), None);
    edge.start_envoy();
    edge.becomes("api.example.com", Some("api"));
}

/// Whoever reads the log looks there for what changed.
#[test]
fn a_configuration_is_told_of_once() {
    let (api, web) = (Backend::start("api"), Backend::start("web"));
    let edge = Edge::start(Plane::Envoy, &[("api", &api)]);
    edge.becomes("api.example.com", Some("api"));
    for port in 1..4 {
        let mut as_good = service("api", "localhost");
        as_good["spec"]["ports"] = json!([{ "port": port }]);
        edge.kubectl().ok_with("apply -f -", &as_good.to_string());
    }
    edge.change(&[("api", &api), ("web", &web)]);
    edge.becomes("web.example.com", Some("web"));
    let log = edge.proxy.stderr();
    let generated = log.lines().filter_map(|line| line.split_once("Generated Envoy configuration"));
    let told: Vec<&str> = generated.map(|(_, fields)| fields).collect();
    assert!(told.len() > 1 && told.windows(2).all(|pair| pair[0] != pair[1]), "{told:#?}");
}

/// A port that somebody else has is nothing that can be seen in an object: only the Envoy that is told to listen there finds out.
#[test]
fn what_an_envoy_refuses_stands_in_the_status_until_it_is_changed() {
    let (api, web) = (Backend::start("api"), Backend::start("web"));
    let pod = ["--pod", "edge-1", "--pod-ip", &own_address().to_string()];
    let edge = Edge::start_with(Plane::Envoy, &[("api", &api)], &pod);
    edge.becomes("api.example.com", Some("api"));
    let rejected = || {
        let proxy: Value = serde_json::from_str(&edge.kubectl().ok("get proxyserver edge -n cp -o json")).unwrap();
        let pods = proxy["status"]["pods"].as_array()?.first()?.clone();
        (pods["observedGeneration"] == proxy["metadata"]["generation"]).then(|| pods["rejected"].clone())
    };
    let becomes = |expected: &str| {
        wait_until(&format!("{expected:?} in the status"), PATIENCE, || {
            let rejected = rejected()?;
            rejected.as_str().unwrap_or_default().contains(expected).then_some(rejected)
        })
    };
    assert_eq!(becomes(""), Value::Null);

    let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, free_port())).unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut proxy = edge_of(edge.port, &[("api", &api), ("web", &web)]);
    proxy["spec"]["backends"][1]["port"] = json!(port);
    edge.kubectl().ok_with("apply -f -", &format!("{}\n{proxy}", service("web", "localhost")));
    becomes(&format!("cannot bind '0.0.0.0:{port}': Address already in use"));
    assert_eq!(edge.who("api.example.com").as_deref(), Some("api"));

    // Something else changes, and is obeyed; what is refused is refused still.
    proxy["spec"]["backends"][0]["alternateHostnames"] = json!(["more.example.com"]);
    edge.kubectl().ok_with("apply -f -", &proxy.to_string());
    edge.becomes("more.example.com", Some("api"));
    becomes(&format!("edge-listener-{port}"));

    proxy["spec"]["backends"][1]["port"] = json!(edge.port);
    edge.kubectl().ok_with("apply -f -", &proxy.to_string());
    edge.becomes("web.example.com", Some("web"));
    wait_until("nothing is refused", PATIENCE, || (rejected()? == Value::Null).then_some(()));
}

#[test]
fn limits_of_clients_are_not_for_our_own_proofs() {
    let names = ["api", "dns", "web"];
    let servers = names.map(Backend::start);
    let backends: Vec<(&str, &Backend)> = names.into_iter().zip(&servers).collect();
    let port = free_port();
    let mut proxy = edge_of(port, &backends);
    proxy["spec"]["limits"] = json!({ "connectionsPerSecondPerSource": 1, "maxHalfOpen": 1 });
    let pod = ["--pod", "edge-1", "--pod-ip", &own_address().to_string()];
    let edge = Edge::start_of(Plane::Native, port, &with_services(&proxy, &backends), &pod);
    for tried in edge.wait_until_tried("web") {
        assert_eq!(tried["ready"], true, "{tried:#}");
    }
}

#[track_caller]
fn a_backend_that_is_full_is_well(plane: Plane) {
    let (api, web) = (Backend::start("api"), Backend::start("web"));
    let (port, both) = (free_port(), [("api", &api), ("web", &web)]);
    let documents = |backends: &[(&str, &Backend)]| {
        let mut proxy = edge_of(port, backends);
        proxy["spec"]["backends"][0]["maxConnections"] = json!(1);
        with_services(&proxy, backends)
    };
    let pod = ["--pod", "edge-1", "--pod-ip", &own_address().to_string()];
    let edge = Edge::start_of(plane, port, &documents(&both[..1]), &pod);
    let mut client = wait_until("the only place", PATIENCE, || super::try_open(edge.door(), "api.example.com")).0;
    // With the one that is new all are tried again.
    edge.kubectl().ok_with("apply -f -", &documents(&both));
    for tried in edge.wait_until_tried("web") {
        assert_eq!(tried["ready"], true, "{plane:?}: {tried:#}");
    }
    super::assert_carries(&mut client);
    assert_eq!(edge.who("api.example.com"), None, "it is full");
}

#[test]
fn a_backend_that_is_full_is_well_with_our_own_data_plane() {
    a_backend_that_is_full_is_well(Plane::Native);
}

#[test]
fn a_backend_that_is_full_is_well_with_an_envoy() {
    a_backend_that_is_full_is_well(Plane::Envoy);
}
