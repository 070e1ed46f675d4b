//! A pair in this process, servers behind it and clients in front, all on loopback and free ports.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use underpass_tunnel::client::{self, Client};
use underpass_tunnel::server::{self, Server};
use underpass_tunnel::{Caller, Listed, PairSecrets, Prepare, Prepared, ServerSeen};

/// Longer than anything here takes; a test that reaches it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(crate) struct Pair {
    pub(crate) secrets: PairSecrets,
    pub(crate) client: Client,
    pub(crate) server: Server,
    pub(crate) caller: Caller,
}

impl Pair {
    pub(crate) async fn start() -> Self {
        Self::start_at(HERE).await
    }

    /// Everything of the client half is at this address. For tests that want a certain port: others cannot be given it there.
    pub(crate) async fn start_at(ip: IpAddr) -> Self {
        Self::start_with(client::Settings { ip, ..client_settings() }, u32::MAX).await
    }

    /// The server half can carry so many connections.
    pub(crate) async fn start_with(settings: client::Settings, connections: u32) -> Self {
        Self::start_of(settings, |settings| server::Settings { connections, ..settings }).await
    }

    /// The server half finds names in this way.
    pub(crate) async fn start_looking_up(lookup: server::Lookup) -> Self {
        Self::start_of(client_settings(), |settings| server::Settings { lookup, ..settings }).await
    }

    async fn start_of(
        settings: client::Settings,
        of_server: impl FnOnce(server::Settings) -> server::Settings,
    ) -> Self {
        let secrets = PairSecrets::generate().unwrap();
        let client = Client::start(&secrets.client, settings).await.unwrap();
        let settings = of_server(server_settings(&client));
        let server = Server::start(&secrets.server, settings).await.unwrap();
        let caller = Caller::new(server.control_address(), &secrets.caller).unwrap();
        Self { secrets, client, server, caller }
    }

    pub(crate) async fn prepare(&self, number: u32, server: SocketAddr) -> Prepared {
        self.caller.prepare(tunnel(number, server)).await.unwrap()
    }

    /// A tunnel, and one client of it.
    pub(crate) async fn connect(&self, number: u32, server: SocketAddr) -> TcpStream {
        let port = self.prepare(number, server).await.port;
        connect(port).await
    }

    pub(crate) async fn list(&self) -> Listed {
        self.caller.list().await.unwrap()
    }

    /// Streams of a tunnel that are open, as the server half sees them.
    pub(crate) async fn active(&self, number: u32) -> u32 {
        let listed = self.list().await;
        listed.tunnels.iter().find(|tunnel| tunnel.asked.number == number).unwrap().active
    }

    /// What the server half knows of the server of its first tunnel.
    pub(crate) async fn server_seen(&self) -> ServerSeen {
        self.list().await.tunnels.remove(0).server
    }

    pub(crate) async fn stop(self) {
        self.server.stop().await;
        self.client.stop().await;
    }
}

pub(crate) fn client_settings() -> client::Settings {
    let defaults = client::Settings::default();
    client::Settings { ip: HERE, control_port: 0, data_port: 0, workers: 2, ..defaults }
}

pub(crate) async fn client(secrets: &PairSecrets) -> Client {
    Client::start(&secrets.client, client_settings()).await.unwrap()
}

pub(crate) fn server_settings(client: &Client) -> server::Settings {
    let settings = server::Settings::new(vec![client.control_address()], vec![client.data_address()]);
    server::Settings { workers: 2, ..settings }
}

pub(crate) async fn server(secrets: &PairSecrets, client: &Client) -> Server {
    Server::start(&secrets.server, server_settings(client)).await.unwrap()
}

pub(crate) fn tunnel(number: u32, server: SocketAddr) -> Prepare {
    Prepare::new(number, server.ip().to_string(), server.port())
}

pub(crate) async fn connect(port: u16) -> TcpStream {
    connect_at(HERE, port).await
}

pub(crate) async fn connect_at(ip: IpAddr, port: u16) -> TcpStream {
    within(TcpStream::connect((ip, port))).await.unwrap()
}

pub(crate) async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((HERE, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// An address at which nobody listens.
pub(crate) async fn nobody() -> SocketAddr {
    listener().await.1
}

/// Sends back what it gets, each connection until its end, and passes the end on.
pub(crate) async fn echo_server() -> SocketAddr {
    let (listener, address) = listener().await;
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let (mut reader, mut writer) = stream.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
                let _ = writer.shutdown().await;
            });
        }
    });
    address
}

/// Says its name to everybody, first.
pub(crate) async fn naming_server(name: &'static str) -> SocketAddr {
    let (listener, address) = listener().await;
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let _ = stream.write_all(name.as_bytes()).await;
                let _ = stream.read(&mut [0; 1]).await;
            });
        }
    });
    address
}

pub(crate) async fn exchange(stream: &mut TcpStream, text: &str) {
    within(stream.write_all(text.as_bytes())).await.unwrap();
    assert_eq!(receive(stream, text.len()).await, text);
}

pub(crate) async fn receive(stream: &mut TcpStream, length: usize) -> String {
    let mut bytes = vec![0; length];
    within(stream.read_exact(&mut bytes)).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Whether a client of this port is torn down: perhaps before it knows that it was connected.
pub(crate) async fn is_reset(port: u16) -> bool {
    match within(TcpStream::connect((HERE, port))).await {
        Ok(mut stream) => ends_by_reset(&mut stream).await,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// Reads until the other end is over: true when it was torn down instead.
pub(crate) async fn ends_by_reset(stream: &mut TcpStream) -> bool {
    within(stream.read_to_end(&mut Vec::new())).await.is_err()
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it takes too long")
}

pub(crate) async fn wait_until<F: Future<Output = bool>>(mut holds: impl FnMut() -> F, what: &str) {
    let waiting = async {
        while !holds().await {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("waited in vain until {what}"));
}
