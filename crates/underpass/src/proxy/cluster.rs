//! What a cluster says about one ProxyServer and about what it leads to, watched.
//!
//! Only the namespaces are looked at to which its backends lead: in no other has the proxy any rights. Nothing is said before all of them
//! have been seen, so that a manager that starts anew does not take away what it only does not know yet; a namespace that cannot be seen
//! is not waited for.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tracing::{info, warn};
use underpass_operator::Answer;
use underpass_plan::proxy_server::{Cluster, Observed, external_name, relay_table};
use underpass_resources::ProxyServer;
use underpass_tables::RelayTable;

/// Changes that wait to be looked at; more make the watches wait.
const WAITING: usize = 256;
/// How often names outside of the cluster are resolved again.
const RESOLVE_EVERY: Duration = Duration::from_secs(30);
/// Everything else waits meanwhile.
const RESOLVE_TIME: Duration = Duration::from_secs(2);

pub(crate) struct ClusterFeed {
    client: Client,
    namespace: String,
    name: String,
    told: mpsc::Receiver<Change>,
    tell: mpsc::Sender<Change>,
    /// Ends with this value.
    _own: JoinSet<()>,
    proxy: Known<ProxyServer>,
    targets: BTreeMap<String, Targets>,
    names: BTreeMap<String, Result<Vec<IpAddr>, String>>,
    resolve: Interval,
    /// Whether something was heard that no table has said yet.
    has_news: bool,
    generation: u64,
}

/// What is known of one namespace.
struct Targets {
    services: Known<Service>,
    slices: Known<EndpointSlice>,
    /// End with this value.
    _watches: JoinSet<()>,
}

/// The objects of one watch, by name.
struct Known<K> {
    objects: BTreeMap<String, K>,
    /// Those of a list that has begun.
    listed: BTreeMap<String, K>,
    sight: Sight,
}

enum Sight {
    NotYet,
    Clear,
    /// Nothing was ever seen, and why.
    Blocked(String),
}

type Told<K> = Result<Event<K>, String>;

enum Change {
    Proxy(Box<Told<ProxyServer>>),
    Service(String, Box<Told<Service>>),
    Slice(String, Box<Told<EndpointSlice>>),
}

impl ClusterFeed {
    pub(crate) fn open(client: Client, namespace: &str, name: &str) -> Self {
        let (tell, told) = mpsc::channel(WAITING);
        let mut own = JoinSet::new();
        let proxies: Api<ProxyServer> = Api::namespaced(client.clone(), namespace);
        let only = Config::default().fields(&format!("metadata.name={name}"));
        own.spawn(watch(proxies, only, tell.clone(), |told| Change::Proxy(Box::new(told))));
        let mut resolve = interval_at(Instant::now() + RESOLVE_EVERY, RESOLVE_EVERY);
        resolve.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            client,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            told,
            tell,
            _own: own,
            proxy: Known::default(),
            targets: BTreeMap::new(),
            names: BTreeMap::new(),
            resolve,
            has_news: false,
            generation: 0,
        }
    }

    pub(crate) fn name(&self) -> String {
        format!("ProxyServer {}/{}", self.namespace, self.name)
    }

    /// As it was seen last.
    pub(crate) fn proxy(&self) -> Option<Arc<ProxyServer>> {
        self.proxy.objects.get(&self.name).cloned().map(Arc::new)
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// The next table. What it says may be what was said before. Nothing is lost when this is dropped.
    pub(crate) async fn next(&mut self) -> RelayTable {
        loop {
            if self.has_news && !self.proxy.objects.is_empty() && self.sees_everything() {
                self.resolve_names().await;
                self.has_news = false;
                return self.table();
            }
            tokio::select! {
                Some(change) = self.told.recv() => {
                    self.hear(change);
                    while let Ok(change) = self.told.try_recv() {
                        self.hear(change);
                    }
                    self.follow_targets();
                }
                _ = self.resolve.tick() => {
                    self.names.clear();
                    self.has_news = true;
                }
            }
        }
    }

    fn hear(&mut self, change: Change) {
        self.has_news |= match change {
            Change::Proxy(told) => self.proxy.hear(*told, same_spec),
            Change::Service(namespace, told) => match self.targets.get_mut(&namespace) {
                Some(targets) => targets.services.hear(*told, |one, other| one.spec == other.spec),
                None => false,
            },
            Change::Slice(namespace, told) => match self.targets.get_mut(&namespace) {
                Some(targets) => targets.slices.hear(*told, same_endpoints),
                None => false,
            },
        };
    }

    /// Watches the namespaces that the backends lead to, and no others.
    fn follow_targets(&mut self) {
        let Some(proxy) = self.proxy.objects.get(&self.name) else { return };
        let wanted: BTreeSet<&str> = proxy.spec.backends.iter().map(|backend| &*backend.target_namespace).collect();
        self.targets.retain(|namespace, _| wanted.contains(namespace.as_str()));
        for namespace in wanted {
            if !self.targets.contains_key(namespace) {
                self.targets.insert(namespace.to_owned(), Targets::watch(&self.client, namespace, &self.tell));
            }
        }
    }

    fn sees_everything(&self) -> bool {
        self.targets.values().all(|targets| targets.services.sight.is_settled() && targets.slices.sight.is_settled())
    }

    async fn resolve_names(&mut self) {
        let services = self.targets.values().flat_map(|targets| targets.services.objects.values());
        let wanted: BTreeSet<String> = services.filter_map(external_name).map(str::to_owned).collect();
        self.names.retain(|name, _| wanted.contains(name));
        for name in wanted {
            if let Entry::Vacant(unknown) = self.names.entry(name) {
                let found = resolve(unknown.key()).await;
                unknown.insert(found);
            }
        }
    }

    fn table(&mut self) -> RelayTable {
        self.generation += 1;
        let blocked = |targets: &Targets| match (&targets.services.sight, &targets.slices.sight) {
            (Sight::Blocked(reason), _) | (_, Sight::Blocked(reason)) => Some(reason.clone()),
            _ => None,
        };
        let unknown =
            self.targets.iter().filter_map(|(namespace, targets)| Some((namespace.clone(), blocked(targets)?)));
        let cluster = Cluster { names: self.names.clone(), unknown: unknown.collect() };
        let observed = Observed {
            proxies: self.proxy.objects.values().collect(),
            services: self.targets.values().flat_map(|targets| targets.services.objects.values()).collect(),
            slices: self.targets.values().flat_map(|targets| targets.slices.objects.values()).collect(),
            cluster: Some(&cluster),
        };
        relay_table(self.generation, &observed)
    }
}

impl Targets {
    fn watch(client: &Client, namespace: &str, tell: &mpsc::Sender<Change>) -> Self {
        info!(namespace, "watching services and their endpoints");
        let mut watches = JoinSet::new();
        let services: Api<Service> = Api::namespaced(client.clone(), namespace);
        let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
        let of = || namespace.to_owned();
        let (one, other) = (of(), of());
        watches.spawn(watch(services, Config::default(), tell.clone(), move |told| {
            Change::Service(one.clone(), Box::new(told))
        }));
        watches.spawn(watch(slices, Config::default(), tell.clone(), move |told| {
            Change::Slice(other.clone(), Box::new(told))
        }));
        Self { services: Known::default(), slices: Known::default(), _watches: watches }
    }
}

/// Tells what changes for ever; what goes wrong is told too, and tried again.
async fn watch<K>(api: Api<K>, config: Config, tell: mpsc::Sender<Change>, change: impl Fn(Told<K>) -> Change + Send)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let told = watcher(api, config).default_backoff().map_err(why);
    let mut told = std::pin::pin!(told);
    while let Some(event) = told.next().await {
        if let Err(reason) = &event {
            warn!("failed to watch {}: {reason}", K::plural(&()));
        }
        if tell.send(change(event)).await.is_err() {
            return;
        }
    }
}

async fn resolve(name: &str) -> Result<Vec<IpAddr>, String> {
    let found = tokio::time::timeout(RESOLVE_TIME, tokio::net::lookup_host((name, 0))).await;
    let found = found.map_err(|_| "no answer in time".to_owned())?.map_err(|error| error.to_string())?;
    Ok(found.map(|address| address.ip()).collect())
}

fn why(error: watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Answer::from(error).to_string(),
        error => error.to_string(),
    }
}

impl<K> Default for Known<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listed: BTreeMap::new(), sight: Sight::NotYet }
    }
}

impl<K: ResourceExt> Known<K> {
    /// Whether that changes anything for who only looks at what `same` looks at.
    fn hear(&mut self, told: Told<K>, same: impl Fn(&K, &K) -> bool) -> bool {
        match told {
            Ok(Event::Apply(object)) => {
                let name = object.name_any();
                let known = self.objects.get(&name).is_some_and(|before| same(before, &object));
                self.objects.insert(name, object);
                !known
            }
            Ok(Event::Delete(object)) => self.objects.remove(&object.name_any()).is_some(),
            Ok(Event::Init) => {
                self.listed.clear();
                false
            }
            Ok(Event::InitApply(object)) => {
                self.listed.insert(object.name_any(), object);
                false
            }
            Ok(Event::InitDone) => {
                self.objects = std::mem::take(&mut self.listed);
                self.sight = Sight::Clear;
                true
            }
            // What was seen once is better than nothing.
            Err(_) if matches!(self.sight, Sight::Clear) => false,
            Err(reason) => {
                self.sight = Sight::Blocked(reason);
                true
            }
        }
    }
}

/// The status is written by ourselves, among others.
fn same_spec(one: &ProxyServer, other: &ProxyServer) -> bool {
    one.metadata.uid == other.metadata.uid && one.metadata.generation == other.metadata.generation
}

fn same_endpoints(one: &EndpointSlice, other: &EndpointSlice) -> bool {
    one.metadata.labels == other.metadata.labels && one.endpoints == other.endpoints && one.ports == other.ports
}

impl Sight {
    fn is_settled(&self) -> bool {
        !matches!(self, Self::NotYet)
    }
}
