//! Everything that changes while a proxy works, five hundred times, while two hundred connections last.
//!
//! A change is a write that the API server has answered. It is obeyed when new connections do what it says; until then they do what held before, and
//! nothing else.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use underpass_resources::ProxyServer;
use underpass_testbed::tenant::{Door, NOBODY};
use underpass_testbed::{HostedControlPlane, HostedService, Lab, LabNamespace, PATIENCE, Tenant, wait_until};

use super::{Plane, Site, backend};

const STREAMS: usize = 200;
/// Each of nine changes, and some of eleven: with the restarts they are five hundred.
const ROUNDS: usize = 53;
/// How many rounds there are for each in which a namespace comes and goes: the operator has something to do then, too.
const ROUNDS_PER_NAMESPACE: usize = 5;
const RESTARTS: usize = 5;
/// For as long as that a pod that is to end serves on: whoever began to speak with it comes to an end on a busy machine, too.
const GRACE_SECONDS: u32 = 10;
/// A data plane has several threads, which need not learn of a change at the same time.
const IN_A_ROW: usize = 3;
/// Of two endpoints each is chosen about every other time.
const NEVER_THE_OTHER: usize = 12;

const PORT: u16 = 6443;
const OTHER_PORT: u16 = 7443;

/// `turn` is taken once everything stands, and kept until the end.
pub(super) fn changes_are_obeyed_and_no_connection_breaks(lab: &Lab, plane: Plane, subnet: u8, turn: &Mutex<()>) {
    let site = Site::new(lab, plane, subnet);
    let (target, away) = (lab.namespace("target"), lab.namespace("away"));
    let service = |name| HostedService::tls(name, PORT, &["*.example.com"]);
    let services = [service("one"), service("two"), service("rolling").grace_seconds(GRACE_SECONDS)];
    let hosted = HostedControlPlane::start(lab, &target, &services);
    let hand = Hand::of(&site, &target, &away);
    hand.make_services();
    site.apply(&site.proxy("edge", &hand.lasting()));
    site.is_ready("edge");
    let (vm, pod) = (lab.machine(&format!("192.168.{subnet}.50/24")), site.pod("edge"));
    let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    let mut tenant = Tenant::on(&vm, &site.server_ip(), &hosted.authority());
    for name in ["one", "two"] {
        tenant.stream(&door(name), &hosted.name_of(name), STREAMS / 2);
    }
    tenant.watch(&door("rolling"), &hosted.name_of("rolling"));
    let mut load = Load { hand, tenant, who: [hosted.name_of("one"), hosted.name_of("two")], took: BTreeMap::new() };
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| restart_again_and_again(&target));
        for round in 0..ROUNDS {
            load.round(round);
        }
    });
    load.tell(plane, begun.elapsed());
    load.nothing_broke();
    let restarts = if plane == Plane::Native { "0" } else { "0 0" };
    assert_eq!((site.pod("edge"), site.restarts(&pod)), (pod.clone(), restarts.to_owned()), "nothing started anew");
    site.is_ready("edge");
}

/// As whoever brings a new version of a server does.
fn restart_again_and_again(target: &LabNamespace) {
    for _ in 0..RESTARTS {
        target.kubectl.ok("rollout restart deployment/rolling");
        target.kubectl.ok("rollout status deployment/rolling --timeout=110s");
    }
}

fn door(name: &str) -> Door {
    Door::new(&format!("{name}.example.com"), PORT)
}

/// What is changed, and how long it took.
struct Load<'a> {
    hand: Hand<'a>,
    tenant: Tenant,
    /// What the Services `one` and `two` call themselves.
    who: [String; 2],
    took: BTreeMap<&'static str, Vec<Duration>>,
}

impl Load<'_> {
    /// The two Services take turns in what they are to others.
    fn round(&mut self, round: usize) {
        let (this, that) = (round % 2, (round + 1) % 2);
        self.backends_come_and_go(this, that);
        self.endpoints_come_and_go(this, that);
        let written = self.hand.select(that);
        let (before, after) = (self.who[this].clone(), self.who[that].clone());
        self.is_obeyed("a Service's selector", written, &door("switched"), &[&before], &after, IN_A_ROW);
        if round % ROUNDS_PER_NAMESPACE == ROUNDS_PER_NAMESPACE - 1 {
            self.a_namespace_comes_and_goes();
        }
    }

    /// One to which no backend has led: the proxy gets the right to look into it first.
    fn a_namespace_comes_and_goes(&mut self) {
        const WHAT: &str = "the namespaces that are led to";
        let (away, who) = (door("away"), self.who[0].clone());
        let written = self.hand.declare(&[backend("away", &away.name, PORT, "by-hand", self.hand.away)]);
        self.is_obeyed(WHAT, written, &away, &[NOBODY], &who, IN_A_ROW);
        let written = self.hand.declare(&[]);
        self.is_obeyed(WHAT, written, &away, &[&who], NOBODY, IN_A_ROW);
    }

    fn backends_come_and_go(&mut self, this: usize, that: usize) {
        const WHAT: &str = "the ProxyServer";
        let [this_one, that_one] = [this, that].map(|number| self.who[number].clone());
        let (late, other_port) = (door("late"), Door::new("late.example.com", OTHER_PORT));
        let at = |number: usize, port: u16| {
            let mut entry = self.hand.backend(&format!("late-{port}"), "late", ["one", "two"][number]);
            entry["port"] = json!(port);
            entry
        };
        let (to_this, to_that, elsewhere) = (at(this, PORT), at(that, PORT), at(this, OTHER_PORT));
        let written = self.hand.declare(&[to_this]);
        self.is_obeyed(WHAT, written, &late, &[NOBODY], &this_one, IN_A_ROW);
        let written = self.hand.declare(std::slice::from_ref(&to_that));
        self.is_obeyed(WHAT, written, &late, &[&this_one], &that_one, IN_A_ROW);
        let written = self.hand.declare(&[to_that.clone(), elsewhere]);
        self.is_obeyed(WHAT, written, &other_port, &[NOBODY], &this_one, IN_A_ROW);
        let written = self.hand.declare(&[to_that]);
        self.is_obeyed(WHAT, written, &other_port, &[&this_one], NOBODY, IN_A_ROW);
        let written = self.hand.declare(&[]);
        self.is_obeyed(WHAT, written, &late, &[&that_one], NOBODY, IN_A_ROW);
    }

    /// One instead of another, one more, and one that is not ready any more.
    fn endpoints_come_and_go(&mut self, this: usize, that: usize) {
        const WHAT: &str = "an EndpointSlice";
        let [this_one, that_one] = [this, that].map(|number| self.who[number].clone());
        let by_hand = door("by-hand");
        let written = self.hand.list(&[(that, true)]);
        self.is_obeyed(WHAT, written, &by_hand, &[&this_one], &that_one, IN_A_ROW);
        let written = self.hand.list(&[(this, true), (that, true)]);
        self.is_obeyed(WHAT, written, &by_hand, &[&that_one], &this_one, 1);
        let written = self.hand.list(&[(this, false), (that, true)]);
        self.is_obeyed(WHAT, written, &by_hand, &[&this_one], &that_one, NEVER_THE_OTHER);
    }

    #[track_caller]
    fn is_obeyed(
        &mut self,
        what: &'static str,
        written: Instant,
        door: &Door,
        before: &[&str],
        after: &str,
        in_a_row: usize,
    ) {
        let since = self.tenant.await_answer(door, before, after, in_a_row);
        self.took.entry(what).or_default().push(since.saturating_duration_since(written));
    }

    /// A timing is told, and decides nothing.
    #[allow(clippy::print_stdout, reason = "what was measured is told to whoever runs it with --nocapture")]
    fn tell(&self, plane: Plane, whole: Duration) {
        println!("{plane:?}: all changes, and {RESTARTS} restarts of a Deployment, in {whole:.1?}");
        let all = ("all", self.took.values().flatten().copied().collect());
        for (what, took) in self.took.clone().into_iter().chain([all]) {
            let mut took: Vec<Duration> = took;
            took.sort_unstable();
            let at = |percent: usize| took[(took.len() - 1) * percent / 100];
            let (count, p50, p99, most) = (took.len(), at(50), at(99), at(100));
            println!(
                "{plane:?}, {count} changes of {what}: obeyed after {p50:.1?} (p50), {p99:.1?} (p99), {most:.1?} (max)"
            );
        }
    }

    fn nothing_broke(&mut self) {
        let last = self.tenant.report().least;
        let report = wait_until("every stream goes on", PATIENCE, || {
            let report = self.tenant.report();
            (report.least > last + 2 || !report.broken.is_empty()).then_some(report)
        });
        assert_eq!((report.streams, report.broken), (STREAMS, Vec::new()), "after {:?}", report.longest_silence);
        assert!(report.watched > 0);
        assert_eq!(report.wrong, [""; 0], "of {} new connections", report.watched);
    }
}

/// Whoever writes to the API server: a process for each write would take longer than the change.
struct Hand<'a> {
    runtime: tokio::runtime::Runtime,
    proxies: Api<ProxyServer>,
    services: Api<Service>,
    slices: Api<EndpointSlice>,
    target: &'a LabNamespace,
    /// Has nothing but a Service.
    away: &'a LabNamespace,
    /// Of the pods behind the Services `one` and `two`.
    addresses: [String; 2],
}

impl<'a> Hand<'a> {
    fn of(site: &Site<'_>, target: &'a LabNamespace, away: &'a LabNamespace) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(site.lab.client());
        let address = |service| {
            target.kubectl.ok(&format!("get pods -l hosted={service} -o jsonpath={{.items[0].status.podIP}}"))
        };
        Self {
            runtime,
            proxies: Api::namespaced(client.clone(), &site.namespace.name),
            services: Api::namespaced(client.clone(), &target.name),
            slices: Api::namespaced(client, &target.name),
            target,
            away,
            addresses: [address("one"), address("two")],
        }
    }

    /// One of which we say ourselves where its endpoints are, and one that takes others' pods.
    fn make_services(&self) {
        let service = |name: &str| json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name } });
        let (mut by_hand, mut switched) = (service("by-hand"), service("switched"));
        by_hand["spec"] = json!({ "ports": [{ "port": PORT }] });
        switched["spec"] = json!({ "ports": [{ "port": PORT, "targetPort": 8443 }], "selector": { "hosted": "one" } });
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": "by-hand", "labels": { "kubernetes.io/service-name": "by-hand" } },
            "addressType": "IPv4", "ports": [{ "name": "", "port": 8443 }],
            "endpoints": self.endpoints(&[(0, true)]),
        });
        let list = |items: &[&Value]| json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string();
        self.target.kubectl.ok_with("apply -f -", &list(&[&by_hand, &switched, &slice]));
        self.away.kubectl.ok_with("apply -f -", &list(&[&by_hand, &slice]));
    }

    fn backend(&self, name: &str, host: &str, service: &str) -> Value {
        backend(name, &format!("{host}.example.com"), PORT, service, self.target)
    }

    /// Those that are always there.
    fn lasting(&self) -> Vec<Value> {
        ["one", "two", "rolling", "by-hand", "switched"].iter().map(|name| self.backend(name, name, name)).collect()
    }

    /// These, and those that are always there.
    fn declare(&self, backends: &[Value]) -> Instant {
        let backends = [&self.lasting(), backends].concat();
        self.write(&self.proxies, "edge", &json!({ "spec": { "backends": backends } }))
    }

    /// By number, and whether it is ready.
    fn list(&self, endpoints: &[(usize, bool)]) -> Instant {
        self.write(&self.slices, "by-hand", &json!({ "endpoints": self.endpoints(endpoints) }))
    }

    fn endpoints(&self, endpoints: &[(usize, bool)]) -> Vec<Value> {
        let entry = |(number, ready): &(usize, bool)| json!({ "addresses": [self.addresses[*number]], "conditions": { "ready": ready } });
        endpoints.iter().map(entry).collect()
    }

    fn select(&self, number: usize) -> Instant {
        let hosted = ["one", "two"][number];
        self.write(&self.services, "switched", &json!({ "spec": { "selector": { "hosted": hosted } } }))
    }

    /// When it was answered.
    fn write<K>(&self, objects: &Api<K>, name: &str, change: &Value) -> Instant
    where
        K: Clone + Debug + DeserializeOwned,
    {
        let patch = Patch::Merge(change);
        self.runtime.block_on(objects.patch(name, &PatchParams::default(), &patch)).unwrap();
        Instant::now()
    }
}
