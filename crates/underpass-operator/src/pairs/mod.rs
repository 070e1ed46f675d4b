//! The pairs of proxies on this host: what stands on disk of each, whether its halves live, and what it says.
//!
//! Nothing here decides anything: a pass asks, and the plan says what to do. What is remembered between two passes can be lost with
//! the process: connections are made again, processes are found again by pid and start time, and what a pair refused is asked once more.

mod folder;
mod prepare;
mod process;
mod refused;
mod start;

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::UnboundedSender;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::info;
use underpass_engines::{ContainerEngine, EngineError, labels};
use underpass_plan::tunnel_proxy::{self as plan, PreparedTunnel, Refusal, Server, StartedServer};
use underpass_plan::{Cause, ClientEndpoints, TunnelRequest};
use underpass_resources::tunnel_proxy::TunnelProtocol;
use underpass_tunnel::{Caller, Listed, Protocol, ServerSeen};

use crate::act::Outcome;
use crate::backoff::Backoff;
use crate::reconcile::Key;
use folder::{Folder, ServerRecord};
use prepare::Orders;
use refused::Refused;

pub(crate) use process::Identity;
use process::marked;
pub use process::{Process, start_of};

/// Carried by every server proxy: the instance and the uid of the object that it belongs to.
pub(crate) const MARK: &str = "UNDERPASS_PAIR";

pub struct Pairs {
    engine: Arc<dyn ContainerEngine>,
    instance: String,
    /// `tunnels` in the data directory.
    root: PathBuf,
    /// The program whose `tunnel-server` is started.
    program: PathBuf,
    wake: UnboundedSender<Key>,
    backoff: Backoff,
    memories: Mutex<HashMap<String, Memory>>,
}

/// What is remembered of a pair, by its object's uid.
#[derive(Default)]
struct Memory {
    key: Option<Key>,
    caller: Option<(u16, Arc<Caller>)>,
    /// The server proxy whose end somebody waits for.
    watched: Option<u32>,
    /// Whether it was started by this process, or seen alive.
    seen_alive: bool,
    /// Since when one half or both do not answer.
    silent_since: Option<Instant>,
    /// How the server proxy of this pid ended, where that is known.
    ended: Option<(u32, String)>,
    refusals: Refused<u32, TunnelRequest>,
    orders: Orders,
    /// EndpointSlices, by namespace and name.
    unwritten: Refused<(String, String), ClientEndpoints>,
}

#[derive(Debug, thiserror::Error)]
pub enum PairError {
    #[error("the uid {0} cannot be the name of a folder")]
    Uid(String),
    #[error("the pair's folder {0} cannot be used: {1}")]
    Folder(PathBuf, #[source] std::io::Error),
    #[error("the pair's folder below {0} cannot be removed: {1}")]
    FolderLeft(PathBuf, #[source] std::io::Error),
    #[error("the client proxy's image {0} is no longer there; it is made again")]
    ImageGone(String),
    #[error("the network {0} is no longer there; its ContainerNetwork will tell of another")]
    NetworkGone(String),
    #[error("the client proxy cannot be started: {0}")]
    Client(#[source] EngineError),
    #[error("the server proxy cannot be started: {0}")]
    Server(String),
    #[error("what is left of the client proxy's container cannot be removed: {0}")]
    Volume(#[source] EngineError),
    #[error("the server proxy (process {pid}) cannot be stopped: {source}")]
    Stop { pid: u32, source: std::io::Error },
}

impl PairError {
    pub fn cause(&self) -> Cause {
        match self {
            Self::Uid(_) | Self::Folder(..) | Self::Server(_) => Cause::ServerProxyNotStarted,
            Self::ImageGone(_) => Cause::NoImage,
            Self::NetworkGone(_) => Cause::NetworkGone,
            Self::Client(error) => match error.cause() {
                // The engine's own trouble, which passes.
                passing @ (Cause::NoContainerEngine | Cause::AddressesExhausted) => passing,
                _ => Cause::ClientProxyNotStarted,
            },
            Self::Volume(EngineError::Unavailable(_)) => Cause::NoContainerEngine,
            Self::Volume(_) | Self::FolderLeft(..) | Self::Stop { .. } => Cause::NotRemoved,
        }
    }
}

impl Pairs {
    pub fn new(
        engine: Arc<dyn ContainerEngine>,
        instance: String,
        root: PathBuf,
        program: PathBuf,
        backoff: Backoff,
        wake: UnboundedSender<Key>,
    ) -> Arc<Self> {
        Arc::new(Self { engine, instance, root, program, wake, backoff, memories: Mutex::default() })
    }

    /// The label on everything that is ours.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// What stands in the pair's folder, and whether the process there lives. Its end wakes the key.
    pub fn look(self: &Arc<Self>, uid: &str, key: &Key) -> Result<Option<plan::Folder>, PairError> {
        let folder = self.folder(uid)?;
        if !folder.exists() {
            return Ok(None);
        }
        let record = folder.record();
        let server = record.server.map(|server| self.look_at_server(uid, key, &folder, &server));
        let mut memories = self.memories.lock();
        let memory = memories.entry(uid.to_owned()).or_default();
        memory.key = Some(key.clone());
        let watched = memory.seen_alive;
        Ok(Some(plan::Folder { client: record.client, server, watched }))
    }

    /// From now on its death is one that we have seen.
    pub fn note_alive(&self, uid: &str) {
        self.memories.lock().entry(uid.to_owned()).or_default().seen_alive = true;
    }

    fn look_at_server(self: &Arc<Self>, uid: &str, key: &Key, folder: &Folder, server: &ServerRecord) -> StartedServer {
        let alive = start_of(server.pid) == Some(server.start);
        if alive {
            self.watch(uid, key, server);
        }
        StartedServer {
            pid: server.pid,
            control_port: server.control_port,
            started_at: server.started_at,
            std_out_file: folder.stdout().display().to_string(),
            std_err_file: folder.stderr().display().to_string(),
            ended: (!alive).then(|| self.how_it_ended(uid, server.pid, folder)),
        }
    }

    fn how_it_ended(&self, uid: &str, pid: u32, folder: &Folder) -> String {
        let memories = self.memories.lock();
        let known = memories.get(uid).and_then(|memory| memory.ended.as_ref()).filter(|(ended, _)| *ended == pid);
        let how = known.map_or_else(|| "ended".to_owned(), |(_, how)| how.clone());
        folder.last_words().map_or_else(|| how.clone(), |words| format!("{how}: {words}"))
    }

    /// Of a process that this one did not start.
    fn watch(self: &Arc<Self>, uid: &str, key: &Key, server: &ServerRecord) {
        let mut memories = self.memories.lock();
        let memory = memories.entry(uid.to_owned()).or_default();
        if memory.watched == Some(server.pid) {
            return;
        }
        let Ok(Some(process)) = Process::find(server.pid, server.start) else { return };
        info!(pid = server.pid, object = %key, "server proxy adopted");
        memory.watched = Some(server.pid);
        let (wake, key) = (self.wake.clone(), key.clone());
        tokio::spawn(async move {
            process.ended().await;
            // Nobody listens at the end of the process.
            let _ = wake.unbounded_send(key);
        });
    }

    /// What the pair says of itself. It is asked to send something through both halves, too.
    pub async fn ask(&self, uid: &str, control_port: u16) -> plan::Pair {
        let listed = async {
            let caller = self.caller(uid, control_port)?;
            let listed = caller.list().await.map_err(|error| error.to_string())?;
            let gap = gap(&caller, &listed).await;
            Ok(plan::Pair::Answered { gap, tunnels: listed.tunnels.iter().map(prepared).collect() })
        };
        let pair = listed.await.unwrap_or_else(|why: String| plan::Pair::Silent { why });
        self.note_heard(uid, matches!(pair, plan::Pair::Answered { gap: None, .. }));
        pair
    }

    fn note_heard(&self, uid: &str, both: bool) {
        let mut memories = self.memories.lock();
        let memory = memories.entry(uid.to_owned()).or_default();
        memory.silent_since = if both { None } else { memory.silent_since.or_else(|| Some(Instant::now())) };
    }

    /// By a clock that nobody sets, and that stands still while the machine sleeps.
    pub fn silent_for(&self, uid: &str) -> Option<Duration> {
        self.memories.lock().get(uid)?.silent_since.map(|since| since.elapsed())
    }

    pub fn refusals(&self, uid: &str) -> BTreeMap<u32, Refusal<TunnelRequest>> {
        let memories = self.memories.lock();
        let refusals = memories.get(uid).map(|memory| &memory.refusals);
        refusals.into_iter().flat_map(Refused::all).map(|(number, refusal)| (*number, refusal.clone())).collect()
    }

    /// Whether an EndpointSlice could be written: one that cannot must not hold up the others.
    pub fn note_endpoints(&self, uid: &str, endpoints: &ClientEndpoints, refused: Option<String>) {
        let mut memories = self.memories.lock();
        let unwritten = &mut memories.entry(uid.to_owned()).or_default().unwritten;
        unwritten.note((endpoints.namespace.clone(), endpoints.name.clone()), endpoints, refused, self.backoff);
    }

    pub fn unwritten(&self, uid: &str) -> Vec<Refusal<ClientEndpoints>> {
        let memories = self.memories.lock();
        let unwritten = memories.get(uid).map(|memory| &memory.unwritten);
        unwritten.into_iter().flat_map(Refused::all).map(|(_, refusal)| refusal.clone()).collect()
    }

    /// A pair that cannot be told is on its way out, or will be asked again for what it lists.
    pub async fn delete(&self, uid: &str, number: u32) -> Outcome {
        let Some(control_port) = self.control_port(uid) else { return Outcome::no_pair() };
        // What has not been answered is not wanted any more.
        if let Some(memory) = self.memories.lock().get_mut(uid) {
            memory.orders.forget(number);
        }
        let deleted = match self.caller(uid, control_port) {
            Ok(caller) => caller.delete(number).await.map_err(|error| error.to_string()),
            Err(why) => Err(why),
        };
        deleted.map_or_else(Outcome::Refused, |()| Outcome::Done)
    }

    pub async fn stop_server(&self, uid: &str, pid: u32) -> Result<(), PairError> {
        match self.folder(uid)?.record().server.filter(|server| server.pid == pid) {
            Some(ServerRecord { start, .. }) => {
                Identity { pid, start }.stop().await.map_err(|source| PairError::Stop { pid, source })
            }
            None => Ok(()),
        }
    }

    /// Here, and what somebody who removed the container has left of it in the engine.
    pub async fn remove_folder(&self, uid: &str) -> Result<(), PairError> {
        let folder = self.folder(uid)?;
        let mine = [(labels::INSTANCE, self.instance.as_str()), (labels::UID, uid)];
        for volume in self.engine.list_volumes(&mine).await.map_err(PairError::Volume)? {
            self.engine.remove_volume(&volume.name).await.map_err(PairError::Volume)?;
        }
        self.memories.lock().remove(uid);
        folder.remove().map_err(|error| PairError::FolderLeft(self.root.clone(), error))
    }

    /// Removes the folder of an object that is gone.
    pub(crate) fn remove_leftover(root: &Path, uid: &str) -> Result<(), PairError> {
        let folder = Folder::of(root, uid).ok_or_else(|| PairError::Uid(uid.to_owned()))?;
        folder.remove().map_err(|error| PairError::FolderLeft(root.to_owned(), error))
    }

    /// The server proxies of an instance that live, and the uids of their objects, whether or not somebody wrote them down.
    pub(crate) fn living(instance: &str) -> Vec<(Identity, String)> {
        let of_instance = |value: String| Some(value.strip_prefix(instance)?.strip_prefix('/')?.to_owned());
        marked(MARK).into_iter().filter_map(|(identity, value)| Some((identity, of_instance(value)?))).collect()
    }

    fn folder(&self, uid: &str) -> Result<Folder, PairError> {
        Folder::of(&self.root, uid).ok_or_else(|| PairError::Uid(uid.to_owned()))
    }

    fn control_port(&self, uid: &str) -> Option<u16> {
        self.folder(uid).ok()?.record().server.map(|server| server.control_port)
    }

    /// One connection per pair, kept.
    fn caller(&self, uid: &str, control_port: u16) -> Result<Arc<Caller>, String> {
        let mut memories = self.memories.lock();
        let memory = memories.entry(uid.to_owned()).or_default();
        if let Some((_, caller)) = memory.caller.as_ref().filter(|(port, _)| *port == control_port) {
            return Ok(Arc::clone(caller));
        }
        let folder = self.folder(uid).map_err(|error| error.to_string())?;
        let secrets = folder.secrets().map_err(|error| format!("the pair's secrets cannot be read: {error}"))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, control_port));
        let caller = Arc::new(Caller::new(address, &secrets.caller).map_err(|error| error.to_string())?);
        if let Some(key) = memory.key.clone() {
            tokio::spawn(pass_on(caller.news(), self.wake.clone(), key));
        }
        memory.caller = Some((control_port, Arc::clone(&caller)));
        Ok(caller)
    }
}

/// What the pair tells unasked wakes its object, until its caller is forgotten.
async fn pass_on(mut news: watch::Receiver<u64>, wake: UnboundedSender<Key>, key: Key) {
    while news.changed().await.is_ok() {
        // Nobody listens at the end of the process.
        let _ = wake.unbounded_send(key.clone());
    }
}

/// Why nothing crosses the pair, if so.
async fn gap(caller: &Caller, listed: &Listed) -> Option<String> {
    if !listed.connected {
        return Some(listed.trouble.clone().unwrap_or_else(|| "the proxies are not connected".to_owned()));
    }
    caller.probe().await.err().map(|error| error.to_string())
}

fn prepared(seen: &underpass_tunnel::TunnelSeen) -> PreparedTunnel {
    PreparedTunnel {
        number: seen.asked.number,
        protocol: match seen.asked.protocol {
            Protocol::Tcp => TunnelProtocol::Tcp,
            Protocol::Udp => TunnelProtocol::Udp,
        },
        server_host: seen.asked.server_address.clone(),
        server_port: seen.asked.server_port,
        max_connections: seen.asked.max_streams,
        addresses: seen.prepared.addresses.clone(),
        client_port: seen.prepared.port,
        trouble: seen.trouble.clone(),
        server: match &seen.server {
            ServerSeen::Unknown => Server::Unknown,
            ServerSeen::Reachable => Server::Reachable,
            ServerSeen::Unreachable(why) => Server::Unreachable { why: why.clone() },
        },
    }
}
