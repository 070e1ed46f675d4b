//! `underpass operator` as replicas on one API server: who works, what the pages say, and that nothing is done twice.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::NamedTempFile;
use underpass_testbed::{Kubectl, Launch, NetNamespace, PATIENCE, Replica, Signal, Underpass, wait_until};

use crate::server::embedded_apiserver;
use crate::{BINARY, assert_contains, network, root};

/// Our kinds, as kubectl is asked for all of them.
const OURS: &str = "get underpass -A";
const NETWORKS: &str = "/apis/underpass.dev/v1alpha1/containernetworks";

fn replica(server: &Underpass, name: &str) -> Replica {
    Replica::start(BINARY, server.kubeconfig(), "default", name)
}

fn holder(kubectl: &Kubectl) -> String {
    kubectl.ok("get lease underpass-operator -n default -o jsonpath={.spec.holderIdentity}")
}

/// The reason of the condition Ready of every object of ours, by kind and name; those that have none yet are not there.
fn reasons(kubectl: &Kubectl) -> BTreeMap<(String, String), String> {
    let objects = kubectl.json(OURS);
    let objects = objects["items"].as_array().unwrap().iter();
    let reason = |object: &Value| {
        let ready =
            object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Ready")?.clone();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Some(((text(&object["kind"]), text(&object["metadata"]["name"])), text(&ready["reason"])))
    };
    objects.filter_map(reason).collect()
}

#[test]
fn every_kind_says_what_it_lacks_and_nothing_else_is_touched() {
    let server = embedded_apiserver();
    let kubectl = server.kubectl();
    kubectl.ok(&format!("apply -f {}", root().join("examples").display()));
    let before = kubectl.json(OURS);
    let replica = replica(&server, "only").working();
    let all = before["items"].as_array().unwrap().len();
    let watches = kubectl.ok("get --raw /metrics");
    // One for each kind, and one for its lease.
    assert_contains(&watches, &["\napiserver_longrunning_requests 11\n"]);
    let said = wait_until("a condition on every object", PATIENCE, || {
        // The Infra has made a ProxyServer.
        Some(reasons(&kubectl)).filter(|reasons| reasons.len() == all + 1)
    });
    for ((kind, name), reason) in said {
        let wanted = match kind.as_str() {
            "ContainerNetwork" | "ContainerNetworkTunnelProxy" => "NeedsContainerEngine",
            // The embedded API server has no nodes.
            "ProxyServer" => "NeedsCluster",
            "Infra" => "ProxyNotReady",
            _ => "NotInThisVersion",
        };
        assert_eq!(reason, wanted, "{kind} {name}");
    }
    let mut after = kubectl.json(OURS)["items"].as_array().unwrap().clone();
    after.retain(|object| object["metadata"].get("ownerReferences").is_none());
    assert_eq!(after.len(), all);
    for (was, is) in before["items"].as_array().unwrap().iter().zip(&after) {
        assert_eq!(was["spec"], is["spec"]);
        assert_eq!(is["metadata"].get("finalizers"), None, "nothing was made, so nothing holds it");
    }
    let kinds =
        before["items"].as_array().unwrap().iter().filter(|object| object["kind"] == "ContainerNetwork").count();
    assert_eq!(replica.number("underpass_objects{kind=\"ContainerNetwork\"}"), Some(kinds as f64));
    kubectl.ok("delete ctrnet --all --timeout=60s");
    wait_until("the count to fall", PATIENCE, || {
        (replica.number("underpass_objects{kind=\"ContainerNetwork\"}") == Some(0.0)).then_some(())
    });
    replica.ends_well();
}

#[test]
fn the_pages_tell_who_works_and_what_was_done() {
    let server = embedded_apiserver();
    let first = replica(&server, "first").working();
    let second = replica(&server, "second");
    second.ready(&format!("waiting, while {} works\n", holder(&server.kubectl())));
    assert!(holder(&server.kubectl()).starts_with("first_"));
    server.kubectl().ok_with("apply -f -", &network("net"));
    server.kubectl().ok("wait --for=condition=Ready=False ctrnet/net --timeout=60s");
    for replica in [&first, &second] {
        assert_eq!(replica.get("/healthz"), (200, "ok\n".to_owned()));
        assert_eq!(replica.get("/nothing").0, 404);
        assert_contains(&replica.get("/").1, &["/healthz", "/readyz", "/metrics"]);
        assert!(replica.number("process_resident_memory_bytes").unwrap() > 1e6);
    }
    let settled = "underpass_reconciles_total{kind=\"ContainerNetwork\",result=\"Settled\"}";
    wait_until("the pass to be counted", PATIENCE, || first.number(settled).filter(|count| *count >= 1.0));
    assert_eq!((first.number("underpass_leader"), second.number("underpass_leader")), (Some(1.0), Some(0.0)));
    assert_eq!(second.number(settled), None, "who waits does nothing");
    assert!(first.number("underpass_reconcile_duration_seconds_count{kind=\"ContainerNetwork\"}").unwrap() >= 1.0);
    first.ends_well();
    second.ends_well();
    assert_eq!(holder(&server.kubectl()), "", "given back");
}

#[test]
fn who_ends_in_order_is_followed_at_once() {
    let server = embedded_apiserver();
    let first = replica(&server, "first").working();
    let second = replica(&server, "second").waiting();
    first.ends_well();
    let ended = Instant::now();
    let second = second.working();
    // An attempt every 1.5 seconds; the rest is for a busy machine. Without the lease given back it would be 15.
    assert!(ended.elapsed() < Duration::from_secs(8), "{:?}", ended.elapsed());
    second.ends_well();
}

/// Killed while hundreds of objects wait for it: what it did is not done again, and the rest is.
#[test]
fn a_killed_leader_is_followed_and_nothing_is_done_twice() {
    // Some are made while nobody works: they are left to whoever follows, whenever the first was killed.
    const OBJECTS: usize = 400;
    const LATE: usize = 20;
    let server = embedded_apiserver();
    let kubectl = server.kubectl();
    let networks = |numbers: std::ops::Range<usize>| -> String {
        numbers.map(|number| format!("{}---\n", network(&format!("net-{number}")))).collect()
    };
    let early = NamedTempFile::new().unwrap();
    std::fs::write(early.path(), networks(LATE..OBJECTS)).unwrap();
    let before = kubectl.version_of(NETWORKS);
    let first = replica(&server, "first").leading();
    // It knows from the last renewal on when the term is over.
    let second = replica(&server, "second").waiting();
    let creating = kubectl.start(&format!("create -f {}", early.path().display()));
    let written = "underpass_writes_total{target=\"Status\",result=\"Ok\"}";
    wait_until("some of its work", PATIENCE, || first.number(written));
    first.kill();
    let killed = Instant::now();
    creating.wait().ok();
    kubectl.ok_with("create -f -", &networks(0..LATE));
    let second = second.leading();
    assert!(killed.elapsed() < Duration::from_secs(18), "{:?}", killed.elapsed());
    wait_until("the rest", PATIENCE, || (reasons(&kubectl).len() == OBJECTS).then_some(()));
    // It has looked at every object, and once more at each that it wrote.
    let settled = "underpass_reconciles_total{kind=\"ContainerNetwork\",result=\"Settled\"}";
    let written = second.number(written).unwrap();
    assert!(written >= LATE as f64, "{written}");
    wait_until("it to rest", PATIENCE, || second.number(settled).filter(|count| *count >= OBJECTS as f64 + written));
    second.ready("working\n");
    second.ends_well();
    let changes = kubectl.changes(NETWORKS, &before);
    assert_eq!(changes.len(), OBJECTS);
    assert!(changes.values().all(|count| *count == 1), "every status was written once: {changes:?}");
    let events = kubectl.json("get events");
    let events = events["items"].as_array().unwrap();
    let mut regarding = BTreeMap::new();
    for event in events {
        *regarding.entry(event["involvedObject"]["name"].as_str().unwrap().to_owned()).or_insert(0) += 1;
        assert_eq!(event["count"], 1, "{event}");
    }
    assert!(regarding.values().all(|count| *count == 1), "{regarding:?}");
    // Those whose status was written when the process was killed may have no event: it comes after the status.
    assert!(regarding.len() + 8 >= OBJECTS, "only {} of {OBJECTS} events", regarding.len());
}

#[test]
fn definitions_that_come_later_are_waited_for() {
    let server = embedded_apiserver();
    let kubectl = server.kubectl();
    kubectl.ok("delete crd infras.hostedcluster.densityops.com --timeout=60s");
    let replica = replica(&server, "early");
    let said = wait_until("what it waits for", PATIENCE, || {
        Some(replica.get("/readyz")).filter(|(_, said)| said.contains("infras.hostedcluster.densityops.com"))
    });
    assert_eq!(said.0, 503);
    assert_eq!(replica.get("/healthz").0, 200, "waiting is no reason to be started again");
    let crds = Launch::command(BINARY, "crds").run().ok();
    kubectl.ok_with("apply --server-side --force-conflicts -f -", &crds);
    replica.working().ends_well();
}

/// As when the machine of one of several API servers loses its power: nothing ends the connections to it.
#[test]
fn a_server_that_vanishes_without_a_word_is_looked_for_again() {
    let server = embedded_apiserver();
    let road = Road::to(&server);
    let replica = Replica::start(BINARY, road.kubeconfig(), "default", "far").working();
    road.lose();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &network("net"));
    wait_until("what is said of it", PATIENCE, || (reasons(&kubectl).len() == 1).then_some(()));
    replica.ready("working\n");
    replica.ends_well();
}

/// A way to a server on which connections can be lost without either end knowing it.
struct Road {
    kubeconfig: NamedTempFile,
    /// How many have been carried, and how many of the first of them nobody hears any more.
    carried: Arc<AtomicUsize>,
    lost: Arc<AtomicUsize>,
}

impl Road {
    fn to(server: &Underpass) -> Self {
        let text = std::fs::read_to_string(server.kubeconfig()).unwrap();
        let address = text.split("https://").nth(1).unwrap().split('"').next().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut kubeconfig = NamedTempFile::new().unwrap();
        write!(kubeconfig, "{}", text.replace(&address, &listener.local_addr().unwrap().to_string())).unwrap();
        let road = Self { kubeconfig, carried: Arc::default(), lost: Arc::default() };
        let (carried, lost) = (Arc::clone(&road.carried), Arc::clone(&road.lost));
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(&address) else { return };
                let number = carried.fetch_add(1, Ordering::SeqCst);
                for (from, to) in [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))] {
                    let (from, to, lost) = (from.unwrap(), to.unwrap(), Arc::clone(&lost));
                    std::thread::spawn(move || carry(&from, &to, || number < lost.load(Ordering::SeqCst)));
                }
            }
        });
        road
    }

    fn kubeconfig(&self) -> &Path {
        self.kubeconfig.path()
    }

    fn lose(&self) {
        self.lost.store(self.carried.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

fn carry(mut from: &TcpStream, mut to: &TcpStream, is_lost: impl Fn() -> bool) {
    let mut buffer = [0; 16384];
    loop {
        match from.read(&mut buffer) {
            Ok(1..) if is_lost() => {}
            Ok(length @ 1..) if to.write_all(&buffer[..length]).is_ok() => {}
            _ if is_lost() => return,
            _ => {
                // The other side may have ended it.
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
        }
    }
}

/// `underpass controllers` knows more about what is built on its machine, and has the last word.
#[test]
fn beside_controllers_on_a_machine_it_leaves_them_their_objects() {
    let server = embedded_apiserver();
    let kubectl = server.kubectl();
    let replica = replica(&server, "cluster").working();
    let before = kubectl.version_of(NETWORKS);
    kubectl.ok_with("apply -f -", &network("net"));
    kubectl.ok("wait --for=jsonpath={.status.conditions[0].reason}=NeedsContainerEngine ctrnet/net --timeout=60s");
    let (controllers, _home) =
        Launch::command(BINARY, "controllers").arg("--kubeconfig").arg(server.kubeconfig()).spawn();
    kubectl.ok("wait --for=jsonpath={.status.conditions[0].reason}=NoContainerEngine ctrnet/net --timeout=60s");
    // Both have seen it when both have seen what came after it.
    kubectl.ok_with("apply -f -", &network("later"));
    kubectl.ok("wait --for=jsonpath={.status.conditions[0].reason}=NoContainerEngine ctrnet/later --timeout=60s");
    assert_eq!(reasons(&kubectl)[&("ContainerNetwork".to_owned(), "net".to_owned())], "NoContainerEngine");
    assert_eq!(kubectl.changes(NETWORKS, &before)["net"], 2, "each has said it once");
    controllers.signal(Signal::TERM);
    assert_eq!(controllers.wait().code, Some(0));
    replica.ends_well();
}

/// Kubelets and port-forwards come by either family, whatever a machine is used to: IPv6 for itself alone, or none at all.
#[test]
fn its_pages_answer_over_both_families() {
    let kubeconfig = NamedTempFile::new().unwrap();
    std::fs::write(kubeconfig.path(), NOWHERE).unwrap();
    for (habit, answers) in [("bindv6only", &["127.0.0.1", "::1"][..]), ("conf/all/disable_ipv6", &["127.0.0.1"][..])] {
        NetNamespace::new("pages").within(|| {
            std::fs::write(format!("/proc/sys/net/ipv6/{habit}"), "1").unwrap();
            let launch = Launch::command(BINARY, "operator").arg("--kubeconfig").arg(kubeconfig.path());
            let replica = Replica::listening(launch, "[::]:0");
            for address in answers {
                assert_eq!(replica.get_by(address.parse().unwrap(), "/healthz"), (200, "ok\n".to_owned()), "{address}");
            }
        });
    }
}

/// A cluster that is not asked.
const NOWHERE: &str = r#"{
    "apiVersion": "v1", "kind": "Config", "current-context": "nowhere",
    "clusters": [{ "name": "nowhere", "cluster": { "server": "https://192.0.2.1:6443" } }],
    "contexts": [{ "name": "nowhere", "context": { "cluster": "nowhere", "user": "" } }]
}"#;

#[test]
fn outside_of_a_cluster_it_wants_a_kubeconfig() {
    let said = Launch::command(BINARY, "operator").run().failed();
    assert_contains(&said, &["this is no pod of a cluster", "--kubeconfig or KUBECONFIG"]);
    let help = Launch::command(BINARY, "operator").arg("--help").run().ok();
    assert_contains(&help, &["Examples:", "Exit codes:", "/readyz", "POD_NAMESPACE", "underpass-operator"]);
}
