//! The server half: it dials the servers, and the client half, to which it brings the connections that carry streams.

mod flows;
mod link;
mod listening;
mod orders;
mod reach;
mod tunnels;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::{Notify, broadcast, mpsc};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use underpass_relay::{Relay, RelayError};

use crate::capacity;
use crate::control::{Answers, AskError, Door};
use crate::crowd::Crowd;
use crate::datagrams;
use crate::handshake::{Kind, Prover};
use crate::messages::{ClientRequest, ClientSeen, Listed, Page, Probed, ServerRequest, Unasked, Want};
use crate::secrets::ServerSecrets;
use crate::stock::{Keeper, LEAST_STREAMS};
use crate::tls::{self, TlsError};

use flows::Flows;
use link::{ClientLink, DEADLINE};
use tunnels::{LISTENER, Tunnels};

/// Longer than the client half itself waits for a probe.
const PROBE_DEADLINE: Duration = Duration::from_secs(7);
/// Probes that are under way.
const MOST_PROBES: usize = 16;
const ECHO_DEADLINE: Duration = Duration::from_secs(5);
/// Wishes that nobody has read yet.
const WANTS: usize = 64;
/// Between two tellings of news: a server that answers every other stream has a lot of it.
const BETWEEN_NEWS: Duration = Duration::from_millis(500);

/// How a server half runs, and where its other half is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the client half may take orders, the best first.
    pub control: Vec<SocketAddr>,
    /// Where it may take data connections, the best first.
    pub data: Vec<SocketAddr>,
    pub workers: usize,
    /// Streams and flows that may be open at a time.
    pub connections: u32,
    /// How long a flow of datagrams may be silent.
    pub flow_idle: Duration,
    pub lookup: Lookup,
}

/// How a name and a port become addresses.
pub type Lookup = fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;

/// As the system does it, by its own files and servers.
pub fn system_lookup(name: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
    async move { Ok(lookup_host((name, port)).await?.collect()) }.boxed()
}

impl Settings {
    pub fn new(control: Vec<SocketAddr>, data: Vec<SocketAddr>) -> Self {
        let workers = crate::workers();
        let connections = capacity::by_descriptors(workers).min(capacity::by_ports());
        Self { control, data, workers, connections, flow_idle: datagrams::IDLE, lookup: system_lookup }
    }
}

/// Why a server half cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Secrets(#[from] TlsError),
    #[error("127.0.0.1 cannot be listened on")]
    Bind(#[source] io::Error),
    #[error("the relay cannot be started")]
    Relay(#[from] RelayError),
    #[error("{0}")]
    Table(String),
}

/// A running server half.
pub struct Server {
    control: SocketAddr,
    half: Arc<Half>,
    /// It was told to end.
    told: CancellationToken,
    stop: CancellationToken,
    tasks: TaskTracker,
}

struct Half {
    tunnels: Tunnels,
    relay: Arc<Relay>,
    client: ClientLink,
    streams: Arc<Keeper>,
    datagrams: Arc<Keeper>,
    flows: Arc<Flows>,
    /// Something else is known of a tunnel's server.
    news: Arc<Notify>,
    /// What this half can carry at a time.
    connections: u32,
    told: CancellationToken,
}

impl Server {
    pub async fn start(secrets: &ServerSecrets, settings: Settings) -> Result<Self, ServerError> {
        let acceptor = tls::acceptor(&secrets.identity)?;
        let (control, control_address) = listener().await?;
        let (echo, echo_address) = listener().await?;
        let (wants_tx, wants_rx) = mpsc::channel(WANTS);
        let flow_idle = settings.flow_idle;
        let half = Arc::new(Half::start(secrets, settings, echo_address, wants_tx).await?);
        let server = Self {
            control: control_address,
            told: half.told.clone(),
            half,
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        // Who missed one piece of news hears the next, and all that counts is that there is some.
        let (unasked, _) = broadcast::channel(1);
        server.spawn(tell_news(server.half.news.clone(), unasked.clone()));
        let (answers, stop) = (server.half.clone(), server.stop.clone());
        let door = Door { acceptor, answers, unasked, refusals: Arc::default(), silence: None, stop };
        server.tasks.spawn(door.serve(control));
        server.begin(wants_rx, echo, flow_idle);
        Ok(server)
    }

    /// Where it takes orders.
    pub fn control_address(&self) -> SocketAddr {
        self.control
    }

    /// Comes back when somebody has ordered it to end.
    pub async fn told_to_stop(&self) {
        self.told.cancelled().await;
    }

    /// Ends everything; streams are cut.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        let relay = self.half.relay.clone();
        // It waits for threads.
        let _ = tokio::task::spawn_blocking(move || relay.drain(Duration::ZERO)).await;
    }

    fn begin(&self, wants: mpsc::Receiver<Want>, echo: TcpListener, flow_idle: Duration) {
        self.spawn(answer_probes(echo));
        let half = self.half.clone();
        self.spawn(async move { half.keep_link().await });
        let half = self.half.clone();
        self.spawn(async move { half.hear(wants).await });
        let (half, stop) = (self.half.clone(), self.stop.clone());
        self.tasks.spawn(async move { half.keep_streams(stop).await });
        let (half, stop) = (self.half.clone(), self.stop.clone());
        self.tasks.spawn(async move { half.keep_datagrams(stop, flow_idle).await });
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move { stop.run_until_cancelled(work).await });
    }
}

impl Half {
    async fn start(
        secrets: &ServerSecrets,
        settings: Settings,
        echo: SocketAddr,
        wants: mpsc::Sender<Want>,
    ) -> Result<Self, ServerError> {
        let prover = Prover::new(&secrets.data_key);
        let streams = Keeper::new(Kind::Streams, prover.clone(), settings.data.clone(), LEAST_STREAMS);
        let datagrams = Keeper::new(Kind::Datagrams, prover, settings.data, 0);
        let keeper = streams.clone();
        let news = Arc::new(Notify::new());
        let turned = news.clone();
        let relay = Arc::new(Relay::start(underpass_relay::Settings {
            workers: settings.workers,
            taken_up: Some(Arc::new(move || keeper.taken())),
            turned: Some(Arc::new(move || turned.notify_one())),
            ..underpass_relay::Settings::default()
        })?);
        let flows = Arc::new(Flows::new(news.clone()));
        let tunnels =
            Tunnels::start(relay.clone(), flows.clone(), echo, settings.lookup).await.map_err(ServerError::Table)?;
        let client = ClientLink::new(tls::connector(&secrets.identity)?, settings.control, wants);
        let (connections, told) = (settings.connections, CancellationToken::new());
        Ok(Self { tunnels, relay, client, streams, datagrams, flows, news, connections, told })
    }

    /// For ever: a control connection, and on each new one all tunnels.
    async fn keep_link(&self) {
        loop {
            let link = self.client.reach().await;
            match self.tunnels.connected(&link, self.connections).await {
                Ok(()) => self.client.hold(link).await,
                Err(reason) => self.client.give_up(&link, reason).await,
            }
        }
    }

    async fn hear(&self, mut wants: mpsc::Receiver<Want>) {
        while let Some(Want { kind, count }) = wants.recv().await {
            match kind {
                Kind::Streams => self.streams.want(count),
                Kind::Datagrams => self.datagrams.want(count),
            }
        }
    }

    async fn keep_streams(&self, stop: CancellationToken) {
        let (relay, keeper) = (self.relay.clone(), self.streams.clone());
        let give = move |stream: TcpStream, peer| {
            let adopted = stream.into_std().is_ok_and(|stream| relay.adopt(LISTENER, OwnedFd::from(stream), peer));
            if !adopted {
                keeper.taken();
            }
        };
        self.streams.clone().run(give, stop).await;
    }

    async fn keep_datagrams(&self, stop: CancellationToken, idle: Duration) {
        let (flows, keeper, ended) = (self.flows.clone(), self.datagrams.clone(), stop.clone());
        let give = move |stream: TcpStream, _| {
            let (flows, keeper, ended) = (flows.clone(), keeper.clone(), ended.clone());
            tokio::spawn(async move {
                ended.run_until_cancelled(flows.carry(stream, || keeper.taken(), idle)).await;
            });
        };
        self.datagrams.clone().run(give, stop).await;
    }

    async fn obey(&self, request: ServerRequest) -> Result<Value, String> {
        match request {
            ServerRequest::Prepare(asked) => {
                let prepared = self.tunnels.prepare(asked, &self.client).await;
                self.follow_flows();
                json(prepared?)
            }
            ServerRequest::Delete(delete) => {
                let deleted = self.tunnels.delete(delete.number, &self.client).await;
                self.follow_flows();
                json(deleted?)
            }
            ServerRequest::List(from) => json(self.list(from.number).await),
            ServerRequest::Probe => json(self.probe().await?),
            ServerRequest::Ping => Ok(Value::Null),
            ServerRequest::Shutdown => {
                self.told.cancel();
                Ok(Value::Null)
            }
        }
    }

    /// A connection stands ready for datagrams while there is a tunnel for them.
    fn follow_flows(&self) {
        self.datagrams.set_least(usize::from(!self.flows.is_empty()));
    }

    async fn list(&self, from: u32) -> Page {
        let link = self.client.current();
        let client = match &link {
            Some(link) => link.ask::<ClientSeen>(&ClientRequest::Status, DEADLINE).await.ok(),
            None => None,
        };
        let (tunnels, next) = self.tunnels.list(from).await;
        let data = vec![self.streams.seen(), self.datagrams.seen()];
        let (connected, trouble) = (client.is_some(), self.client.trouble());
        Page { listed: Listed { connected, trouble, data, client, tunnels }, next }
    }

    async fn probe(&self) -> Result<Probed, String> {
        let link = self.client.get().await?;
        link.ask(&ClientRequest::Probe, PROBE_DEADLINE).await.map_err(|error| match error {
            AskError::Refused(reason) => reason,
            error => crate::chain(&error),
        })
    }
}

impl Answers for Half {
    type Request = ServerRequest;

    fn answer(self: Arc<Self>, request: ServerRequest) -> BoxFuture<'static, Result<Value, String>> {
        async move { self.obey(request).await }.boxed()
    }
}

async fn tell_news(news: Arc<Notify>, everybody: broadcast::Sender<Unasked>) {
    loop {
        news.notified().await;
        // Nobody may be there.
        let _ = everybody.send(Unasked::News);
        sleep(BETWEEN_NEWS).await;
    }
}

/// Probes end here, as a client's bytes end at a server.
async fn answer_probes(listener: TcpListener) {
    let probes = Crowd::new(MOST_PROBES);
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        probes.admit(peer.ip(), async move {
            // Whoever asked sees how it ended.
            let _ = timeout(ECHO_DEADLINE, echo(stream)).await;
        });
    }
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut bytes = [0; 16];
    stream.read_exact(&mut bytes).await?;
    stream.write_all(&bytes).await?;
    stream.shutdown().await
}

fn json(answer: impl Serialize) -> Result<Value, String> {
    serde_json::to_value(answer).map_err(|error| error.to_string())
}

async fn listener() -> Result<(TcpListener, SocketAddr), ServerError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(ServerError::Bind)?;
    let address = listener.local_addr().map_err(ServerError::Bind)?;
    Ok((listener, address))
}
