//! `underpass floating-address` in pods on one switch, with a client beside them: one has the address, never two, and never long nobody.
//!
//! How long it took is printed and hardly judged: a machine may be busy. What is judged is the order.

#![allow(clippy::print_stdout, reason = "what was measured is of interest to people")]

mod pod;
mod slow;

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use underpass_testbed::{Kubectl, Launch, NetNamespace, PATIENCE, Signal, Switch, Underpass, wait_until};

use self::pod::{LEASE, Pod, is_here, who_answers};
use self::slow::SlowServer;
use crate::{BINARY, assert_contains};

const CONFLICT: &str = "/metadata/annotations/underpass.dev~1address-conflict";
const LATE: &str = "/metadata/annotations/underpass.dev~1address-late";
/// More than lets the address stay, and less than a server has for an answer.
const TOO_LATE: Duration = Duration::from_millis(330);
const GATEWAY: &str = "192.168.100.250";
/// What is promised is 3 seconds; this is for a machine that does other things too.
const LONGEST_GAP: Duration = Duration::from_secs(10);

/// The network, the API server on it, and who is there.
struct Scene {
    pods: Vec<Pod>,
    client: NetNamespace,
    server: Underpass,
    switch: Switch,
    /// With the length of its prefix.
    address: &'static str,
}

impl Scene {
    /// So many pods that do not compete yet.
    #[track_caller]
    fn new(address: &'static str, pods: usize) -> Self {
        let own = |host: usize| match address.contains(':') {
            true => format!("fd00:100::{host}/64"),
            false => format!("192.168.100.{host}/24"),
        };
        let switch = Switch::new(&own(250));
        let listen = if address.contains(':') { "[fd00:100::250]:0" } else { "192.168.100.250:0" };
        let server = Launch::command("ip", "netns")
            .args(["exec", switch.namespace().name(), BINARY, "apiserver", "--listen", listen])
            .start();
        let client = switch.machine("client", &own(200));
        let pods = (0..pods).map(|number| Pod::new(&switch, &format!("pod-{number}"), &own(11 + number))).collect();
        Self { pods, client, server, switch, address }
    }

    /// The same, and all compete.
    #[track_caller]
    fn competing(address: &'static str, pods: usize) -> Self {
        let mut scene = Self::new(address, pods);
        scene.compete();
        scene
    }

    fn compete(&mut self) {
        for pod in &mut self.pods {
            pod.compete(self.address, self.server.kubeconfig());
        }
    }

    fn ip(&self) -> IpAddr {
        self.address.split('/').next().unwrap().parse().unwrap()
    }

    /// Waits until a client is served by one of them other than `not`, and tells by which.
    #[track_caller]
    fn served_by_another(&self, not: Option<usize>) -> usize {
        wait_until("a pod that answers at the address", PATIENCE, || {
            let name = who_answers(&self.client, self.ip())?;
            self.pods.iter().position(|pod| pod.name == name).filter(|number| Some(*number) != not)
        })
    }

    #[track_caller]
    fn served(&self) -> usize {
        self.served_by_another(None)
    }

    fn has(&self, pod: usize) -> bool {
        let ip = self.ip();
        self.pods[pod].namespace.within(|| is_here(ip))
    }

    /// What kubectl says, with `-o json`.
    #[track_caller]
    fn kubectl(&self, line: &str) -> Value {
        let kubectl = Kubectl::new(self.server.kubeconfig());
        self.switch.namespace().within(|| kubectl.json(line))
    }

    #[track_caller]
    fn delete_lease(&self) {
        let kubectl = Kubectl::new(self.server.kubeconfig());
        self.switch.namespace().within(|| kubectl.ok(&format!("delete lease {LEASE}")));
    }

    #[track_caller]
    fn lease(&self) -> Value {
        let leases = self.kubectl("get leases");
        let mut leases = leases["items"].as_array().unwrap().iter();
        leases.find(|lease| lease["metadata"]["name"] == LEASE).cloned().unwrap_or_default()
    }

    /// The pod in the lease.
    #[track_caller]
    fn holder(&self) -> String {
        let lease = self.lease();
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().split('_').next().unwrap().to_owned()
    }

    fn observe(&self) -> Observer {
        Observer::start(self.ip(), self.pods.iter().map(|pod| Arc::clone(&pod.namespace)).collect())
    }
}

/// Looks at all pods again and again, and at those that have the address once more, before it says that two have it.
struct Observer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    looks: usize,
    /// Who had it, one after another.
    order: Vec<usize>,
    together: Vec<Vec<usize>>,
    /// The least time between one who was seen with it for the last time and the next.
    between: Option<Duration>,
}

impl Observer {
    fn start(address: IpAddr, pods: Vec<Arc<NetNamespace>>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut seen, mut last) = (Seen::default(), None);
            while !stopped.load(Ordering::Relaxed) {
                seen.look(address, &pods, &mut last);
                std::thread::sleep(Duration::from_millis(1));
            }
            seen
        });
        Self { stop, thread: Some(thread) }
    }

    /// What was seen so far, when there never were two.
    #[track_caller]
    fn never_two(mut self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        let seen = self.thread.take().unwrap().join().unwrap();
        assert!(seen.looks > 10, "{seen:?}");
        assert_eq!(seen.together, Vec::<Vec<usize>>::new(), "{seen:?}");
        seen
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Seen {
    fn look(&mut self, address: IpAddr, pods: &[Arc<NetNamespace>], last: &mut Option<Instant>) {
        let having = |numbers: Vec<usize>| -> Vec<usize> {
            numbers.into_iter().filter(|number| (pods[*number].enter(), is_here(address)).1).collect()
        };
        self.looks += 1;
        let first = having((0..pods.len()).collect());
        // One may have left before the next came: whoever is still there was there all the time.
        let still = if first.len() > 1 { having(first.clone()) } else { first };
        if still.len() > 1 {
            self.together.push(still.clone());
        }
        let Some(holder) = still.first() else { return };
        let now = Instant::now();
        if self.order.last() != Some(holder) {
            let gap = last.map(|last| now - last);
            self.between = self.between.into_iter().chain(gap).min();
            self.order.push(*holder);
        }
        *last = Some(now);
    }
}

/// Ends the one that serves in some way, and measures until another does.
#[track_caller]
fn take_over(scene: &mut Scene, how: &str, signal: Signal) -> (usize, usize) {
    let holder = scene.served();
    let observer = scene.observe();
    scene.pods[holder].signal(signal);
    let begun = Instant::now();
    let next = scene.served_by_another(Some(holder));
    let gap = begun.elapsed();
    let seen = observer.never_two();
    println!("{how}: served by another after {gap:?}, {:?} between the two, {} looks", seen.between, seen.looks);
    assert!(gap < LONGEST_GAP, "{gap:?}");
    assert_eq!(seen.order, [holder, next]);
    assert!(scene.holder() == scene.pods[next].name, "{}", scene.holder());
    (holder, next)
}

#[test]
fn one_of_three_has_the_address_and_another_when_it_is_killed() {
    let mut scene = Scene::competing("192.168.100.4/24", 3);
    let (killed, _) = take_over(&mut scene, "killed", Signal::KILL);
    scene.pods[killed].ended();
    // The two that are left, too.
    let (ended, last) = take_over(&mut scene, "killed", Signal::KILL);
    scene.pods[ended].ended();
    assert!(scene.has(last));
    scene.pods[last].signal(Signal::TERM);
    assert_eq!(scene.pods[last].ended(), Some(0));
    assert!(!scene.has(last), "it is off when the process is gone");
    assert_eq!(scene.holder(), "", "and the lease is given back");
}

#[test]
fn an_address_of_ipv6_goes_over_as_well() {
    let mut scene = Scene::competing("fd00:100::4/64", 2);
    let (killed, next) = take_over(&mut scene, "killed, IPv6", Signal::KILL);
    scene.pods[killed].ended();
    scene.pods[killed].compete(scene.address, scene.server.kubeconfig());
    scene.pods[killed].process().wait_until_told(&["another process has the address"]);
    assert_eq!(take_over(&mut scene, "ended, IPv6", Signal::TERM), (next, killed));
    assert_eq!(scene.pods[next].ended(), Some(0));
}

/// The kernel takes the address off. Awake again, the process knows that it was late.
#[test]
fn a_process_that_is_stopped_loses_the_address_and_does_not_take_it_back() {
    let mut scene = Scene::competing("192.168.100.4/24", 2);
    let (stopped, next) = take_over(&mut scene, "stopped", Signal::STOP);
    assert!(!scene.has(stopped));
    let observer = scene.observe();
    scene.pods[stopped].signal(Signal::CONT);
    scene.pods[stopped].process().wait_until_told(&["another process has the address"]);
    assert_eq!(observer.never_two().order, [next]);
    take_over(&mut scene, "ended", Signal::TERM);
}

#[test]
fn who_ends_in_order_hands_over_at_once() {
    let mut scene = Scene::competing("192.168.100.4/24", 2);
    let (ended, next) = take_over(&mut scene, "ended", Signal::TERM);
    assert_eq!(scene.pods[ended].ended(), Some(0));
    assert!(!scene.has(ended) && scene.has(next));
}

#[test]
fn nobody_takes_what_somebody_else_on_the_network_has() {
    const SAID: &str = "somebody else on the network has the address";
    let mut scene = Scene::new("192.168.100.4/24", 2);
    let stranger = scene.switch.machine("stranger", "192.168.100.4/24");
    let links = stranger.ip("-o link show net1");
    let mac = links.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let observer = scene.observe();
    scene.compete();
    let told = wait_until("the conflict in the lease", PATIENCE, || {
        scene.lease().pointer(CONFLICT).map(|value| value.as_str().unwrap().to_owned())
    });
    assert_eq!(told, mac);
    for pod in &mut scene.pods {
        pod.process().wait_until_told(&[SAID, &mac]);
    }
    assert_eq!(scene.holder(), "");
    // What was heard before another had the lease says nothing about afterwards.
    scene.kubectl(&format!(
        r#"patch lease {LEASE} --type=merge -p {{"spec":{{"holderIdentity":"other","leaseDurationSeconds":2}}}}"#
    ));
    for pod in &mut scene.pods {
        pod.process().wait_until_told(&["another process has the address", "other"]);
        pod.process().wait_for_stderr("the conflict, told anew", |text| text.matches(SAID).nth(1).map(drop));
    }
    assert_eq!(observer.never_two().order, [0; 0], "nobody");
    drop(stranger);
    scene.served();
    wait_until("the annotation to go", PATIENCE, || scene.lease().pointer(CONFLICT).is_none().then_some(()));
}

#[test]
fn who_is_not_ready_does_not_compete_and_gives_back_what_it_has() {
    let mut scene = Scene::new("192.168.100.4/24", 2);
    scene.pods.iter().for_each(|pod| pod.set_ready(false));
    scene.compete();
    for pod in &mut scene.pods {
        pod.process().wait_until_told(&["the data plane is not ready", "503"]);
    }
    assert_eq!(scene.lease(), Value::Null, "nobody has asked for it");
    scene.pods[1].set_ready(true);
    assert_eq!(scene.served(), 1);
    scene.pods[0].set_ready(true);
    scene.pods[0].process().wait_until_told(&["another process has the address"]);
    let observer = scene.observe();
    scene.pods[1].set_ready(false);
    assert_eq!(scene.served_by_another(Some(1)), 0);
    assert_eq!(observer.never_two().order, [1, 0]);
    scene.pods[1].process().wait_until_told(&["given to another"]);
}

#[test]
fn a_lease_that_somebody_deletes_is_made_again_and_the_address_stays() {
    let mut scene = Scene::competing("192.168.100.4/24", 3);
    let holder = scene.served();
    for pod in scene.pods.iter_mut().enumerate().filter(|(number, _)| *number != holder).map(|(_, pod)| pod) {
        pod.process().wait_until_told(&["another process has the address"]);
    }
    let observer = scene.observe();
    let uid = |lease: &Value| lease.pointer("/metadata/uid").cloned();
    let before = uid(&scene.lease());
    scene.delete_lease();
    let name = scene.pods[holder].name.clone();
    wait_until("another lease", PATIENCE, || uid(&scene.lease()).filter(|uid| Some(uid) != before.as_ref()));
    assert_eq!(scene.holder(), name);
    assert_eq!(observer.never_two().order, [holder]);
    let told = scene.pods[holder].process().stderr();
    assert!(!told.contains("the address leaves"), "{told}");
}

/// The API server is reached by another interface all the time.
#[test]
fn who_is_cut_off_from_the_network_of_the_address_gives_it_back_and_does_not_take_it() {
    let mut scene = Scene::new("192.168.101.4/24", 2);
    let vlan = Switch::new("192.168.101.250/24");
    vlan.connect(&scene.client, "vlan", "192.168.101.200/24");
    let connect = |(number, pod): (usize, &mut Pod)| {
        pod.interface = "vlan";
        vlan.connect(&pod.namespace, "vlan", &format!("192.168.101.{}/24", 11 + number))
    };
    let ports: Vec<String> = scene.pods.iter_mut().enumerate().map(connect).collect();
    let plug = |pod: usize, how: &str| vlan.namespace().ip(&format!("link set {} {how}", ports[pod]));
    scene.compete();
    let first = scene.served();
    let second = 1 - first;
    scene.pods[second].process().wait_until_told(&["another process has the address"]);
    let observer = scene.observe();
    plug(first, "down");
    assert_eq!(scene.served_by_another(Some(first)), second);
    scene.pods[first].process().wait_until_told(&["vlan has no carrier", "given to another"]);
    plug(second, "down");
    wait_until("nobody to hold it", PATIENCE, || scene.holder().is_empty().then_some(()));
    scene.pods[second].process().wait_until_told(&["vlan has no carrier", "given to another"]);
    assert!(!scene.has(first) && !scene.has(second), "nobody answers there, and that does not mean that it is free");
    plug(first, "up");
    assert_eq!(scene.served(), first);
    assert_eq!(observer.never_two().order, [first, second, first]);
}

#[test]
fn without_an_api_server_the_address_goes_and_with_it_it_comes_back() {
    let mut scene = Scene::competing("192.168.100.4/24", 2);
    let holder = scene.served();
    let observer = scene.observe();
    scene.server.process().signal(Signal::STOP);
    let begun = Instant::now();
    wait_until("the address to go", PATIENCE, || (!scene.has(holder)).then_some(()));
    println!("without an API server: off after {:?}", begun.elapsed());
    scene.pods[holder].process().wait_until_told(&["until the lease can be renewed"]);
    scene.server.process().signal(Signal::CONT);
    scene.served();
    observer.never_two();
}

/// The lease is renewed all the time, so that nobody else can have the address either.
#[test]
fn a_server_that_is_too_slow_for_the_address_is_told() {
    let mut scene = Scene::new("192.168.100.4/24", 2);
    let server = SlowServer::before(&scene.server, scene.switch.namespace());
    for pod in &mut scene.pods {
        pod.compete(scene.address, server.kubeconfig());
    }
    scene.served();
    let observer = scene.observe();
    server.takes(TOO_LATE);
    let told = wait_until("the number in the lease", PATIENCE, || {
        scene.lease().pointer(LATE).map(|value| value.as_str().unwrap().to_owned())
    });
    let seconds: f64 = told.trim_end_matches('s').parse().unwrap();
    assert!(seconds >= TOO_LATE.as_secs_f64() - 0.01, "{told}");
    let holder = scene.holder();
    let pod = scene.pods.iter_mut().find(|pod| pod.name == holder).unwrap();
    pod.process().wait_until_told(&["the API server is too slow for the address"]);
    server.takes(Duration::ZERO);
    scene.served();
    wait_until("the annotation to go", PATIENCE, || scene.lease().pointer(LATE).is_none().then_some(()));
    observer.never_two();
}

/// Neighbours are answered directly, the others by the gateway, also after a restart; what has another source goes as before.
#[test]
fn machines_behind_the_gateway_are_answered() {
    let mut scene = Scene::new("192.168.100.4/24", 1);
    let far = behind_the_router(&scene);
    let ip = scene.ip();
    let answered = |from: &NetNamespace| who_answers(from, ip).is_some();
    for _ in 0..2 {
        scene.pods[0].compete_with_gateway(scene.address, GATEWAY, scene.server.kubeconfig());
        wait_until("an answer for a neighbour", PATIENCE, || answered(&scene.client).then_some(()));
        wait_until("an answer by the gateway", PATIENCE, || answered(&far).then_some(()));
        scene.pods[0].signal(Signal::KILL);
        scene.pods[0].ended();
        wait_until("the address to go", PATIENCE, || (!scene.has(0)).then_some(()));
    }
    assert_eq!(scene.pods[0].namespace.ip("route show default"), "");
}

/// An interface without an address of its own loses its routes with the address, whether the lease was lost or the process began anew.
#[test]
fn machines_behind_the_gateway_are_answered_also_when_the_address_comes_back() {
    // What is said to the API server goes over IPv6, so that nothing of IPv4 is there beside the address.
    let mut scene = Scene::new("fd00:100::4/64", 1);
    scene.address = "192.168.100.4/24";
    scene.client.ip("address add 192.168.100.200/24 dev net1");
    scene.switch.namespace().ip("address add 192.168.100.250/24 dev uplink");
    let far = behind_the_router(&scene);
    let ip = scene.ip();
    let is_answered = || wait_until("an answer by the gateway", PATIENCE, || who_answers(&far, ip));
    scene.pods[0].compete_with_gateway(scene.address, GATEWAY, scene.server.kubeconfig());
    is_answered();
    scene.pods[0].set_ready(false);
    wait_until("the address to go", PATIENCE, || (!scene.has(0)).then_some(()));
    assert_eq!(scene.pods[0].namespace.ip("-4 address show net1"), "", "it has no other");
    scene.pods[0].set_ready(true);
    is_answered();
    // The next process finds the address of the one before.
    scene.pods[0].signal(Signal::KILL);
    scene.pods[0].ended();
    scene.pods[0].namespace.ip("address replace 192.168.100.4/24 dev net1");
    scene.pods[0].compete_with_gateway(scene.address, GATEWAY, scene.server.kubeconfig());
    scene.pods[0].process().wait_until_told(&["from an earlier life", "the address is here"]);
    is_answered();
}

/// A machine on another network, of which the pods know nothing.
#[track_caller]
fn behind_the_router(scene: &Scene) -> NetNamespace {
    let router = scene.switch.namespace();
    router.ip("address add 10.9.9.1/24 dev uplink");
    router.within(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
    let far = scene.switch.machine("far", "10.9.9.9/24");
    far.ip("route add 192.168.100.0/24 via 10.9.9.1");
    far
}

#[test]
fn what_is_there_from_an_earlier_life_is_taken_off() {
    let mut scene = Scene::new("192.168.100.4/24", 1);
    scene.pods[0].namespace.ip("address add 192.168.100.4/32 dev net1");
    scene.pods[0].set_ready(false);
    scene.compete();
    wait_until("the address to go", PATIENCE, || (!scene.has(0)).then_some(()));
    scene.pods[0].process().wait_until_told(&["from an earlier life"]);
}

#[test]
fn what_cannot_work_is_said_at_the_start() {
    let scene = Scene::new("192.168.100.4/24", 1);
    let launch = |interface: &str, capabilities: &str| {
        Launch::command("ip", "netns")
            .args(["exec", scene.pods[0].namespace.name(), "setpriv", capabilities, "--", BINARY, "floating-address"])
            .args([
                "--address",
                "192.168.100.4/24",
                "--interface",
                interface,
                "--namespace",
                "default",
                "--lease",
                LEASE,
            ])
            .args(["--ready", "http://127.0.0.1:9901/ready", "--kubeconfig"])
            .arg(scene.server.kubeconfig() as &Path)
            .run()
            .failed()
    };
    assert_contains(&launch("net2", "--bounding-set=-all"), &["there is no interface net2", "net1"]);
    assert_contains(&launch("lo", "--bounding-set=-all"), &["lo is not an Ethernet"]);
    assert_contains(&launch("net1", "--bounding-set=-all,+net_admin"), &["the capability NET_RAW"]);
    assert_contains(&launch("net1", "--bounding-set=-all,+net_raw"), &["the capability NET_ADMIN"]);
    let help = Launch::command(BINARY, "floating-address").arg("--help").run().ok();
    assert_contains(&help, &["NET_ADMIN", "NET_RAW", "POD_NAME", "underpass.dev/address-conflict", "Exit codes:"]);
}
