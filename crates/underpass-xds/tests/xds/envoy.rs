//! What a real Envoy makes of it: by its own counters, and by connections that cross it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use underpass_plan::proxy_server::Bootstrap;
use underpass_tables::{CheckKind, Expects, HealthCheck, Listener, RelayTable, Route, RouteId, Rules, Transport};
use underpass_testbed::hello::Hello;
use underpass_testbed::{Envoy, PATIENCE, wait_until};

use crate::{NODE, Site};

/// By what an Envoy is told: everything of a kind at once, or changes to it.
const WORLD: &str = "GRPC";
pub(crate) const CHANGES: &str = "DELTA_GRPC";

/// It looks through all that it counts for every question about it, and with thousands of backends that takes seconds.
const COUNTED: [&str; 4] = ["cluster_manager.", "listener_manager.", "control_plane.", "cluster.xds_cluster."];

/// An Envoy, and what it leads to.
pub(crate) struct Edge {
    pub(crate) envoy: Envoy,
    server: SocketAddr,
    _folder: TempDir,
}

impl Edge {
    pub(crate) fn start(site: &Site, api_type: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let admin = ([127, 0, 0, 1], 0).into();
        let mut bootstrap = Bootstrap {
            node: NODE,
            xds_port: site.address.port(),
            admin,
            only_by_loopback: false,
            max_connections: None,
        }
        .to_json();
        bootstrap["dynamic_resources"]["ads_config"]["api_type"] = api_type.into();
        bootstrap["stats_config"]["stats_matcher"]["inclusion_list"]["patterns"] = COUNTED
            .map(|prefix| serde_json::json!({ "prefix": prefix }))
            .into_iter()
            .chain([serde_json::json!({ "suffix": ".update_success" })])
            .collect();
        let path = folder.path().join("bootstrap.json");
        std::fs::write(&path, bootstrap.to_string()).unwrap();
        Self { envoy: Envoy::start(&path), server: server(), _folder: folder }
    }

    /// So many backends, of which each leads to the server under its own name.
    pub(crate) fn table(&self, backends: usize) -> RelayTable {
        let (mut routes, mut rules) = (Vec::new(), Rules::default());
        for number in 0..backends {
            let name = name(number);
            rules.add_name(&hostname(number), RouteId(number)).unwrap();
            routes.push(Arc::new(Route::new(name.as_str(), format!("ns/{name}"), vec![self.server])));
        }
        let listener = Listener {
            name: "edge-listener".into(),
            address: ([127, 0, 0, 1], 0).into(),
            transport: Transport::Stream,
            proxy_header: false,
            expects: Expects::Hello,
            rules,
        };
        RelayTable { routes, listeners: vec![listener], ..RelayTable::default() }
    }

    /// Where it listens; it chose the port itself.
    fn door(&self) -> Option<SocketAddr> {
        let listeners = self.envoy.json("/listeners?format=json");
        let socket = &listeners["listener_statuses"][0]["local_address"]["socket_address"];
        Some(([127, 0, 0, 1], socket["port_value"].as_u64()?.try_into().unwrap()).into())
    }

    fn serves(&self, number: usize) -> bool {
        self.door().is_some_and(|door| asked(door, number).is_some())
    }

    fn becomes(&self, number: usize) {
        // Ten thousand of them take a busy machine a while.
        wait_until(&format!("an answer for {}", name(number)), PATIENCE * 3, || self.serves(number).then_some(()));
    }

    fn stat(&self, name: &str) -> u64 {
        self.envoy.stat(name).unwrap_or_else(|| panic!("Envoy does not count {name}"))
    }

    /// What it was told until now: clusters, listeners, and the endpoints of these backends, by its own count.
    fn told(&self, numbers: [usize; 2]) -> [u64; 4] {
        let [one, other] = numbers.map(|number| self.stat(&format!("cluster.{}.update_success", name(number))));
        [self.stat("cluster_manager.cds.update_success"), self.stat("listener_manager.lds.update_success"), one, other]
    }

    fn bytes_heard(&self) -> u64 {
        self.stat("cluster.xds_cluster.upstream_cx_rx_bytes_total")
    }

    fn is_connected(&self) -> bool {
        self.stat("control_plane.connected_state") == 1
    }
}

/// Says something to whoever says something.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            std::thread::spawn(move || {
                while matches!(client.read(&mut [0; 4096]), Ok(1..)) && client.write_all(b"yes").is_ok() {}
            });
        }
    });
    address
}

fn name(number: usize) -> String {
    format!("backend-{number:05}")
}

fn hostname(number: usize) -> String {
    format!("{}.example.com", name(number))
}

/// A connection that was answered.
fn asked(door: SocketAddr, number: usize) -> Option<TcpStream> {
    let mut client = TcpStream::connect(door).ok()?;
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(&Hello::to(&hostname(number)).bytes()).ok()?;
    let mut answer = [0; 3];
    client.read_exact(&mut answer).ok()?;
    (answer == *b"yes").then_some(client)
}

fn carries(client: &mut TcpStream) -> bool {
    client.write_all(b"still?").is_ok() && client.read_exact(&mut [0; 3]).is_ok()
}

/// With a server name for its check that is longer than a name can be, which Envoy finds out by itself.
fn refused_by_envoy(route: &Arc<Route>) -> Arc<Route> {
    let check = HealthCheck {
        kind: CheckKind::Tls { server_name: "x".repeat(256) },
        interval: Duration::from_secs(60),
        timeout: Duration::from_secs(1),
        unhealthy_after: 1,
        healthy_after: 1,
    };
    Arc::new(Route { health_check: Some(check), ..(**route).clone() })
}

/// An Envoy has so many backends. What tells it is gone and another comes: it serves on meanwhile, is told nothing of what it knows, and then
/// the one thing that changes.
#[allow(clippy::print_stdout, reason = "how long it took, and what it cost, is for whoever looks")]
async fn outlives_what_tells_it(api_type: &str, backends: usize) {
    let mut site = Site::empty().await;
    let edge = Edge::start(&site, api_type);
    let mut table = edge.table(backends);
    let begun = Instant::now();
    site.put(&table);
    let (first, last) = (0, backends - 1);
    edge.becomes(last);
    println!("{api_type}: {backends} backends in {:?}, {} bytes", begun.elapsed(), edge.bytes_heard());
    let mut connection = asked(edge.door().unwrap(), first).unwrap();
    let (told, heard, address) = (edge.told([first, last]), edge.bytes_heard(), site.address);

    drop(site);
    wait_until("the end of what tells it", PATIENCE, || (!edge.is_connected()).then_some(()));
    assert!(edge.serves(first) && edge.serves(last) && carries(&mut connection));

    let mut site = Site::at(address).await;
    site.put(&table);
    let endpoints = site.publisher.newest().unwrap().endpoints.version.clone();
    let settled = || site.reports.of(NODE)?.endpoints.accepted.filter(|version| *version == endpoints);
    wait_until("its successor to know that it knows everything", PATIENCE, settled);
    table.routes[last] = Arc::new(Route { endpoints: vec![server().into()], ..(*table.routes[last]).clone() });
    site.put(&table);
    let [clusters, listeners, of_first, of_last] = told;
    wait_until("the change", PATIENCE, || (edge.told([first, last])[3] > of_last).then_some(()));
    assert_eq!(edge.told([first, last]), [clusters, listeners, of_first, of_last + 1], "{api_type}");
    let news = edge.bytes_heard() - heard;
    println!("{api_type}: {news} bytes from its successor");
    assert!(news < 4096, "{api_type}: {news} bytes");
    assert!(edge.serves(last) && carries(&mut connection));
    assert_eq!(edge.stat("cluster_manager.cluster_modified"), 0);
    assert_eq!(site.reports.of(NODE).unwrap().refusal(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_outlives_what_tells_it_of_the_world() {
    outlives_what_tells_it(WORLD, 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_outlives_what_tells_it_of_changes() {
    outlives_what_tells_it(CHANGES, 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_backends_are_told_once() {
    outlives_what_tells_it(CHANGES, 10_000).await;
}

/// A cluster changes while nobody tells it, and its endpoints do not: it takes the cluster and does not wait for endpoints that it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_changed_while_nobody_told_it_comes_into_force() {
    for api_type in [WORLD, CHANGES] {
        let mut site = Site::empty().await;
        let edge = Edge::start(&site, api_type);
        let mut table = edge.table(2);
        site.put(&table);
        edge.becomes(1);
        let address = site.address;
        drop(site);
        wait_until("the end of what tells it", PATIENCE, || (!edge.is_connected()).then_some(()));
        table.routes[1] = Arc::new(Route { connect_timeout: Duration::from_secs(7), ..(*table.routes[1]).clone() });
        let mut site = Site::at(address).await;
        site.put(&table);
        let is_taken = || edge.stat("cluster_manager.cluster_modified") == 1;
        wait_until("the change", PATIENCE, || is_taken().then_some(()));
        let is_in_force = || edge.stat("cluster_manager.warming_clusters") == 0;
        wait_until(&format!("{api_type}: the change to be in force"), PATIENCE, || is_in_force().then_some(()));
        assert!(edge.serves(0) && edge.serves(1), "{api_type}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_it_refuses_among_a_thousand_is_named_and_the_others_are_served() {
    const BAD: usize = 500;
    let mut site = Site::empty().await;
    let edge = Edge::start(&site, CHANGES);
    let mut table = edge.table(1000);
    let good = table.routes[BAD].clone();
    table.routes[BAD] = refused_by_envoy(&good);
    site.put(&table);
    edge.becomes(0);
    let door = edge.door().unwrap();
    for number in 0..1000 {
        assert_eq!(asked(door, number).is_some(), number != BAD, "{}", name(number));
    }
    let refusal = || site.reports.of(NODE).unwrap().refusal().map(str::to_owned);
    let said = refusal().unwrap();
    assert!(said.contains(&name(BAD)) && !said.contains(&name(BAD - 1)), "{said}");
    assert!(said.contains("length must be at most 255 bytes"), "{said}");

    table.routes[7] = Arc::new(Route { connect_timeout: Duration::from_secs(7), ..(*table.routes[7]).clone() });
    site.put(&table);
    wait_until("another change", PATIENCE, || (edge.stat("cluster_manager.cluster_modified") == 1).then_some(()));
    let refusal = || site.reports.of(NODE).unwrap().refusal().map(str::to_owned);
    wait_until("both to be answered", PATIENCE, || refusal().filter(|said| said.contains(&name(BAD))));

    table.routes[BAD] = good;
    site.put(&table);
    edge.becomes(BAD);
    let taken = || site.reports.of(NODE).unwrap().runs(&site.publisher.newest().unwrap());
    wait_until("nothing to be refused", PATIENCE, || taken().then_some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_it_refuses_leaves_what_was_in_force() {
    for api_type in [WORLD, CHANGES] {
        let mut site = Site::empty().await;
        let edge = Edge::start(&site, api_type);
        let mut table = edge.table(2);
        site.put(&table);
        edge.becomes(0);
        let mut connection = asked(edge.door().unwrap(), 0).unwrap();
        table.routes[0] = refused_by_envoy(&table.routes[0]);
        site.put(&table);
        let refusal = wait_until("a refusal", PATIENCE, || site.reports.of(NODE)?.refusal().map(str::to_owned));
        assert!(refusal.contains(&name(0)), "{refusal}");
        assert!(edge.serves(0) && edge.serves(1) && carries(&mut connection), "{api_type}");
    }
}
