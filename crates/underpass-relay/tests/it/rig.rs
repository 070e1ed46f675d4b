//! A relay in this process, with servers behind it and clients in front, all on loopback and free ports.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use underpass_relay::{End, Relay, Settings};
use underpass_tables::{Expects, Listener, RelayTable, Route, RouteId, Rules, Transport};

/// Longer than anything here takes; a test that reaches it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Rig {
    pub(crate) relay: Relay,
    pub(crate) address: SocketAddr,
}

impl Rig {
    /// Two workers and this table, in which the first listener's port may be 0.
    pub(crate) fn start(table: RelayTable) -> Self {
        Self::start_with(Settings { workers: 2, ..Settings::default() }, table)
    }

    pub(crate) fn start_with(settings: Settings, table: RelayTable) -> Self {
        let relay = Relay::start(settings).unwrap();
        assert_eq!(relay.apply(table).unwrap(), []);
        let address = relay.live().listeners[0].address;
        Self { relay, address }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Connects and asks for a name.
    pub(crate) fn ask(&self, name: &str) -> TcpStream {
        let mut stream = self.connect();
        stream.write_all(&hello(name)).unwrap();
        stream
    }

    /// Waits until so many connections of the first listener have ended this way.
    pub(crate) fn wait_for(&self, end: End, count: u64) {
        let seen = || self.relay.live().listeners[0].stats.count(end);
        wait_until(|| seen() >= count, &format!("{count} connections end by {end:?}"));
        assert_eq!(seen(), count);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.relay.drain(Duration::ZERO);
    }
}

pub(crate) fn wait_until(mut holds: impl FnMut() -> bool, what: &str) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn route(name: &str, endpoints: &[SocketAddr]) -> Route {
    let target = format!("default/{name}:443");
    Route { connect_timeout: Duration::from_secs(5), ..Route::new(name, target, endpoints.to_vec()) }
}

/// One listener; each route has the name `<route>.example.com`.
pub(crate) fn table(routes: Vec<Route>) -> RelayTable {
    let mut rules = Rules::default();
    for (index, route) in routes.iter().enumerate() {
        rules.add_name(&format!("{}.example.com", route.name), RouteId(index)).unwrap();
    }
    RelayTable {
        generation: 1,
        listeners: vec![Listener {
            name: "test-listener".into(),
            address: loopback(),
            transport: Transport::Stream,
            proxy_header: false,
            expects: Expects::Hello,
            rules,
        }],
        routes: routes.into_iter().map(Arc::new).collect(),
        drain: Duration::from_secs(30),
        ..RelayTable::default()
    }
}

/// One route that also takes plain bytes.
pub(crate) fn plain_table(endpoint: SocketAddr) -> RelayTable {
    let mut table = table(vec![route("a", &[endpoint])]);
    table.listeners[0].rules.plain = Some(RouteId(0));
    table
}

/// A ClientHello with this server name, as small as they get.
pub(crate) fn hello(name: &str) -> Vec<u8> {
    let length = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap().to_be_bytes();
    let host = [&[0][..], &length(name.as_bytes()), name.as_bytes()].concat();
    let list = [&length(&host)[..], &host].concat();
    let extension = [&[0, 0][..], &length(&list), &list].concat();
    let body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 0x01], &[1, 0], &length(&extension), &extension].concat();
    let message = [&[1, 0][..], &length(&body), &body].concat();
    [&[22, 3, 1][..], &length(&message), &message].concat()
}

/// Any port, at an address of this process's own: a container engine that runs on this machine may still send what arrives at a port of
/// 127.0.0.1 to the container that had published it.
pub(crate) fn loopback() -> SocketAddr {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, a + 1, b, c.max(1)], 0))
}

pub(crate) fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(loopback()).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// An address at which nobody listens.
pub(crate) fn nobody() -> SocketAddr {
    listener().1
}

pub(crate) fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let mut accepted = None;
    wait_until(
        || {
            accepted = listener.accept().ok();
            accepted.is_some()
        },
        "somebody connects",
    );
    let (stream, _) = accepted.unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Echoes what it gets, each connection until its end, and passes the end on.
pub(crate) fn echo_server() -> SocketAddr {
    let (listener, address) = listener();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut buffer = vec![0; 64 * 1024];
                while let Ok(read) = stream.read(&mut buffer) {
                    if read == 0 || stream.write_all(&buffer[..read]).is_err() {
                        break;
                    }
                }
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

pub(crate) fn read_exactly(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

pub(crate) fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Whether the stream ends with a reset, whatever comes before.
pub(crate) fn is_reset(stream: &mut TcpStream) -> bool {
    let mut bytes = Vec::new();
    matches!(stream.read_to_end(&mut bytes), Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset)
}

/// Makes the close of this stream a reset.
pub(crate) fn reset(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
}
