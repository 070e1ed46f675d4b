//! All controllers, started from one list.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::{Stream, StreamExt, future, stream};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ApiResource, ObjectMeta};
use kube::{Api, Client};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;
use underpass_engines::{ContainerEngine, TunnelImages};
use underpass_plan::OWNER_LABEL;
use underpass_plan::proxy_deployment::{self, Site};
use underpass_plan::unbuilt::Lacking;
use underpass_resources::{KINDS, Kind};

use crate::act::Outside;
use crate::apply::Applier;
use crate::backoff::Backoff;
use crate::drive::{Pace, drive};
use crate::first_look::FirstLook;
use crate::health::Health;
use crate::images::Images;
use crate::interests::{Interest, Interests};
use crate::kinds;
use crate::leadership::{Seat, lead};
use crate::metrics::Metrics;
use crate::objects;
use crate::observe::{ContainerNetworks, Infras, ProxyServers, TunnelProxies, Unbuilt};
use crate::pairs::Pairs;
use crate::reach::{Unreachable, check};
use crate::reconcile::{Key, Reconcile};
use crate::sweep::Sweep;
use crate::triggers::{Watch, concerning, engine_changes, key, owner};
use crate::turn::{self, TurnError};
use crate::watchdog::{Watchdog, WatchdogCommand};

#[derive(Clone)]
pub struct Settings {
    /// Where the kinds are built that need a container engine. `None` on a cluster: their objects say that it takes a machine.
    pub machine: Option<Machine>,
    /// The cluster on which pods are made; `None` where no node runs any.
    pub cluster: Option<Site>,
    pub pace: Pace,
    pub metrics: Metrics,
    pub health: Health,
    /// For who waits until the objects of an earlier run have been looked at.
    pub first_look: Option<FirstLook>,
    /// The lease that says whose controllers work, where several processes could.
    pub seat: Seat,
}

/// What controllers work with on the machine that they run on.
#[derive(Clone)]
pub struct Machine {
    pub engine: Arc<dyn ContainerEngine>,
    /// The private folder in which the pairs' secrets and records are kept.
    pub folder: PathBuf,
    /// What tells the things of one such folder from those of another.
    pub instance: String,
    /// The program that pairs are made of: this one.
    pub program: PathBuf,
    /// Who cleans up when this process is killed; `None`: nobody, until the next start.
    pub watchdog: Option<WatchdogCommand>,
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("the controllers cannot start")]
    Start(#[from] Unreachable),
    #[error("the controllers cannot work")]
    Turn(#[from] TurnError),
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
    let Settings { seat, mut health, .. } = settings.clone();
    let work = || control(client.clone(), settings.clone(), stop.clone());
    lead(&client, seat, &mut health, &stop, work).await.transpose()?;
    if stop.is_cancelled() { Ok(()) } else { Err(RunError::Ended) }
}

async fn control(client: Client, settings: Settings, stop: CancellationToken) -> Result<(), TurnError> {
    if let Some(machine) = &settings.machine {
        tokio::select! {
            taken = turn::take(&machine.folder) => taken?,
            () = stop.cancelled() => return Ok(()),
        }
    }
    let watchdog = settings.machine.as_ref().and_then(|machine| machine.watchdog(settings.pace.backoff));
    let mut controllers = Controllers::new(client, settings.clone(), stop);
    for kind in KINDS {
        controllers.start_kind(kind);
    }
    settings.health.began();
    if let Some(first_look) = &settings.first_look {
        first_look.began();
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
    Ok(())
}

struct Controllers {
    client: Client,
    settings: Settings,
    /// `None` without a machine.
    built: Option<Built>,
    /// Keys of objects whose components, objects of our kinds themselves, have changed.
    owners: UnboundedSender<Key>,
    woken_owners: Option<UnboundedReceiver<Key>>,
    applier: Arc<Applier>,
    stop: CancellationToken,
    loops: JoinSet<()>,
}

/// What the kinds that are built on a machine share.
struct Built {
    outside: Outside,
    /// Keys of tunnel proxies whose image or process has news.
    woken: Option<UnboundedReceiver<Key>>,
    /// From the one watch of ContainerNetworks to the tunnel proxies that stand on them.
    networks: UnboundedSender<Interest>,
    changed_networks: Option<UnboundedReceiver<Interest>>,
}

impl Controllers {
    fn new(client: Client, settings: Settings, stop: CancellationToken) -> Self {
        let built = settings.machine.as_ref().map(|machine| Built::on(machine, settings.pace.backoff));
        let outside = built.as_ref().map(|built| built.outside.clone());
        let applier = Arc::new(Applier::new(client.clone(), outside, settings.metrics.clone()));
        let (owners, woken_owners) = unbounded();
        let woken_owners = Some(woken_owners);
        Self { client, settings, built, owners, woken_owners, applier, stop, loops: JoinSet::new() }
    }

    /// The one place that says which kind is built by what.
    fn start_kind(&mut self, kind: &'static Kind) {
        match (kind.kind, self.built.take()) {
            ("ContainerNetwork", Some(built)) => self.built = Some(self.start_networks(kind, built)),
            ("ContainerNetworkTunnelProxy", Some(built)) => self.built = Some(self.start_tunnel_proxies(kind, built)),
            ("ContainerNetwork" | "ContainerNetworkTunnelProxy", None) => {
                self.start_unbuilt(kind, Lacking::ContainerEngine);
            }
            ("ProxyServer", built) => {
                self.built = built;
                match self.settings.cluster.clone() {
                    Some(site) => self.start_proxy_servers(kind, site),
                    None => self.start_unbuilt(kind, Lacking::Cluster),
                }
            }
            ("Infra", built) => {
                self.built = built;
                self.start_infras(kind);
            }
            (_, built) => {
                self.built = built;
                self.start_unbuilt(kind, Lacking::Controller);
            }
        }
    }

    fn start_unbuilt(&mut self, kind: &'static Kind, lacking: Lacking) {
        let own = self.own_changes(kind).map(key);
        self.start(Unbuilt::new(self.client.clone(), kind, lacking), own);
    }

    fn start_networks(&mut self, kind: &'static Kind, built: Built) -> Built {
        let interests = Arc::new(Interests::default());
        let engine = engine_changes(built.outside.engine.changes(), Arc::clone(&interests));
        let others = built.networks.clone();
        let own = self.own_changes(kind).map(move |network| {
            // Nobody listens once the tunnel proxies' loop has ended.
            let _ = others.unbounded_send(Interest::ContainerNetwork(network.name.clone().unwrap_or_default()));
            key(network)
        });
        let engine_handle = Arc::clone(&built.outside.engine);
        let networks = ContainerNetworks::new(self.client.clone(), engine_handle, interests);
        self.start(networks, stream::select(own, engine));
        built
    }

    fn start_tunnel_proxies(&mut self, kind: &'static Kind, mut built: Built) -> Built {
        let interests = Arc::new(Interests::default());
        let services = self.watch("Service", &ApiResource::erase::<Service>(&())).changes();
        let slices = self.watch("EndpointSlice", &ApiResource::erase::<EndpointSlice>(&())).changes();
        let elsewhere = stream::select_all([
            services.filter_map(interest_in(service)).boxed(),
            slices.filter_map(interest_in(service_of_slice)).boxed(),
            stream::iter(built.changed_networks.take()).flatten().boxed(),
        ]);
        let triggers = stream::select_all([
            self.own_changes(kind).map(key).boxed(),
            concerning(elsewhere, Arc::clone(&interests)).boxed(),
            engine_changes(built.outside.engine.changes(), Arc::clone(&interests)).boxed(),
            stream::iter(built.woken.take()).flatten().boxed(),
        ]);
        self.start(TunnelProxies::new(self.client.clone(), built.outside.clone(), interests), triggers);
        built
    }

    /// Whatever belongs to a ProxyServer says so, in whichever namespace it is.
    fn start_proxy_servers(&mut self, kind: &'static Kind, site: Site) {
        let mut changes = vec![self.own_changes(kind).map(key).boxed()];
        let pods = ApiResource::erase::<Pod>(&());
        let owned = proxy_deployment::KINDS.map(|kind| (kind.kind, objects::resource(kind)));
        for (kind, resource) in owned.into_iter().chain([("Pod", pods)]) {
            let watch = Watch { labels: Some(OWNER_LABEL), ..self.watch(kind, &resource) };
            changes.push(watch.changes().filter_map(|meta| future::ready(owner(&meta))).boxed());
        }
        let (wake, woken) = unbounded();
        changes.push(woken.boxed());
        self.start(ProxyServers::new(self.client.clone(), site, wake), stream::select_all(changes));
    }

    /// Its components are objects of our kinds, whose changes are seen by those who build them.
    fn start_infras(&mut self, kind: &'static Kind) {
        let components = stream::iter(self.woken_owners.take()).flatten();
        let triggers = stream::select(self.own_changes(kind).map(key), components);
        self.start(Infras::new(self.client.clone()), triggers);
    }

    fn own_changes(&self, kind: &'static Kind) -> impl Stream<Item = ObjectMeta> + Send + use<> {
        let first_look = self.settings.first_look.clone();
        if let Some(first_look) = &first_look {
            first_look.watches(kind.kind);
        }
        let owners = self.owners.clone();
        Watch { first_look, ..self.watch(kind.kind, &kinds::resource(kind)) }.changes().inspect(move |meta| {
            if let Some(owner) = owner(meta) {
                let _ = owners.unbounded_send(owner);
            }
        })
    }

    /// The one watch of a kind: who needs its changes too is told from there.
    fn watch(&self, kind: &'static str, resource: &ApiResource) -> Watch {
        let objects = Api::all_with(self.client.clone(), resource);
        let Settings { health, metrics, .. } = self.settings.clone();
        health.watches(kind);
        Watch { kind, objects, labels: None, health, metrics, first_look: None }
    }

    fn start<R: Reconcile>(&mut self, reconciler: R, triggers: impl Stream<Item = Key> + Send + 'static) {
        let (applier, Settings { pace, first_look, .. }) = (Arc::clone(&self.applier), self.settings.clone());
        self.loops.spawn(drive(Arc::new(reconciler), triggers, applier, pace, first_look, self.stop.clone()));
    }

    fn start_sweep(&mut self) {
        if let Some(machine) = &self.settings.machine {
            self.loops.spawn(machine.sweep().run(self.client.clone(), self.stop.clone()));
        }
    }
}

impl Built {
    fn on(machine: &Machine, backoff: Backoff) -> Self {
        let (wake, woken) = unbounded();
        let (networks, changed_networks) = unbounded();
        Self {
            outside: machine.outside(backoff, wake),
            woken: Some(woken),
            networks,
            changed_networks: Some(changed_networks),
        }
    }
}

impl Machine {
    /// What removes what nobody owns any more.
    fn sweep(&self) -> Sweep {
        Sweep { engine: Arc::clone(&self.engine), folders: pair_folders(&self.folder), instance: self.instance.clone() }
    }

    fn watchdog(&self, backoff: Backoff) -> Option<Watchdog<'_>> {
        self.watchdog.as_ref().map(|command| Watchdog::start(&self.program, command, backoff))
    }

    fn outside(&self, backoff: Backoff, wake: UnboundedSender<Key>) -> Outside {
        let engine = &self.engine;
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

fn interest_in(
    interest: fn(&ObjectMeta) -> Option<Interest>,
) -> impl FnMut(ObjectMeta) -> future::Ready<Option<Interest>> {
    move |meta| future::ready(interest(&meta))
}

fn service(meta: &ObjectMeta) -> Option<Interest> {
    Some(Interest::Service(meta.namespace.clone()?, meta.name.clone()?))
}

fn service_of_slice(meta: &ObjectMeta) -> Option<Interest> {
    let service = meta.labels.as_ref()?.get("kubernetes.io/service-name")?;
    Some(Interest::Service(meta.namespace.clone()?, service.clone()))
}
