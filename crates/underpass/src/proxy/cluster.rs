//! What a cluster says about one ProxyServer and about what it leads to, watched.
//!
//! Only the namespaces are looked at to which its backends lead: in no other has the proxy any rights. Nothing is said before all of them
//! have been seen, so that a manager that starts anew does not take away what it only does not know yet; a namespace that may not be seen
//! is not waited for, and what fails only as long as the patience lasts.

mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::runtime::watcher::{Config, DefaultBackoff, Event};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};
use underpass_operator::Answer;
use underpass_plan::proxy_server::{Cluster, Observed, external_name, relay_table};
use underpass_resources::ProxyServer;
use underpass_tables::RelayTable;

use names::Names;

/// Changes that wait to be looked at; more make the watches wait.
const WAITING: usize = 256;
/// How soon a watch that failed is begun again, before it takes the time that is usual: the right to look into a namespace comes a moment after
/// the backend that leads there.
const FIRST_PAUSES: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(100), Duration::from_millis(200), Duration::from_millis(400)];
/// How long other changes wait for names that are new: mostly they are resolved by then, and a Service that gets another name turns nobody
/// away in between.
const NEW_NAMES_TIME: Duration = Duration::from_millis(500);
/// What an API server has decided when it says so: we are nobody, or may not look, or there is nothing of the kind. It will say so again.
const VERDICTS: [u16; 3] = [401, 403, 404];

pub(crate) struct ClusterFeed {
    client: Client,
    namespace: String,
    name: String,
    pod_ip: Option<IpAddr>,
    /// How long the first table waits for what fails, and may work again.
    patience: Duration,
    /// None: it is not known yet what there is to wait for.
    patient_until: Option<Instant>,
    told: mpsc::Receiver<Change>,
    tell: mpsc::Sender<Change>,
    /// Ends with this value.
    _own: JoinSet<()>,
    proxy: Known<ProxyServer>,
    /// The one that said the last table: there may be a newer one, of which not everything has been seen.
    said: Option<Arc<ProxyServer>>,
    targets: BTreeMap<String, Targets>,
    names: Names,
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
    /// Nothing was ever seen.
    Blocked(Trouble),
}

/// Why there is nothing to see.
#[derive(Clone, Debug)]
struct Trouble {
    reason: String,
    /// Whether the API server has decided so. Anything else may pass.
    is_verdict: bool,
}

type Told<K> = Result<Event<K>, Trouble>;

enum Change {
    Proxy(Box<Told<ProxyServer>>),
    Service(String, Box<Told<Service>>),
    Slice(String, Box<Told<EndpointSlice>>),
}

impl ClusterFeed {
    pub(crate) fn open(
        client: Client,
        namespace: &str,
        name: &str,
        pod_ip: Option<IpAddr>,
        patience: Duration,
    ) -> Self {
        let (tell, told) = mpsc::channel(WAITING);
        let mut own = JoinSet::new();
        let proxies: Api<ProxyServer> = Api::namespaced(client.clone(), namespace);
        let only = underpass_operator::watch().fields(&format!("metadata.name={name}"));
        own.spawn(watch(proxies, only, tell.clone(), |told| Change::Proxy(Box::new(told))));
        Self {
            client,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            pod_ip,
            patience,
            patient_until: None,
            told,
            tell,
            _own: own,
            proxy: Known::default(),
            said: None,
            targets: BTreeMap::new(),
            names: Names::new(),
            has_news: false,
            generation: 0,
        }
    }

    pub(crate) fn name(&self) -> String {
        format!("ProxyServer {}/{}", self.namespace, self.name)
    }

    /// As it was when it said the last table.
    pub(crate) fn proxy(&self) -> Option<Arc<ProxyServer>> {
        self.said.clone()
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
            let patient_until = self.patient_until.filter(|_| self.is_patient());
            tokio::select! {
                Some(change) = self.told.recv() => {
                    self.hear(change);
                    while let Ok(change) = self.told.try_recv() {
                        self.hear(change);
                    }
                    self.follow_targets();
                }
                changed = self.names.next() => self.has_news |= changed,
                () = sleep_until(patient_until.unwrap_or_else(Instant::now)), if patient_until.is_some() => {}
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
        self.patient_until.get_or_insert_with(|| Instant::now() + self.patience);
        self.targets.retain(|namespace, _| wanted.contains(namespace.as_str()));
        for namespace in wanted {
            if !self.targets.contains_key(namespace) {
                self.targets.insert(namespace.to_owned(), Targets::watch(&self.client, namespace, &self.tell));
            }
        }
    }

    /// Whether what fails is still waited for.
    fn is_patient(&self) -> bool {
        self.generation == 0 && self.patient_until.is_some_and(|until| Instant::now() < until)
    }

    fn sees_everything(&self) -> bool {
        let is_patient = self.is_patient();
        let is_settled = |sight: &Sight| sight.is_settled(is_patient);
        self.targets.values().all(|targets| is_settled(&targets.services.sight) && is_settled(&targets.slices.sight))
    }

    /// Those to which backends lead. Of the others in the same namespaces one may have no answer, and nobody waits for it.
    fn names_outside(&self) -> BTreeSet<String> {
        let backends = self.proxy.objects.get(&self.name).into_iter().flat_map(|proxy| &proxy.spec.backends);
        let services = backends.filter_map(|backend| {
            let targets = self.targets.get(&*backend.target_namespace)?;
            targets.services.objects.get(&*backend.target_service)
        });
        services.filter_map(external_name).map(str::to_owned).collect()
    }

    async fn resolve_names(&mut self) {
        self.names.follow(self.names_outside());
        if self.generation == 0 {
            // The data plane may still have what an earlier process told it.
            self.names.all_answered().await;
            let _ = timeout(self.patience, self.names.all_found()).await;
        } else {
            // Those that take longer are told when they are known.
            let _ = timeout(NEW_NAMES_TIME, self.names.all_answered()).await;
        }
    }

    fn table(&mut self) -> RelayTable {
        self.generation += 1;
        self.said = self.proxy.objects.get(&self.name).cloned().map(Arc::new);
        let blocked = |targets: &Targets| match (&targets.services.sight, &targets.slices.sight) {
            (Sight::Blocked(trouble), _) | (_, Sight::Blocked(trouble)) => Some(trouble.reason.clone()),
            _ => None,
        };
        let unknown =
            self.targets.iter().filter_map(|(namespace, targets)| Some((namespace.clone(), blocked(targets)?)));
        let cluster = Cluster { names: self.names.answers(), unknown: unknown.collect(), pod_ip: self.pod_ip };
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
        watches.spawn(watch(services, underpass_operator::watch(), tell.clone(), move |told| {
            Change::Service(one.clone(), Box::new(told))
        }));
        watches.spawn(watch(slices, underpass_operator::watch(), tell.clone(), move |told| {
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
    let mut told = std::pin::pin!(watcher(api, config).map_err(why));
    let mut pauses = Pauses::default();
    while let Some(event) = told.next().await {
        let pause = pauses.after(&event);
        if let Err(Trouble { reason, .. }) = &event {
            warn!("failed to watch {}: {reason}", K::plural(&()));
        }
        if tell.send(change(event)).await.is_err() {
            return;
        }
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
        }
    }
}

/// Between the tries of a watch.
#[derive(Default)]
struct Pauses {
    /// Of the first ones.
    taken: usize,
    usual: DefaultBackoff,
}

impl Pauses {
    /// How long to wait after that.
    fn after<K>(&mut self, told: &Told<K>) -> Option<Duration> {
        match told {
            Err(_) => {
                self.taken += 1;
                FIRST_PAUSES.get(self.taken - 1).copied().or_else(|| self.usual.next())
            }
            // A try that begins has not succeeded yet.
            Ok(Event::Init) => None,
            Ok(_) => {
                *self = Self::default();
                None
            }
        }
    }
}

fn why(error: watcher::Error) -> Trouble {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => {
            let answer = Answer::from(error);
            let is_verdict = answer.status().is_some_and(|status| VERDICTS.contains(&status.code));
            Trouble { reason: answer.to_string(), is_verdict }
        }
        error => Trouble { reason: error.to_string(), is_verdict: false },
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
            Err(trouble) => {
                self.sight = Sight::Blocked(trouble);
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
    /// Whether there is nothing to wait for, with or without patience for what fails.
    fn is_settled(&self, is_patient: bool) -> bool {
        match self {
            Self::NotYet => false,
            Self::Clear => true,
            Self::Blocked(trouble) => trouble.is_verdict || !is_patient,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::FutureExt;
    use http::{Request, Response};
    use kube::client::Body;
    use kube::core::response::Status;
    use serde_json::{Value, from_value, json};
    use tower::service_fn;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Of a cluster that said what is in these objects, and that every name outside is looked for in vain.
    fn feed_of(proxy: Value, services: &[Value]) -> ClusterFeed {
        let mut feed = feed_that_waits_for_slices(proxy, services);
        feed.hear(Change::Slice("cp".to_owned(), Box::new(Ok(Event::InitDone))));
        feed
    }

    fn feed_that_waits_for_slices(proxy: Value, services: &[Value]) -> ClusterFeed {
        let silent = service_fn(|_: Request<Body>| pending::<Result<Response<Body>, std::io::Error>>());
        let mut feed = ClusterFeed::open(Client::new(silent, "cp"), "cp", "edge", None, PATIENCE);
        feed.names = Names::resolved_by(|_| pending().boxed());
        feed.hear(Change::Proxy(Box::new(Ok(Event::Apply(from_value(proxy).unwrap())))));
        feed.follow_targets();
        let listed = services.iter().map(|service| Event::InitApply(from_value(service.clone()).unwrap()));
        for event in listed.chain([Event::InitDone]) {
            feed.hear(Change::Service("cp".to_owned(), Box::new(Ok(event))));
        }
        feed
    }

    /// With one backend, which leads to Service web of that namespace.
    fn proxy(generation: u8, namespace: &str) -> Value {
        json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer",
            "metadata": { "name": "edge", "namespace": "cp", "generation": generation },
            "spec": {
                "networkConfig": { "serverIP": "192.0.2.4/24" },
                "backends": [{
                    "name": "web", "hostname": "web.example.com", "port": 443,
                    "targetService": "web", "targetNamespace": namespace, "targetPort": 443,
                }],
            },
        })
    }

    fn known(name: &str) -> Value {
        json!({ "metadata": { "name": name, "namespace": "cp" }, "spec": { "ports": [{ "port": 443 }] } })
    }

    fn nowhere(name: &str) -> Value {
        json!({
            "metadata": { "name": name, "namespace": "cp" },
            "spec": { "type": "ExternalName", "externalName": "nowhere.invalid" },
        })
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_first_table_waits_for_a_name_that_nobody_knows() {
        let mut feed = feed_of(proxy(1, "cp"), &[nowhere("web")]);
        let patience = NEW_NAMES_TIME * 2;
        assert!(timeout(patience, feed.next()).await.is_err(), "it would take away what is only not known yet");
        feed.generation = 1;
        let table = timeout(patience, feed.next()).await.expect("other changes do not wait");
        let trouble = table.routes[0].trouble.as_deref().unwrap();
        assert!(trouble.ends_with("leads to nowhere.invalid, which is being resolved"), "{trouble}");
    }

    fn slices_fail(feed: &mut ClusterFeed, code: u16) {
        let status = Status { code, message: format!("code {code}"), ..Status::default() };
        let trouble = why(watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status))));
        feed.hear(Change::Slice("cp".to_owned(), Box::new(Err(trouble))));
    }

    /// The Envoy of a manager that was killed has endpoints, and serves them.
    #[tokio::test(start_paused = true)]
    async fn the_first_table_waits_for_a_fault_to_pass() {
        let mut feed = feed_that_waits_for_slices(proxy(1, "cp"), &[known("web")]);
        slices_fail(&mut feed, 503);
        assert!(timeout(PATIENCE / 2, feed.next()).await.is_err(), "it would take away what is only not known yet");
        feed.hear(Change::Slice("cp".to_owned(), Box::new(Ok(Event::InitDone))));
        let table = feed.next().now_or_never().expect("everything is known");
        let trouble = table.routes[0].trouble.as_deref().unwrap();
        assert!(!trouble.contains("cannot be seen"), "{trouble}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_that_stays_is_told_in_the_end() {
        let mut feed = feed_that_waits_for_slices(proxy(1, "cp"), &[known("web")]);
        slices_fail(&mut feed, 503);
        let table = timeout(PATIENCE + NEW_NAMES_TIME, feed.next()).await.expect("others are not to wait for ever");
        let trouble = table.routes[0].trouble.as_deref().unwrap();
        assert_eq!(trouble, "the services of namespace cp cannot be seen: code 503");
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_may_not_be_seen_is_not_waited_for() {
        for code in VERDICTS {
            let mut feed = feed_that_waits_for_slices(proxy(1, "cp"), &[known("web")]);
            slices_fail(&mut feed, code);
            feed.next().now_or_never().unwrap_or_else(|| panic!("{code} is waited for"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_first_table_waits_for_faults() {
        let mut feed = feed_of(proxy(1, "cp"), &[known("web")]);
        feed.next().await;
        feed.hear(Change::Proxy(Box::new(Ok(Event::Apply(from_value(proxy(2, "cp")).unwrap())))));
        feed.targets.get_mut("cp").unwrap().slices.sight = Sight::NotYet;
        slices_fail(&mut feed, 503);
        feed.next().now_or_never().expect("other changes do not wait");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_table_waits_for_a_name_that_cannot_be_resolved_for_a_moment() {
        let mut feed = feed_of(proxy(1, "cp"), &[nowhere("web")]);
        feed.names = Names::resolved_by(|_| ready(Err("no answer in time".to_owned())).boxed());
        assert!(timeout(PATIENCE / 2, feed.next()).await.is_err(), "it would take away what is only not known yet");
        let table = timeout(PATIENCE + NEW_NAMES_TIME, feed.next()).await.expect("others are not to wait for ever");
        let trouble = table.routes[0].trouble.as_deref().unwrap();
        assert!(trouble.ends_with("which cannot be resolved: no answer in time"), "{trouble}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_to_which_no_backend_leads_is_nobodys_business() {
        let mut feed = feed_of(proxy(1, "cp"), &[known("web"), nowhere("of-somebody-else")]);
        timeout(NEW_NAMES_TIME, feed.next()).await.expect("nothing here has to be resolved");
        assert_eq!(feed.names_outside(), BTreeSet::new());
    }

    /// A report has the generation of what is in force, not of what was heard.
    #[tokio::test(start_paused = true)]
    async fn a_proxy_stays_with_its_table_until_there_is_another() {
        let mut feed = feed_of(proxy(1, "cp"), &[known("web")]);
        let generation = |feed: &ClusterFeed| feed.proxy().and_then(|proxy| proxy.metadata.generation);
        assert_eq!(generation(&feed), None);
        feed.next().await;
        feed.hear(Change::Proxy(Box::new(Ok(Event::Apply(from_value(proxy(2, "elsewhere")).unwrap())))));
        feed.follow_targets();
        assert!(timeout(Duration::from_secs(1), feed.next()).await.is_err(), "elsewhere has not been seen");
        assert_eq!(generation(&feed), Some(1));
        feed.hear(Change::Service("elsewhere".to_owned(), Box::new(Ok(Event::InitDone))));
        feed.hear(Change::Slice("elsewhere".to_owned(), Box::new(Ok(Event::InitDone))));
        feed.next().await;
        assert_eq!(generation(&feed), Some(2));
    }

    /// What a watch says that is not allowed to list.
    fn forbidden(pauses: &mut Pauses) -> Duration {
        assert_eq!(pauses.after::<Service>(&Ok(Event::Init)), None);
        pauses.after::<Service>(&Err(Trouble { reason: "forbidden".to_owned(), is_verdict: true })).unwrap()
    }

    #[test]
    fn a_watch_is_tried_again_soon_but_not_for_ever_so() {
        let mut pauses = Pauses::default();
        let first: Vec<Duration> = (0..4).map(|_| forbidden(&mut pauses)).collect();
        assert_eq!(first, FIRST_PAUSES);
        let later: Vec<Duration> = (0..10).map(|_| forbidden(&mut pauses)).collect();
        assert!(later.iter().all(|pause| *pause >= Duration::from_millis(800)), "{later:?}");
        assert!(later[6..].iter().all(|pause| *pause >= Duration::from_secs(30)), "less and less often: {later:?}");
        assert_eq!(pauses.after::<Service>(&Ok(Event::InitDone)), None);
        assert_eq!(forbidden(&mut pauses), FIRST_PAUSES[0], "what worked is tried again soon");
    }
}
