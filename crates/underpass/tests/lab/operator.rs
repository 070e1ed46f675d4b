//! Replicas of the operator as processes, on the API server that everybody has. One test: all replicas of all leases work on the same objects.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;
use underpass_testbed::{Kubectl, Lab, Launch, PATIENCE, Replica, wait_until};

use crate::{BINARY, alone_with_definitions};

/// Of these some are made while nobody works: they are left to whoever follows, whenever the first was killed.
const OBJECTS: usize = 300;
const LATE: usize = 20;
const NETWORKS: &str = "/apis/underpass.dev/v1alpha1/containernetworks";
const SETTLED: &str = "underpass_reconciles_total{kind=\"ContainerNetwork\",result=\"Settled\"}";
const WRITTEN: &str = "underpass_writes_total{target=\"Status\",result=\"Ok\"}";

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
    let network = |number| {
        format!(
            "apiVersion: underpass.dev/v1alpha1\nkind: ContainerNetwork\nmetadata: {{name: many-{number}}}\nspec: {{}}\n---\n"
        )
    };
    kubectl.ok_with("create -f -", &(LATE..OBJECTS).map(network).collect::<String>());
    let before = kubectl.version_of(NETWORKS);
    let start = |name| Replica::start(BINARY, &lab.kubeconfig(), &namespace.name, name);
    let first = start("first").leading();
    let second = start("second");
    wait_until("some of its work", PATIENCE, || first.number(WRITTEN));
    first.kill();
    let killed = Instant::now();
    kubectl.ok_with("create -f -", &(0..LATE).map(network).collect::<String>());
    let second = second.working();
    assert!(killed.elapsed() < Duration::from_secs(20), "{:?}", killed.elapsed());
    wait_until("the rest", PATIENCE, || (told(kubectl) == OBJECTS).then_some(()));
    // It has looked at every object, and once more at each that it wrote.
    let written = second.number(WRITTEN).unwrap();
    assert!(written >= LATE as f64, "{written}");
    wait_until("it to rest", PATIENCE, || second.number(SETTLED).filter(|count| *count >= OBJECTS as f64 + written));
    let third = start("third").waiting();
    second.ends_well();
    let ended = Instant::now();
    let third = third.working();
    assert!(ended.elapsed() < Duration::from_secs(8), "{:?}", ended.elapsed());
    wait_until("the third to look at all", PATIENCE, || third.number(SETTLED).filter(|count| *count >= OBJECTS as f64));
    assert_eq!(third.number(WRITTEN), None, "there was nothing left to write");
    third.ends_well();
    let changes = kubectl.changes(NETWORKS, &before);
    assert_eq!(changes.len(), OBJECTS);
    assert!(changes.values().all(|count| *count == 1), "every status was written once: {changes:?}");
    let events = events(kubectl);
    assert!(events.values().all(|count| *count == 1), "and every event: {events:?}");
    // Those whose status was written when the process was killed may have no event: it comes after the status.
    assert!(events.len() + 8 >= OBJECTS, "only {} of {OBJECTS} events", events.len());
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
