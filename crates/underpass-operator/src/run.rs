//! All controllers, started from one list.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;
use underpass_engines::{ContainerEngine, TunnelImages};
use underpass_resources::{ContainerNetwork, KINDS, Kind};

use crate::act::Outside;
use crate::apply::Applier;
use crate::drive::{Pace, drive};
use crate::images::Images;
use crate::interests::{Interest, Interests};
use crate::kinds;
use crate::leadership::{Seat, lead};
use crate::metrics::Metrics;
use crate::observe::{ContainerNetworks, TunnelProxies, Unbuilt};
use crate::pairs::Pairs;
use crate::reach::{Unreachable, check};
use crate::reconcile::{Key, Reconcile};
use crate::sweep::Sweep;
use crate::triggers::{changes, concerning, engine_changes};
use crate::watchdog::{Watchdog, WatchdogCommand};

#[derive(Clone)]
pub struct Settings {
    pub engine: Arc<dyn ContainerEngine>,
    /// The private folder in which the pairs' secrets and records are kept.
    pub folder: PathBuf,
    /// What tells the things of one such folder from those of another.
    pub instance: String,
    /// The program that pairs are made of: this one.
    pub program: PathBuf,
    /// Who cleans up when this process is killed; `None`: nobody, until the next start.
    pub watchdog: Option<WatchdogCommand>,
    pub pace: Pace,
    pub metrics: Metrics,
    /// The lease that says whose controllers work, where several processes could.
    pub seat: Seat,
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("the controllers cannot start")]
    Start(#[from] Unreachable),
    #[error("the controllers ended by themselves, which is a defect of underpass")]
    Ended,
}

/// Runs the controllers of all kinds until `stop`, whenever this process holds the lease for it. A server that cannot be worked with
/// is an error at the start; one that goes away later is waited for.
pub async fn run(client: Client, settings: Settings, stop: CancellationToken) -> Result<(), RunError> {
    tokio::select! {
        checked = check(&client) => checked?,
        () = stop.cancelled() => return Ok(()),
    }
    lead(&client, settings.seat.clone(), &stop, || control(client.clone(), settings.clone(), stop.clone())).await;
    if stop.is_cancelled() { Ok(()) } else { Err(RunError::Ended) }
}

async fn control(client: Client, settings: Settings, stop: CancellationToken) {
    let command = settings.watchdog.as_ref();
    let watchdog = command.map(|command| Watchdog::start(&settings.program, command, settings.pace.backoff));
    let mut controllers = Controllers::new(client, settings.clone(), stop);
    for kind in KINDS {
        controllers.start_kind(kind);
    }
    controllers.start_sweep();
    info!(kinds = KINDS.len(), "controllers started");
    let work = controllers.loops.join_all();
    match watchdog {
        Some(watchdog) => tokio::select! {
            _ = work => {}
            () = watchdog.keep() => {}
        },
        None => drop(work.await),
    }
}

struct Controllers {
    client: Client,
    settings: Settings,
    outside: Outside,
    applier: Arc<Applier>,
    /// Keys of tunnel proxies whose image or process has news.
    woken: Option<UnboundedReceiver<Key>>,
    stop: CancellationToken,
    loops: JoinSet<()>,
}

impl Controllers {
    fn new(client: Client, settings: Settings, stop: CancellationToken) -> Self {
        let (wake, woken) = unbounded();
        let outside = settings.outside(wake);
        let applier = Applier::new(client.clone(), outside.clone(), settings.metrics.clone());
        Self { client, settings, outside, applier: Arc::new(applier), woken: Some(woken), stop, loops: JoinSet::new() }
    }

    /// The one place that says which kind is built by what.
    fn start_kind(&mut self, kind: &'static Kind) {
        match kind.kind {
            "ContainerNetwork" => self.start_networks(kind),
            "ContainerNetworkTunnelProxy" => self.start_tunnel_proxies(kind),
            _ => {
                let own = self.own_changes(kind);
                self.start(Unbuilt::new(self.client.clone(), kind), own);
            }
        }
    }

    fn start_networks(&mut self, kind: &'static Kind) {
        let interests = Arc::new(Interests::default());
        let engine = engine_changes(self.outside.engine.changes(), Arc::clone(&interests));
        let triggers = stream::select(self.own_changes(kind), engine);
        let engine = Arc::clone(&self.outside.engine);
        self.start(ContainerNetworks::new(self.client.clone(), engine, interests), triggers);
    }

    fn start_tunnel_proxies(&mut self, kind: &'static Kind) {
        let interests = Arc::new(Interests::default());
        let other = |kind: &'static str, resource: &ApiResource, interest: fn(&DynamicObject) -> Option<Interest>| {
            let api = Api::all_with(self.client.clone(), resource);
            concerning(kind, api, Arc::clone(&interests), interest).boxed()
        };
        let triggers = stream::select_all([
            self.own_changes(kind).boxed(),
            other("ContainerNetwork", &ApiResource::erase::<ContainerNetwork>(&()), network),
            other("Service", &ApiResource::erase::<Service>(&()), service),
            other("EndpointSlice", &ApiResource::erase::<EndpointSlice>(&()), service_of_slice),
            engine_changes(self.outside.engine.changes(), Arc::clone(&interests)).boxed(),
            stream::iter(self.woken.take()).flatten().boxed(),
        ]);
        self.start(TunnelProxies::new(self.client.clone(), self.outside.clone(), interests), triggers);
    }

    fn own_changes(&self, kind: &'static Kind) -> impl Stream<Item = Key> + Send + use<> {
        changes(kind.kind, kinds::api(&self.client, kind, None))
    }

    fn start<R: Reconcile>(&mut self, reconciler: R, triggers: impl Stream<Item = Key> + Send + 'static) {
        let applier = Arc::clone(&self.applier);
        self.loops.spawn(drive(Arc::new(reconciler), triggers, applier, self.settings.pace, self.stop.clone()));
    }

    fn start_sweep(&mut self) {
        self.loops.spawn(self.settings.sweep().run(self.client.clone(), self.stop.clone()));
    }
}

impl Settings {
    /// What removes what nobody owns any more.
    pub fn sweep(&self) -> Sweep {
        Sweep { engine: Arc::clone(&self.engine), folders: pair_folders(&self.folder), instance: self.instance.clone() }
    }

    fn outside(&self, wake: UnboundedSender<Key>) -> Outside {
        let (engine, backoff) = (&self.engine, self.pace.backoff);
        let recipes = TunnelImages::new(&self.program);
        Outside {
            engine: Arc::clone(engine),
            images: Images::new(Arc::clone(engine), recipes, backoff, wake.clone()),
            pairs: Pairs::new(
                Arc::clone(engine),
                self.instance.clone(),
                pair_folders(&self.folder),
                self.program.clone(),
                backoff,
                wake,
            ),
        }
    }
}

fn pair_folders(folder: &Path) -> PathBuf {
    folder.join("tunnels")
}

fn network(object: &DynamicObject) -> Option<Interest> {
    Some(Interest::ContainerNetwork(object.name_any()))
}

fn service(object: &DynamicObject) -> Option<Interest> {
    Some(Interest::Service(object.namespace()?, object.name_any()))
}

fn service_of_slice(object: &DynamicObject) -> Option<Interest> {
    let service = object.labels().get("kubernetes.io/service-name")?;
    Some(Interest::Service(object.namespace()?, service.clone()))
}
