#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use proptest::prelude::*;

use super::{Asked, LONGEST_WAIT, Stream, Update};
use crate::resources::{Resource, Resources};
use crate::snapshot::{Kind, Snapshot};

type Named<'a> = &'a [(&'a str, &'a str)];

fn resources(named: Named<'_>) -> Resources {
    named.iter().map(|(name, version)| (Arc::from(*name), Resource::of_version((*version).into()))).collect()
}

/// Clusters have endpoints of the same name and version.
fn snapshot(clusters: Named<'_>, listeners: Named<'_>) -> Snapshot {
    Snapshot { clusters: resources(clusters), endpoints: resources(clusters), listeners: resources(listeners) }
}

fn all() -> Asked {
    Asked { everything: true, names: BTreeSet::new() }
}

fn names(names: &[&str]) -> Asked {
    Asked { everything: false, names: names.iter().map(|name| Arc::from(*name)).collect() }
}

/// `kind +changed -removed`.
fn said(update: &Update) -> String {
    let changed = update.changed.iter().map(|(name, resource)| format!(" +{name}:{}", resource.version));
    let removed = update.removed.iter().map(|name| format!(" -{name}"));
    format!("{:?}{}", update.kind, changed.chain(removed).collect::<String>())
}

/// A stream and a client that answers when it is told to.
struct Pair {
    stream: Stream,
    now: Instant,
    unanswered: BTreeMap<Kind, String>,
}

impl Pair {
    /// A client that asks for all clusters and listeners.
    fn new() -> Self {
        let mut stream = Stream::default();
        stream.ask(Kind::Cluster, &all());
        stream.ask(Kind::Listener, &all());
        Self { stream, now: Instant::now(), unanswered: BTreeMap::new() }
    }

    fn told(&mut self, snapshot: &Snapshot) -> Vec<String> {
        let mut told = Vec::new();
        while let Some(update) = self.stream.next(snapshot, self.now) {
            told.push(said(&update));
            assert!(self.unanswered.insert(update.kind, update.nonce).is_none(), "one at a time");
        }
        told
    }

    fn answer(&mut self, kind: Kind) {
        let nonce = self.unanswered.remove(&kind).unwrap();
        assert!(self.stream.answered(kind, &nonce).is_some());
    }

    /// Up to the point where the client has everything.
    fn settle(&mut self, snapshot: &Snapshot) {
        let clusters: Vec<&str> = snapshot.clusters.iter().map(|(name, _)| &**name).collect();
        self.stream.ask(Kind::Endpoints, &names(&clusters));
        while !self.told(snapshot).is_empty() || !self.unanswered.is_empty() {
            let kinds: Vec<Kind> = self.unanswered.keys().copied().collect();
            kinds.into_iter().for_each(|kind| self.answer(kind));
        }
    }
}

#[test]
fn clusters_then_endpoints_then_listeners() {
    let (mut pair, wanted) = (Pair::new(), snapshot(&[("a", "1")], &[("l", "1")]));
    assert_eq!(pair.told(&wanted), ["Cluster +a:1"]);
    pair.answer(Kind::Cluster);
    assert!(pair.told(&wanted).is_empty(), "the endpoints are not asked for yet");
    pair.stream.ask(Kind::Endpoints, &names(&["a"]));
    assert_eq!(pair.told(&wanted), ["Endpoints +a:1"]);
    pair.answer(Kind::Endpoints);
    assert_eq!(pair.told(&wanted), ["Listener +l:1"]);
}

#[test]
fn what_is_gone_leaves_the_listeners_first() {
    let mut pair = Pair::new();
    pair.settle(&snapshot(&[("a", "1"), ("b", "1")], &[("l", "1")]));
    let fewer = snapshot(&[("a", "1")], &[("l", "2")]);
    assert_eq!(pair.told(&fewer), ["Listener +l:2"]);
    pair.answer(Kind::Listener);
    assert_eq!(pair.told(&fewer), ["Cluster -b", "Endpoints -b"]);
}

#[test]
fn one_in_place_of_another_is_there_before_and_gone_after() {
    let mut pair = Pair::new();
    pair.settle(&snapshot(&[("a", "1")], &[("l", "1")]));
    let other = snapshot(&[("b", "1")], &[("l", "2")]);
    assert_eq!(pair.told(&other), ["Cluster +b:1"]);
    pair.answer(Kind::Cluster);
    pair.stream.ask(Kind::Endpoints, &names(&["a", "b"]));
    assert_eq!(pair.told(&other), ["Endpoints +b:1"]);
    pair.answer(Kind::Endpoints);
    assert_eq!(pair.told(&other), ["Listener +l:2"]);
    pair.answer(Kind::Listener);
    assert_eq!(pair.told(&other), ["Cluster -a", "Endpoints -a"]);
}

#[test]
fn listeners_do_not_wait_for_ever() {
    let (mut pair, wanted) = (Pair::new(), snapshot(&[("a", "1")], &[("l", "1")]));
    pair.told(&wanted);
    assert_eq!(pair.stream.wait_until(), Some(pair.now + LONGEST_WAIT));
    pair.now += LONGEST_WAIT;
    assert_eq!(pair.told(&wanted), ["Listener +l:1"]);
    assert_eq!(pair.stream.wait_until(), None);
}

#[test]
fn a_listener_alone_waits_for_nothing() {
    let mut stream = Stream::default();
    stream.ask(Kind::Listener, &all());
    let told = stream.next(&snapshot(&[("a", "1")], &[("l", "1")]), Instant::now()).unwrap();
    assert_eq!(said(&told), "Listener +l:1");
}

#[test]
fn a_cluster_that_changes_gets_its_endpoints_again() {
    let mut pair = Pair::new();
    pair.settle(&snapshot(&[("a", "1"), ("b", "1")], &[]));
    let mut changed = snapshot(&[("a", "2"), ("b", "1")], &[]);
    changed.endpoints = resources(&[("a", "1"), ("b", "1")]);
    assert_eq!(pair.told(&changed), ["Cluster +a:2", "Endpoints +a:1"]);
}

#[test]
fn the_first_question_is_answered_even_with_nothing() {
    let mut pair = Pair::new();
    assert_eq!(pair.told(&Snapshot::default()), ["Cluster"]);
    pair.answer(Kind::Cluster);
    assert_eq!(pair.told(&Snapshot::default()), ["Listener"]);
    pair.answer(Kind::Listener);
    assert!(pair.told(&Snapshot::default()).is_empty());
}

#[test]
fn what_is_under_way_is_waited_for_and_changes_meanwhile_are_told_together() {
    let mut pair = Pair::new();
    assert_eq!(pair.told(&snapshot(&[("a", "1")], &[])), ["Cluster +a:1"]);
    assert!(pair.told(&snapshot(&[("a", "2")], &[])).is_empty());
    let newest = snapshot(&[("a", "3"), ("b", "1")], &[]);
    assert!(pair.told(&newest).is_empty());
    pair.answer(Kind::Cluster);
    assert_eq!(pair.told(&newest), ["Cluster +a:3 +b:1"]);
}

#[test]
fn an_answer_to_something_older_is_none() {
    let mut pair = Pair::new();
    pair.told(&snapshot(&[("a", "1")], &[]));
    let old = pair.unanswered[&Kind::Cluster].clone();
    pair.answer(Kind::Cluster);
    pair.told(&snapshot(&[("a", "2")], &[]));
    assert!(pair.stream.answered(Kind::Cluster, &old).is_none());
    assert!(pair.told(&snapshot(&[("a", "3")], &[])).is_empty(), "the newest is still not answered");
}

#[test]
fn what_does_not_exist_is_told_once_and_again_when_it_does() {
    let mut stream = Stream::default();
    stream.ask(Kind::Endpoints, &names(&["a"]));
    let (nothing, now) = (Snapshot::default(), Instant::now());
    let told = stream.next(&nothing, now).unwrap();
    assert_eq!(said(&told), "Endpoints -a");
    stream.answered(Kind::Endpoints, &told.nonce);
    assert!(stream.next(&nothing, now).is_none());
    assert_eq!(said(&stream.next(&snapshot(&[("a", "1")], &[]), now).unwrap()), "Endpoints +a:1");
}

#[test]
fn what_is_no_longer_wanted_is_told_anew_when_it_is_wanted_again() {
    let (mut pair, wanted) = (Pair::new(), snapshot(&[("a", "1")], &[]));
    pair.settle(&wanted);
    pair.stream.ask(Kind::Endpoints, &names(&[]));
    assert!(pair.told(&wanted).is_empty());
    pair.stream.ask(Kind::Endpoints, &names(&["a"]));
    assert_eq!(pair.told(&wanted), ["Endpoints +a:1"]);
}

/// What an Envoy does: it holds what it is told, asks for the endpoints of its clusters, and answers late.
#[derive(Default)]
struct Client {
    held: [BTreeMap<String, String>; 3],
    unanswered: BTreeMap<Kind, String>,
}

impl Client {
    fn take(&mut self, update: Update) {
        let held = &mut self.held[update.kind as usize];
        for (name, resource) in &update.changed {
            held.insert(name.to_string(), resource.version.to_string());
        }
        for name in &update.removed {
            held.remove(&**name);
        }
        self.unanswered.insert(update.kind, update.nonce);
    }

    /// A listener's version is the clusters that it leads to.
    fn check(&self) {
        let [clusters, endpoints, listeners] = &self.held;
        for cluster in listeners.values().flat_map(|version| version.chars()) {
            let cluster = cluster.to_string();
            assert!(
                clusters.contains_key(&cluster),
                "a listener leads to {cluster}, which is not there: {:?}",
                self.held
            );
            assert!(endpoints.contains_key(&cluster), "{cluster} has no endpoints: {:?}", self.held);
        }
    }
}

fn of_clusters(clusters: &BTreeMap<String, u8>) -> Snapshot {
    let text: Vec<(String, String)> =
        clusters.iter().map(|(name, version)| (name.clone(), version.to_string())).collect();
    let named: Vec<(&str, &str)> = text.iter().map(|(name, version)| (name.as_str(), version.as_str())).collect();
    let all: String = clusters.keys().map(String::as_str).collect();
    snapshot(&named, &[("l", &all)])
}

proptest! {
    /// Whatever changes in whatever order, and however late it is answered: no listener leads to nowhere, and in the end the client has
    /// what is wanted.
    #[test]
    fn no_listener_ever_leads_to_nowhere(
        steps in prop::collection::vec((prop::collection::btree_map("[a-e]", 0..3_u8, 0..5), 0..4_usize), 1..12)
    ) {
        let (mut stream, mut client, now) = (Stream::default(), Client::default(), Instant::now());
        stream.ask(Kind::Cluster, &all());
        stream.ask(Kind::Listener, &all());
        let turn = |stream: &mut Stream, client: &mut Client, wanted: &Snapshot, answers: usize| {
            while let Some(update) = stream.next(wanted, now) {
                client.take(update);
                client.check();
            }
            for _ in 0..answers {
                let Some((kind, nonce)) = client.unanswered.pop_first() else { break };
                stream.answered(kind, &nonce).unwrap();
                let clusters: Vec<&str> = client.held[0].keys().map(String::as_str).collect();
                stream.ask(Kind::Endpoints, &names(&clusters));
                let [clusters, endpoints, _] = &mut client.held;
                endpoints.retain(|name, _| clusters.contains_key(name));
            }
        };
        for (clusters, answers) in &steps {
            turn(&mut stream, &mut client, &of_clusters(clusters), *answers);
        }
        let last = &steps[steps.len() - 1].0;
        for _ in 0..20 {
            turn(&mut stream, &mut client, &of_clusters(last), 4);
        }
        let wanted: BTreeMap<String, String> = last.iter().map(|(name, version)| (name.clone(), version.to_string())).collect();
        prop_assert_eq!(&client.held[0], &wanted);
        prop_assert_eq!(&client.held[1], &wanted);
        prop_assert_eq!(client.held[2].get("l").cloned(), Some(last.keys().map(String::as_str).collect::<String>()));
    }
}

/// What is asked for by name comes and goes, as what there is does.
#[derive(Clone, Debug)]
enum Step {
    Wanted(BTreeMap<String, u8>),
    Ask(BTreeSet<String>, bool),
    More(BTreeSet<String>),
    Less(BTreeSet<String>),
    Answer,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let some = || prop::collection::btree_set("[a-h]", 0..5);
    let step = prop_oneof![
        prop::collection::btree_map("[a-h]", 0..3_u8, 0..8).prop_map(Step::Wanted),
        (some(), any::<bool>()).prop_map(|(names, everything)| Step::Ask(names, everything)),
        some().prop_map(Step::More),
        some().prop_map(Step::Less),
        Just(Step::Answer),
    ];
    prop::collection::vec(step, 1..30)
}

proptest! {
    /// Whatever is asked for in whatever order: in the end the client has of what it asks for exactly what there is, in its newest version,
    /// and was told so.
    #[test]
    fn what_is_asked_for_is_told(steps in steps()) {
        let owned = |names: &BTreeSet<String>| names.iter().map(|name| Arc::from(name.as_str())).collect::<BTreeSet<Arc<str>>>();
        let (mut stream, now) = (Stream::default(), Instant::now());
        let (mut wanted, mut held, mut under_way) = (Snapshot::default(), BTreeMap::new(), None::<String>);
        let mut asked = Asked::default();
        stream.ask(Kind::Endpoints, &asked);
        for step in steps.into_iter().chain([Step::Answer, Step::Answer, Step::Answer]) {
            match step {
                Step::Wanted(clusters) => wanted = of_clusters(&clusters),
                Step::Ask(names, everything) => {
                    asked = Asked { everything, names: owned(&names) };
                    stream.ask(Kind::Endpoints, &asked);
                }
                Step::More(names) => {
                    asked.names.extend(owned(&names));
                    stream.ask_again(Kind::Endpoints, owned(&names));
                }
                Step::Less(names) => {
                    asked.names.retain(|name| !names.contains(&**name));
                    stream.ask_no_more(Kind::Endpoints, owned(&names));
                }
                Step::Answer => if let Some(nonce) = under_way.take() {
                    prop_assert!(stream.answered(Kind::Endpoints, &nonce).is_some());
                },
            }
            held.retain(|name: &Arc<str>, _| asked.covers(name));
            while let Some(update) = stream.next(&wanted, now) {
                prop_assert!(under_way.replace(update.nonce).is_none(), "one at a time");
                held.extend(update.changed.iter().map(|(name, resource)| (name.clone(), resource.version.clone())));
                update.removed.iter().for_each(|name| drop(held.remove(name)));
                let kept: Vec<Arc<str>> = stream.held(Kind::Endpoints).map(|resource| resource.version.clone()).collect();
                prop_assert_eq!(kept, held.values().cloned().collect::<Vec<_>>(), "both know what the client has");
            }
        }
        let expected: BTreeMap<Arc<str>, Arc<str>> = wanted
            .endpoints
            .iter()
            .filter(|(name, _)| asked.covers(name))
            .map(|(name, resource)| (name.clone(), resource.version.clone()))
            .collect();
        prop_assert_eq!(held, expected);
    }
}

#[test]
fn clusters_whose_endpoints_are_asked_for_no_more_keep_listeners_waiting() {
    let mut pair = Pair::new();
    pair.settle(&snapshot(&[("a", "1"), ("b", "1")], &[("l", "1")]));
    pair.stream.ask_no_more(Kind::Endpoints, [Arc::from("b")]);
    let other = snapshot(&[("a", "1"), ("b", "1")], &[("l", "2")]);
    assert!(pair.told(&other).is_empty(), "the endpoints of b are not asked for");
    pair.stream.ask_again(Kind::Endpoints, [Arc::from("b")]);
    assert_eq!(pair.told(&other), ["Endpoints +b:1"]);
    pair.answer(Kind::Endpoints);
    assert_eq!(pair.told(&other), ["Listener +l:2"]);
}
