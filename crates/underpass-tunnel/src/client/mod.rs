//! The client half: it listens for the tunnels' clients, and for the server half, which brings the connections that carry them.

mod flows;
mod shelf;
mod tunnels;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::info;
use underpass_relay::{Relay, RelayError, Stock};

use crate::capacity;
use crate::control::{Answers, Door};
use crate::crowd::Crowd;
use crate::datagrams;
use crate::handshake::{Kind, Prover};
use crate::messages::{ClientRequest, ClientSeen, Probed, Unasked, Want};
use crate::refusals::{Refusals, Why};
use crate::secrets::ClientSecrets;
use crate::tls::{self, TlsError};
use crate::{CONTROL_PORT, DATA_PORT};

use flows::Ground;
use shelf::Shelf;
use tunnels::{ListenError, PROBE_LISTENER, Tunnels};

/// Data connections in the middle of their handshake.
const MOST_HALF_OPEN: usize = 256;
/// The server half pings more often than that.
const SILENCE: Duration = Duration::from_secs(45);
const PROBE_DEADLINE: Duration = Duration::from_secs(5);
/// Wishes that nobody has read yet.
const WANTS: usize = 64;
/// How long to wait when the system has no descriptors left.
const PAUSE: Duration = Duration::from_millis(50);

/// How a client half runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where everything listens.
    pub ip: IpAddr,
    pub control_port: u16,
    pub data_port: u16,
    pub workers: usize,
    /// Streams and flows that may be open at a time.
    pub connections: u32,
    /// How long a flow of datagrams may be silent.
    pub flow_idle: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let workers = crate::workers();
        let (control_port, data_port) = (CONTROL_PORT, DATA_PORT);
        let connections = capacity::by_descriptors(workers);
        Self { ip: everywhere(), control_port, data_port, workers, connections, flow_idle: datagrams::IDLE }
    }
}

/// Why a client half cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Secrets(#[from] TlsError),
    #[error("port {port} cannot be listened on for {purpose}")]
    Bind { port: u16, purpose: &'static str, source: io::Error },
    #[error("the relay cannot be started")]
    Relay(#[from] RelayError),
    #[error("the port for probes cannot be listened on: {0}")]
    Probe(String),
}

/// A running client half.
pub struct Client {
    control: SocketAddr,
    data: SocketAddr,
    half: Arc<Half>,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

struct Half {
    tunnels: Tunnels,
    stock: Arc<Stock>,
    shelf: Arc<Shelf>,
    prover: Prover,
    refusals: Arc<Refusals>,
}

impl Client {
    pub async fn start(secrets: &ClientSecrets, settings: Settings) -> Result<Self, ClientError> {
        let acceptor = tls::acceptor(&secrets.identity)?;
        let control = bind(settings.ip, settings.control_port, "control connections").await?;
        let data = bind(settings.ip, settings.data_port, "data connections").await?;
        // Accepted connections inherit both: the relay decides what is sent together, and one may stand ready for days.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&data, true);
        let _ = rustix::net::sockopt::set_socket_keepalive(&data, true);
        let (unasked, _) = broadcast::channel(WANTS);
        let half = Arc::new(Half::start(secrets, &settings, &unasked).await?);
        let stop = CancellationToken::new();
        let (refusals, silence) = (half.refusals.clone(), Some(SILENCE));
        let (control_address, data_address) = (address(&control)?, address(&data)?);
        let door = Door { acceptor, answers: half.clone(), unasked, refusals, silence, stop: stop.clone() };
        let tasks = vec![
            tokio::spawn(door.serve(control)),
            tokio::spawn({
                let (half, stop) = (half.clone(), stop.clone());
                async move {
                    stop.run_until_cancelled(half.accept(data)).await;
                }
            }),
        ];
        info!(control = %control_address, data = %data_address, "the client half listens");
        Ok(Self { control: control_address, data: data_address, half, stop, tasks })
    }

    pub fn control_address(&self) -> SocketAddr {
        self.control
    }

    pub fn data_address(&self) -> SocketAddr {
        self.data
    }

    /// Ends everything; streams are cut.
    pub async fn stop(self) {
        self.stop.cancel();
        for task in self.tasks {
            // A task that panicked has ended too.
            let _ = task.await;
        }
        self.half.tunnels.stop().await;
    }
}

impl Half {
    async fn start(
        secrets: &ClientSecrets,
        settings: &Settings,
        unasked: &broadcast::Sender<Unasked>,
    ) -> Result<Self, ClientError> {
        let wanted = |kind| {
            let unasked = unasked.clone();
            // Nobody hears it while no server half is connected; whoever comes brings connections unasked.
            move |count| drop(unasked.send(Unasked::Want(Want { kind, count })))
        };
        let stock = Stock::new(wanted(Kind::Streams));
        let shelf = Arc::new(Shelf::new(wanted(Kind::Datagrams)));
        let refusals: Arc<Refusals> = Arc::default();
        let full = refusals.clone();
        let relay = underpass_relay::Settings {
            workers: settings.workers,
            stock: Some(stock.clone()),
            beyond_limits: Some(PROBE_LISTENER.to_owned()),
            full: Some(Arc::new(move |source| full.note(Why::Full, source))),
            ..underpass_relay::Settings::default()
        };
        let relay = Arc::new(Relay::start(relay)?);
        let ground = Ground { shelf: shelf.clone(), refusals: refusals.clone(), idle: settings.flow_idle };
        let tunnels = Tunnels::start(relay, settings.ip, ground, settings.connections).await;
        let tunnels = tunnels.map_err(|error| ClientError::Probe(error.to_string()))?;
        let prover = Prover::new(&secrets.data_key);
        Ok(Self { tunnels, stock, shelf, prover, refusals })
    }

    /// Lets data connections in.
    async fn accept(self: Arc<Self>, listener: TcpListener) {
        let half_open = Crowd::new(MOST_HALF_OPEN);
        loop {
            let Ok((stream, peer)) = listener.accept().await else {
                sleep(PAUSE).await;
                continue;
            };
            let (half, source) = (self.clone(), peer.ip().to_canonical());
            if half_open.admit(source, async move { half.examine(stream, source).await }) {
                self.refusals.note(Why::Crowded, source);
            }
        }
    }

    /// Whether it comes from the other half; if so, it stands ready.
    async fn examine(&self, mut stream: TcpStream, source: IpAddr) {
        match self.prover.accepted(&mut stream).await {
            Ok(Kind::Streams) => {
                if let Ok(stream) = stream.into_std() {
                    self.stock.put(OwnedFd::from(stream));
                }
            }
            Ok(Kind::Datagrams) => self.shelf.put(stream),
            Err(error) => self.refusals.note(Why::from(&error), source),
        }
    }

    async fn obey(&self, request: ClientRequest) -> Result<Value, String> {
        let said = |error: ListenError| error.to_string();
        match request {
            ClientRequest::Listen(listen) => json(self.tunnels.listen(&listen).await.map_err(said)?),
            ClientRequest::Delete(delete) => json(self.tunnels.delete(delete.number).await.map_err(said)?),
            ClientRequest::Limit(limit) => json(self.tunnels.limit(limit.number).await.map_err(said)?),
            ClientRequest::Status => {
                json(ClientSeen { refused: self.refusals.counts(), tunnels: self.tunnels.numbers().await })
            }
            ClientRequest::Probe => json(self.probe().await?),
            ClientRequest::Ping => Ok(Value::Null),
        }
    }

    /// Goes the way of a client, to the other half and back.
    async fn probe(&self) -> Result<Probed, String> {
        let address = self.tunnels.probe().await;
        let begun = Instant::now();
        let sent: [u8; 16] = rand::random();
        let exchange = async {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(&sent).await?;
            let mut received = [0; 16];
            stream.read_exact(&mut received).await?;
            Ok::<_, io::Error>(received)
        };
        match timeout(PROBE_DEADLINE, exchange).await {
            Ok(Ok(received)) if received == sent => {
                Ok(Probed { micros: u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX) })
            }
            Ok(Ok(_)) => Err("the probe came back changed".to_owned()),
            Ok(Err(error)) => Err(format!("the probe did not come back: {error}")),
            Err(_) => Err(format!("the probe did not come back within {} s", PROBE_DEADLINE.as_secs())),
        }
    }
}

impl Answers for Half {
    type Request = ClientRequest;

    fn answer(self: Arc<Self>, request: ClientRequest) -> BoxFuture<'static, Result<Value, String>> {
        async move { self.obey(request).await }.boxed()
    }
}

fn json(answer: impl Serialize) -> Result<Value, String> {
    serde_json::to_value(answer).map_err(|error| error.to_string())
}

/// For IPv4 and IPv6 where the kernel has both.
fn everywhere() -> IpAddr {
    let has_ipv6 = std::net::TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
    if has_ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

async fn bind(ip: IpAddr, port: u16, purpose: &'static str) -> Result<TcpListener, ClientError> {
    TcpListener::bind((ip, port)).await.map_err(|source| ClientError::Bind { port, purpose, source })
}

fn address(listener: &TcpListener) -> Result<SocketAddr, ClientError> {
    listener.local_addr().map_err(|source| ClientError::Bind { port: 0, purpose: "anything", source })
}
