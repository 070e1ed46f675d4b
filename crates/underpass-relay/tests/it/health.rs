//! Active checks against real servers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};
use tokio::runtime::Runtime;
use underpass_relay::{Endpoint, HealthChecks, Relay, Settings};
use underpass_tables::{CheckKind, HealthCheck, ProxyHeader, RelayTable, Route, RouteId};

use crate::rig::{PATIENCE, loopback, nobody, wait_until};

const TLS_HANDSHAKE: u8 = 22;

struct Checked {
    relay: Relay,
    checks: HealthChecks,
    runtime: Runtime,
    generation: u64,
}

impl Checked {
    fn start() -> Self {
        let settings = Settings::default();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self { relay: Relay::start(settings).unwrap(), checks: HealthChecks::default(), runtime, generation: 0 }
    }

    fn follow(&mut self, route: Route) {
        self.generation += 1;
        self.relay.apply(table(self.generation, route)).unwrap();
        let _guard = self.runtime.enter();
        self.checks.follow(&self.relay.live());
    }

    fn endpoint(&self, index: usize) -> Arc<Endpoint> {
        self.relay.live().routes[0].endpoints[index].clone()
    }

    /// Who answers a connection through the relay.
    fn answer(&self) -> String {
        let mut client = TcpStream::connect(self.relay.live().listeners[0].address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(b"?").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }
}

fn table(generation: u64, route: Route) -> RelayTable {
    let mut table = RelayTable { generation, ..crate::rig::table(vec![route]) };
    table.listeners[0].rules.plain = Some(RouteId(0));
    table
}

fn route(endpoints: &[SocketAddr], kind: CheckKind) -> Route {
    let check = HealthCheck {
        kind,
        interval: Duration::from_millis(20),
        timeout: Duration::from_secs(5),
        unhealthy_after: 3,
        healthy_after: 2,
    };
    Route { health_check: Some(check), ..crate::rig::route("a", endpoints) }
}

fn tls() -> CheckKind {
    CheckKind::Tls { server_name: "api.example.com".into() }
}

fn server_config() -> Arc<ServerConfig> {
    let made = rcgen::generate_simple_self_signed(["somebody.else.example".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    Arc::new(config)
}

/// Answers plain bytes with its name; completes TLS handshakes only if it can.
struct Server {
    address: SocketAddr,
    handshakes: Arc<AtomicU32>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

struct Seen {
    server_name: Option<String>,
    /// What came before the hello.
    header: Vec<u8>,
}

impl Server {
    fn start(name: &'static str, config: Option<Arc<ServerConfig>>, header: usize) -> Self {
        let listener = TcpListener::bind(loopback()).unwrap();
        let server = Self { address: listener.local_addr().unwrap(), handshakes: Arc::default(), seen: Arc::default() };
        let (handshakes, seen) = (server.handshakes.clone(), server.seen.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let mut client = client.unwrap();
                let mut before = vec![0; header];
                let mut first = [0];
                if client.read_exact(&mut before).is_err() || client.peek(&mut first).unwrap_or(0) == 0 {
                    continue;
                }
                if first[0] != TLS_HANDSHAKE {
                    let _ = client.read(&mut first);
                    let _ = client.write_all(name.as_bytes());
                } else if let Some(config) = &config {
                    let mut session = ServerConnection::new(config.clone()).unwrap();
                    while session.is_handshaking() && session.complete_io(&mut client).is_ok() {}
                    let server_name = session.server_name().map(str::to_owned);
                    seen.lock().push(Seen { server_name, header: before });
                    handshakes.fetch_add(u32::from(!session.is_handshaking()), Relaxed);
                }
            }
        });
        server
    }
}

#[test]
fn an_endpoint_goes_and_comes_back() {
    let listener = TcpListener::bind(loopback()).unwrap();
    let address = listener.local_addr().unwrap();
    let mut checked = Checked::start();
    checked.follow(route(&[address], CheckKind::Tcp));
    let endpoint = checked.endpoint(0);
    assert!(endpoint.passes_checks.load(Relaxed), "nothing is held against what was not checked");
    wait_until(|| endpoint.checked.load(Relaxed), "it was checked");
    assert!(endpoint.passes_checks.load(Relaxed));
    drop(listener);
    wait_until(|| !endpoint.passes_checks.load(Relaxed), "it fails");
    assert!(!endpoint.usable(checked.relay.now_ms()));
    let _back = TcpListener::bind(address).unwrap();
    wait_until(|| endpoint.passes_checks.load(Relaxed), "it passes again");
}

#[test]
fn a_handshake_has_to_be_completed_and_connections_avoid_who_cannot() {
    let good = Server::start("good", Some(server_config()), 0);
    let bad = Server::start("bad", None, 0);
    let mut checked = Checked::start();
    checked.follow(route(&[good.address, bad.address], tls()));
    let (first, second) = (checked.endpoint(0), checked.endpoint(1));
    wait_until(|| !second.passes_checks.load(Relaxed), "the bad one fails");
    wait_until(|| first.checked.load(Relaxed), "the good one was checked");
    assert!(first.passes_checks.load(Relaxed), "whose certificate it is does not matter");
    for _ in 0..6 {
        assert_eq!(checked.answer(), "good");
    }
    assert_eq!(good.seen.lock()[0].server_name.as_deref(), Some("api.example.com"));
}

#[test]
fn checks_speak_the_proxy_protocol_where_the_endpoint_expects_it() {
    const LOCAL: usize = 16;
    let server = Server::start("behind", Some(server_config()), LOCAL);
    let mut checked = Checked::start();
    checked.follow(Route { proxy_header: Some(ProxyHeader::V2), ..route(&[server.address], tls()) });
    wait_until(|| server.handshakes.load(Relaxed) > 0, "a handshake was completed");
    let seen = server.seen.lock();
    assert!(seen[0].header.starts_with(b"\r\n\r\n\0\r\nQUIT\n\x20"), "{:?}", seen[0].header);
}

#[test]
fn checks_follow_the_table() {
    let nobody = nobody();
    let other = TcpListener::bind(loopback()).unwrap();
    let mut checked = Checked::start();
    checked.follow(route(&[nobody], CheckKind::Tcp));
    let endpoint = checked.endpoint(0);
    wait_until(|| !endpoint.passes_checks.load(Relaxed), "it fails");
    // Another endpoint joins: the verdict about the first one stays.
    checked.follow(route(&[nobody, other.local_addr().unwrap()], CheckKind::Tcp));
    assert!(!endpoint.passes_checks.load(Relaxed));
    let position = checked.relay.live().routes[0].endpoints.iter().position(|one| one.address != nobody).unwrap();
    let joined = checked.endpoint(position);
    wait_until(|| joined.checked.load(Relaxed), "the new one was checked");
    assert!(joined.passes_checks.load(Relaxed));
    // Nobody checks any more: nothing is held against it.
    checked.follow(Route { health_check: None, ..route(&[nobody], CheckKind::Tcp) });
    assert!(endpoint.passes_checks.load(Relaxed) && !endpoint.checked.load(Relaxed));
}
