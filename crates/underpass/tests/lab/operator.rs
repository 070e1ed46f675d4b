//! Replicas of the operator as processes, on the API server that everybody has. One test: all replicas of all leases work on the same objects.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::NamedTempFile;
use underpass_testbed::{Kubectl, Lab, LabNamespace, Launch, PATIENCE, Replica, wait_until};

use crate::{BINARY, alone_with_definitions};

/// Of these some are made while nobody works: they are left to whoever follows, whenever the first was killed.
const OBJECTS: usize = 300;
const LATE: usize = 20;
/// Each becomes several objects, one after the other: the first is killed before all of them stand.
const PROXIES: usize = 10;
const NETWORKS: &str = "/apis/underpass.dev/v1alpha1/containernetworks";
const SETTLED: &str = "underpass_reconciles_total{kind=\"ContainerNetwork\",result=\"Settled\"}";
const WRITTEN: &str = "underpass_writes_total{target=\"Status\",result=\"Ok\"}";
const APPLIED: &str = "underpass_writes_total{target=\"Object\",result=\"Ok\"}";
const PROXIES_SETTLED: &str = "underpass_reconciles_total{kind=\"ProxyServer\",result=\"Settled\"}";
/// What stands for a ProxyServer that joins no network of its own.
const MADE: [(&str, &str); 5] = [
    ("apis/apps/v1", "deployments"),
    ("api/v1", "services"),
    ("api/v1", "serviceaccounts"),
    ("apis/rbac.authorization.k8s.io/v1", "roles"),
    ("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
];
/// One of each, and a second RoleBinding for where its backend is.
const FOR_EACH: usize = 6;
const OWNED: &str = "underpass.dev/owner-uid";

/// Our definitions on the cluster, and with them our objects, for as long as this lives.
struct Definitions(Kubectl);

impl Definitions {
    fn on(lab: &Lab) -> Self {
        let definitions = Self(lab.kubectl());
        let text = Launch::command(BINARY, "crds").run().ok();
        definitions.0.ok_with("apply --server-side -f -", &text);
        definitions.0.ok(&format!("wait --for=condition=Established --timeout=110s {}", definitions.names()));
        definitions
    }

    fn names(&self) -> String {
        let all = self.0.ok("get crd -o name");
        let ours = all.lines().filter(|name| name.ends_with(".underpass.dev") || name.ends_with(".densityops.com"));
        ours.collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Definitions {
    fn drop(&mut self) {
        self.0.run(&format!("delete --timeout=110s {}", self.names()));
    }
}

#[test]
fn who_ends_is_followed_at_once_who_is_killed_within_the_term_and_nothing_is_done_twice() {
    let _alone = alone_with_definitions();
    let lab = Lab::running();
    let definitions = Definitions::on(&lab);
    let (kubectl, namespace) = (&definitions.0, lab.namespace("operator"));
    // What is made for ProxyServers is of interest here, and no pod of theirs.
    namespace.kubectl.ok("create quota no-pods --hard=pods=0");
    let before = kubectl.version_of(NETWORKS);
    let start = |name| Replica::start(BINARY, &lab.kubeconfig(), &namespace.name, name);
    let first = start("first").leading();
    // It knows from the last renewal on when the term is over.
    let second = start("second").waiting();
    let early =
        manifests((LATE..OBJECTS).map(network).chain((0..PROXIES).map(|number| proxy(&namespace.name, number))));
    let creating = kubectl.start(&format!("create -f {}", early.path().display()));
    wait_until("some of its work", PATIENCE, || first.number(WRITTEN).and(first.number(APPLIED)));
    first.kill();
    let killed = Instant::now();
    creating.wait().ok();
    let late = manifests((0..LATE).map(network));
    kubectl.ok(&format!("create -f {}", late.path().display()));
    let left = OBJECTS - told(kubectl);
    assert!(made(&namespace).len() < PROXIES * FOR_EACH, "the first was to be killed before it has made all");
    let second = second.working();
    assert!(killed.elapsed() < Duration::from_secs(18), "{:?}", killed.elapsed());
    wait_until("the rest", PATIENCE, || (told(kubectl) == OBJECTS).then_some(()));
    wait_until("all that is made", PATIENCE, || (made(&namespace).len() == PROXIES * FOR_EACH).then_some(()));
    // It has looked at every object, and once more at each that it wrote.
    wait_until("it to rest", PATIENCE, || second.number(SETTLED).filter(|count| *count >= (OBJECTS + left) as f64));
    let third = start("third").waiting();
    second.ends_well();
    let ended = Instant::now();
    let third = third.working();
    assert!(ended.elapsed() < Duration::from_secs(8), "{:?}", ended.elapsed());
    wait_until("the third to look at all", PATIENCE, || third.number(SETTLED).filter(|count| *count >= OBJECTS as f64));
    wait_until("and at these", PATIENCE, || third.number(PROXIES_SETTLED).filter(|count| *count >= PROXIES as f64));
    assert_eq!((third.number(WRITTEN), third.number(APPLIED)), (None, None), "there was nothing left to write");
    everything_was_made_once(&namespace, &before);
    namespace.kubectl.ok("delete proxyservers --all --timeout=60s");
    third.ends_well();
    let changes = kubectl.changes(NETWORKS, &before);
    assert_eq!(changes.len(), OBJECTS);
    assert!(changes.values().all(|count| *count == 1), "every status was written once: {changes:?}");
    let events = events(kubectl);
    assert!(events.values().all(|count| *count == 1), "and every event: {events:?}");
    // Those whose status was written when the process was killed may have no event: it comes after the status.
    assert!(events.len() + 8 >= OBJECTS, "only {} of {OBJECTS} events", events.len());
}

fn manifests(objects: impl Iterator<Item = Value>) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects.collect::<Vec<_>>() });
    std::fs::write(file.path(), list.to_string()).unwrap();
    file
}

fn network(number: usize) -> Value {
    let metadata = json!({ "name": format!("many-{number}"), "namespace": "default" });
    json!({ "apiVersion": "underpass.dev/v1alpha1", "kind": "ContainerNetwork", "metadata": metadata, "spec": {} })
}

fn proxy(namespace: &str, number: usize) -> Value {
    json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer",
        "metadata": { "name": format!("many-{number}"), "namespace": namespace },
        "spec": {
            "networkConfig": { "serverIP": format!("192.168.130.{}", 10 + number) },
            "dataPlane": "Native",
            "backends": [{
                "name": "api", "hostname": "api.example.com", "port": 6443,
                "targetService": "kube-apiserver", "targetPort": 6443, "targetNamespace": namespace,
            }],
        },
    })
}

/// What stands for the ProxyServers, by name.
fn made(namespace: &LabNamespace) -> Vec<String> {
    let kinds: Vec<&str> = MADE.iter().map(|(_, plural)| *plural).collect();
    let found = namespace.kubectl.ok(&format!("get {} -l {OWNED} -o name", kinds.join(",")));
    found.lines().map(str::to_owned).collect()
}

/// By the server's own history: nothing was deleted and made again, and what was made was never written again. A Deployment's status is not ours.
fn everything_was_made_once(namespace: &LabNamespace, since: &str) {
    for (group, plural) in MADE {
        let path = format!("/{group}/namespaces/{}/{plural}", namespace.name);
        let mut written: BTreeMap<String, BTreeSet<(String, i64)>> = BTreeMap::new();
        for event in namespace.kubectl.history(&path, since) {
            let metadata = &event["object"]["metadata"];
            if metadata["labels"][OWNED].is_string() {
                let text = |field: &str| metadata[field].as_str().unwrap().to_owned();
                let version = if plural == "deployments" { String::new() } else { text("resourceVersion") };
                let generation = metadata["generation"].as_i64().unwrap_or(1);
                written.entry(text("name")).or_default().insert((text("uid") + &version, generation));
            }
        }
        assert!(written.len() >= PROXIES, "{plural}: {written:?}");
        let once = |all: &BTreeSet<(String, i64)>| all.len() == 1 && all.iter().all(|(_, generation)| *generation == 1);
        assert!(written.values().all(once), "{plural}: {written:?}");
    }
}

/// How many objects say what became of them.
fn told(kubectl: &Kubectl) -> usize {
    let networks = kubectl.json("get ctrnet");
    networks["items"].as_array().unwrap().iter().filter(|network| network["status"]["conditions"].is_array()).count()
}

/// How often something was said of each object.
fn events(kubectl: &Kubectl) -> BTreeMap<String, i64> {
    let uids = kubectl.json("get ctrnet");
    let uids: Vec<&Value> =
        uids["items"].as_array().unwrap().iter().map(|network| &network["metadata"]["uid"]).collect();
    let events = kubectl.json("get events -n default");
    let mut counted = BTreeMap::new();
    for event in
        events["items"].as_array().unwrap().iter().filter(|event| uids.contains(&&event["involvedObject"]["uid"]))
    {
        let name = event["involvedObject"]["name"].as_str().unwrap().to_owned();
        *counted.entry(name).or_default() += event["count"].as_i64().unwrap();
    }
    counted
}
