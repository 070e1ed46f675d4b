//! `underpass proxy` as its users run it: a file, backends behind, clients in front, signals and the admin port.

mod admin;
mod backends;
mod cluster;
mod ending;
mod endpoints;
mod envoy;
mod explain;
mod fidelity;
mod files;
mod guide;
mod logging;
mod networks;
mod plane;
mod resources;
mod routing;
mod site;
mod sources;
mod starting;
mod upgrading;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use serde_json::Value;
use underpass_testbed::{Launch, PATIENCE, Process, wait_until};

use crate::{BINARY, assert_contains};
use site::Site;

/// Every test has a loopback address of its own, so that ports can be the same and known beforehand.
fn own_address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high, low, NEXT.fetch_add(1, Relaxed))
}

/// A proxy that is ready.
struct Proxy {
    process: Process,
    admin: SocketAddr,
    listeners: Vec<SocketAddr>,
    _home: tempfile::TempDir,
}

impl Proxy {
    #[track_caller]
    fn start(site: &Site) -> Self {
        Self::start_with(site, &[])
    }

    #[track_caller]
    fn start_with(site: &Site, arguments: &[&str]) -> Self {
        Self::start_at(site, "127.0.0.1:0", arguments)
    }

    #[track_caller]
    fn start_at(site: &Site, admin: &str, arguments: &[&str]) -> Self {
        let launch = launch_at(site, admin).arg("--output").arg("json");
        let (mut process, home) = arguments.iter().fold(launch, Launch::arg).spawn();
        // One that takes over serves at once: there may be lines about connections before it.
        let ready = process.wait_for_stdout("the ready line", |text| {
            let mut said = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            said.find(|said| said["pid"].is_number())
        });
        let address = |value: &Value| value.as_str().unwrap().parse().unwrap();
        assert_eq!(ready["pid"], process.pid());
        let listeners = ready["listeners"].as_array().unwrap().iter().map(address).collect();
        Self { process, admin: address(&ready["admin"]), listeners, _home: home }
    }

    fn page(&self, path: &str) -> String {
        let (status, body) = get(self.admin, path).unwrap();
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    fn config(&self) -> Value {
        serde_json::from_str(&self.page("/config_dump")).unwrap()
    }

    /// Waits until it listens there.
    #[track_caller]
    fn wait_for_listener(&self, address: SocketAddr) {
        wait_until(&format!("a listener at {address}"), PATIENCE, || {
            self.page("/listeners").contains(&address.to_string()).then_some(())
        });
    }

    /// Waits until the file was read and applied so many times.
    #[track_caller]
    fn wait_for_generation(&self, generation: u64) {
        wait_until(&format!("generation {generation}"), PATIENCE, || {
            (self.config()["generation"] == generation).then_some(())
        });
    }
}

fn launch(site: &Site) -> Launch {
    launch_at(site, "127.0.0.1:0")
}

fn launch_at(site: &Site, admin: &str) -> Launch {
    Launch::command(BINARY, "proxy").file(&site.file()).arg("--admin").arg(admin).arg("--workers").arg("2")
}

fn get(admin: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    let mut client = connect(admin)?;
    write!(client, "GET {path} HTTP/1.0\r\nHost: {admin}\r\n\r\n")?;
    let mut answer = String::new();
    client.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or_default();
    Ok((status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()))
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let client = TcpStream::connect(address)?;
    client.set_read_timeout(Some(PATIENCE))?;
    Ok(client)
}

/// A server that reads the first bytes of a connection, says its name, and then echoes.
struct Backend {
    address: SocketAddr,
}

impl Backend {
    fn start(name: &'static str) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), name)
    }

    fn start_at(address: SocketAddr, name: &'static str) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                std::thread::spawn(move || serve(client.unwrap(), name));
            }
        });
        Self { address }
    }
}

fn serve(mut client: TcpStream, name: &str) {
    let mut buffer = [0; 4096];
    if !matches!(client.read(&mut buffer), Ok(1..)) || client.write_all(name.as_bytes()).is_err() {
        return;
    }
    while let Ok(count @ 1..) = client.read(&mut buffer) {
        if client.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

/// The hello that a TLS library sends for a name, or for an address, which means for none.
fn hello(name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut session = ClientConnection::new(Arc::new(config), ServerName::try_from(name.to_owned()).unwrap()).unwrap();
    let mut bytes = Vec::new();
    session.write_tls(&mut bytes).unwrap();
    bytes
}

/// A connection that asked for a name and was told who answers.
#[track_caller]
fn open(address: SocketAddr, name: &str, expected: &str) -> TcpStream {
    let mut client = connect(address).unwrap();
    client.write_all(&hello(name)).unwrap();
    let mut answer = vec![0; expected.len()];
    client.read_exact(&mut answer).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(String::from_utf8_lossy(&answer), expected, "{name}");
    client
}

/// Who answers for a name; or the number of the TLS alert.
fn who(address: SocketAddr, name: &str) -> Result<String, u8> {
    let mut client = connect(address).unwrap();
    client.write_all(&hello(name)).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    match answer[..] {
        [21, 3, _, 0, 2, 2, alert] => Err(alert),
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
}

/// Who answers for a name, whatever carries it; None: nobody.
fn answer(door: SocketAddr, name: &str) -> Option<String> {
    try_open(door, name).map(|(_, answer)| answer)
}

/// A connection that asked for a name, and who has answered.
fn try_open(door: SocketAddr, name: &str) -> Option<(TcpStream, String)> {
    let mut client = connect(door).ok()?;
    client.write_all(&hello(name)).ok()?;
    let mut answer = [0; 64];
    let count = client.read(&mut answer).ok().filter(|count| *count > 0)?;
    // A TLS alert is no answer.
    (answer[0] != 21).then(|| (client, String::from_utf8_lossy(&answer[..count]).into_owned()))
}

/// Waits until a name is answered like this: workers take a new table one after the other.
#[track_caller]
fn becomes(address: SocketAddr, name: &str, expected: Result<&str, u8>) {
    wait_until(&format!("{expected:?} for {name}"), PATIENCE, || {
        (who(address, name).as_deref() == expected.as_deref()).then_some(())
    });
}

/// That an open connection still carries.
#[track_caller]
fn assert_carries(client: &mut TcpStream) {
    assert!(carries(client));
}

/// Whether it does, or has been cut.
#[track_caller]
fn carries(client: &mut TcpStream) -> bool {
    const QUESTION: &[u8; 12] = b"still there?";
    let mut answer = [0; QUESTION.len()];
    match client.write_all(QUESTION).and_then(|()| client.read_exact(&mut answer)) {
        Ok(()) => assert_eq!(&answer, QUESTION),
        Err(error) => assert_ne!(error.kind(), ErrorKind::WouldBlock, "nobody says anything"),
    }
    answer == *QUESTION
}
