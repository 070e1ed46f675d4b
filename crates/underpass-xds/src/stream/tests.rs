#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{Asked, FIRST_RETRY, LONGEST_WAIT, Stream, Update};
use crate::envoy::LONGEST_CHECK;
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
        let again = self.stream.wait_until();
        assert!(again.is_none_or(|at| at > self.now), "there is nothing to do at once: {again:?} at {:?}", self.now);
        told
    }

    fn answer(&mut self, kind: Kind) {
        let nonce = self.unanswered.remove(&kind).unwrap();
        assert!(self.stream.answered(kind, &nonce).is_some());
    }

    fn refuse(&mut self, kind: Kind) {
        let nonce = self.unanswered.remove(&kind).unwrap();
        assert!(self.stream.refused(kind, &nonce, self.now).is_some());
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

/// An Envoy takes a cluster when each of its endpoints was checked once. A backend that has another name then would be refused until that.
#[test]
fn listeners_wait_for_the_checks_of_a_cluster() {
    let mut pair = Pair::new();
    pair.settle(&snapshot(&[("a", "1")], &[("l", "a")]));
    let renamed = snapshot(&[("b", "1")], &[("l", "b")]);
    assert_eq!(pair.told(&renamed), ["Cluster +b:1"]);
    pair.stream.ask_again(Kind::Endpoints, [Arc::from("b")]);
    assert_eq!(pair.told(&renamed), ["Endpoints +b:1"]);
    pair.answer(Kind::Endpoints);
    assert!(pair.told(&renamed).is_empty());
    pair.now += LONGEST_CHECK;
    assert!(pair.told(&renamed).is_empty());
    pair.answer(Kind::Cluster);
    assert_eq!(pair.told(&renamed), ["Listener +l:b"]);
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

/// As a client says it that comes back: which versions it has.
fn held(resources: &Resources) -> Vec<(Arc<str>, Arc<Resource>)> {
    resources.iter().map(|(name, resource)| (name.clone(), resource.clone())).collect()
}

/// It hears of the cluster before it can say that it has the endpoints, and waits for them all the same.
#[test]
fn a_cluster_that_changed_while_a_client_was_away_gets_the_endpoints_that_it_has() {
    let before = snapshot(&[("a", "1"), ("b", "1")], &[]);
    let changed = Snapshot { clusters: resources(&[("a", "2"), ("b", "1")]), ..before.clone() };
    let mut pair = Pair::new();
    pair.stream.has(Kind::Cluster, held(&before.clusters));
    assert_eq!(pair.told(&changed), ["Cluster +a:2"]);
    pair.stream.ask(Kind::Endpoints, &names(&["a", "b"]));
    pair.stream.has(Kind::Endpoints, held(&before.endpoints));
    assert_eq!(pair.told(&changed), ["Endpoints +a:1"]);

    let mut pair = Pair::new();
    assert_eq!(pair.told(&changed), ["Cluster +a:2 +b:1"], "of the world nobody says what of it is known");
    pair.stream.ask(Kind::Endpoints, &names(&["a", "b"]));
    pair.stream.has_all(Kind::Endpoints, &before.endpoints);
    assert_eq!(pair.told(&changed), ["Endpoints +a:1 +b:1"]);
}

/// A backend was renamed meanwhile: the client's listener leads to the cluster of before until it is told otherwise.
#[test]
fn what_is_gone_waits_for_a_client_that_comes_back_to_speak_of_its_listeners() {
    let (before, now) = (snapshot(&[("a", "1")], &[("l", "a")]), snapshot(&[("b", "1")], &[("l", "b")]));
    let mut pair = Pair { stream: Stream::default(), ..Pair::new() };
    pair.stream.ask(Kind::Cluster, &all());
    pair.stream.has(Kind::Cluster, held(&before.clusters));
    assert_eq!(pair.told(&now), ["Cluster +b:1"]);
    pair.answer(Kind::Cluster);
    pair.stream.ask(Kind::Endpoints, &names(&["a", "b"]));
    pair.stream.has(Kind::Endpoints, held(&before.endpoints));
    assert_eq!(pair.told(&now), ["Endpoints +b:1"]);
    pair.answer(Kind::Endpoints);
    pair.stream.ask(Kind::Listener, &all());
    pair.stream.has(Kind::Listener, held(&before.listeners));
    assert_eq!(pair.told(&now), ["Listener +l:b"]);
    pair.answer(Kind::Listener);
    assert_eq!(pair.told(&now), ["Cluster -a", "Endpoints -a"]);
}

#[test]
fn what_is_gone_does_not_wait_for_ever_for_listeners() {
    let mut pair = Pair { stream: Stream::default(), ..Pair::new() };
    pair.stream.ask(Kind::Cluster, &all());
    pair.stream.has(Kind::Cluster, held(&resources(&[("a", "1"), ("b", "1")])));
    let fewer = snapshot(&[("b", "1")], &[]);
    assert!(pair.told(&fewer).is_empty());
    assert_eq!(pair.stream.wait_until(), Some(pair.now + LONGEST_WAIT));
    pair.now += LONGEST_WAIT;
    assert_eq!(pair.told(&fewer), ["Cluster -a"]);
    assert_eq!(pair.stream.wait_until(), None);
    pair.answer(Kind::Cluster);
    assert_eq!(pair.told(&snapshot(&[], &[])), ["Cluster -b"], "it was waited once");
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
fn what_was_refused_is_not_repeated_at_once_but_told_with_the_next_change() {
    let (mut pair, refused) = (Pair::new(), snapshot(&[("a", "1"), ("b", "1"), ("c", "1")], &[]));
    assert_eq!(pair.told(&refused), ["Cluster +a:1 +b:1 +c:1"]);
    pair.refuse(Kind::Cluster);
    assert!(pair.told(&refused).is_empty());
    let changed = snapshot(&[("a", "1"), ("b", "2"), ("d", "1")], &[]);
    assert_eq!(pair.told(&changed), ["Cluster +a:1 +b:2 +d:1 -c"], "a may be what was refused");
    pair.answer(Kind::Cluster);
    assert_eq!(pair.told(&snapshot(&[("a", "1"), ("b", "2"), ("d", "2")], &[])), ["Cluster +d:2"]);
}

/// Nobody changes anything, but what was in the way may have gone.
#[test]
fn what_was_refused_is_told_once_more_and_then_later_and_later() {
    let (mut pair, refused) = (Pair::new(), snapshot(&[], &[("a", "1"), ("b", "1")]));
    pair.settle(&snapshot(&[], &[("a", "1")]));
    assert_eq!(pair.told(&refused), ["Listener +b:1"]);
    for seconds in [2, 4, 8, 16, 32, 60, 60] {
        pair.refuse(Kind::Listener);
        let at = pair.now + Duration::from_secs(seconds);
        assert_eq!(pair.stream.wait_until(), Some(at));
        pair.now = at - Duration::from_millis(1);
        assert!(pair.told(&refused).is_empty());
        pair.now = at;
        assert_eq!(pair.told(&refused), ["Listener +b:1"], "and not what was taken");
        assert_eq!(pair.stream.wait_until(), None, "before it is answered");
    }
    pair.answer(Kind::Listener);
    assert_eq!((pair.told(&refused), pair.stream.wait_until()), (vec![], None));
    pair.told(&snapshot(&[], &[("a", "2"), ("b", "1")]));
    pair.refuse(Kind::Listener);
    assert_eq!(pair.stream.wait_until(), Some(pair.now + FIRST_RETRY), "a new trouble begins anew");
    assert_eq!(pair.told(&snapshot(&[], &[("b", "1")])), ["Listener -a"], "what is gone is not told again");
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

/// What it refused runs on as it was before, and may lead there.
#[test]
fn clusters_stay_while_a_listener_is_refused() {
    let mut pair = Pair::new();
    pair.settle(&snapshot(&[("a", "1"), ("b", "1")], &[("l", "b")]));
    let fewer = snapshot(&[("a", "1")], &[("l", "a")]);
    assert_eq!(pair.told(&fewer), ["Listener +l:a"]);
    pair.refuse(Kind::Listener);
    assert!(pair.told(&fewer).is_empty(), "the listener still leads to b");
    pair.now += FIRST_RETRY;
    assert_eq!(pair.told(&fewer), ["Listener +l:a"]);
    pair.answer(Kind::Listener);
    assert_eq!(pair.told(&fewer), ["Cluster -b", "Endpoints -b"]);
}

#[test]
fn clusters_go_when_the_listener_that_was_refused_is_gone() {
    let mut pair = Pair::new();
    pair.settle(&snapshot(&[("a", "1"), ("b", "1")], &[("l", "b")]));
    pair.told(&snapshot(&[("a", "1")], &[("l", "a")]));
    pair.refuse(Kind::Listener);
    let without = snapshot(&[("a", "1")], &[]);
    assert_eq!(pair.told(&without), ["Listener -l"]);
    pair.answer(Kind::Listener);
    assert_eq!(pair.told(&without), ["Cluster -b", "Endpoints -b"]);
}

#[test]
fn listeners_do_not_wait_for_the_endpoints_of_clusters_that_were_refused() {
    let mut pair = Pair::new();
    pair.settle(&snapshot(&[("a", "1")], &[("l", "1")]));
    let more = snapshot(&[("a", "1"), ("b", "1"), ("c", "1")], &[("l", "2")]);
    assert_eq!(pair.told(&more), ["Cluster +b:1 +c:1"]);
    // It takes b, and says so by asking for its endpoints.
    pair.stream.ask_again(Kind::Endpoints, [Arc::from("b")]);
    pair.refuse(Kind::Cluster);
    assert_eq!(pair.told(&more), ["Endpoints +b:1"]);
    pair.answer(Kind::Endpoints);
    assert_eq!(pair.told(&more), ["Listener +l:2"]);
    pair.answer(Kind::Listener);
    pair.now += FIRST_RETRY;
    assert_eq!(pair.told(&more), ["Cluster +b:1 +c:1", "Endpoints +b:1"]);
    pair.answer(Kind::Cluster);
    pair.answer(Kind::Endpoints);
    let other = Snapshot { listeners: resources(&[("l", "3")]), ..more };
    assert!(pair.told(&other).is_empty(), "c was taken, and its endpoints are not asked for yet");
    pair.stream.ask_again(Kind::Endpoints, [Arc::from("c")]);
    assert_eq!(pair.told(&other), ["Endpoints +c:1"]);
    pair.answer(Kind::Endpoints);
    assert_eq!(pair.told(&other), ["Listener +l:3"]);
}

/// One bad cluster among all that a new client is told: the endpoints of the others come before the listeners.
#[test]
fn a_client_that_refused_its_first_clusters_may_ask_for_the_endpoints_of_some() {
    let (mut pair, wanted) = (Pair::new(), snapshot(&[("a", "1"), ("b", "1")], &[("l", "1")]));
    assert_eq!(pair.told(&wanted), ["Cluster +a:1 +b:1"]);
    pair.refuse(Kind::Cluster);
    assert!(pair.told(&wanted).is_empty());
    pair.stream.ask(Kind::Endpoints, &names(&["a"]));
    assert_eq!(pair.told(&wanted), ["Endpoints +a:1"]);
    pair.answer(Kind::Endpoints);
    assert_eq!(pair.told(&wanted), ["Listener +l:1"]);
}

#[test]
fn a_client_is_not_settled_while_it_refuses_something() {
    let mut pair = Pair::new();
    pair.settle(&snapshot(&[], &[("a", "1")]));
    let more = snapshot(&[], &[("a", "1"), ("b", "1")]);
    pair.told(&more);
    pair.refuse(Kind::Listener);
    assert!(pair.told(&more).is_empty());
    assert!(!pair.stream.settled(Kind::Listener, &more), "there is nothing to tell, but it does not have b");
    pair.now += FIRST_RETRY;
    pair.told(&more);
    pair.answer(Kind::Listener);
    assert!(pair.stream.settled(Kind::Listener, &more));
}

#[test]
fn a_refusal_of_nothing_in_particular_counts_until_something_is_accepted() {
    let mut pair = Pair::new();
    pair.settle(&snapshot(&[], &[("a", "1"), ("b", "1")]));
    let fewer = snapshot(&[], &[("a", "1")]);
    assert_eq!(pair.told(&fewer), ["Listener -b"]);
    pair.refuse(Kind::Listener);
    assert!(pair.told(&fewer).is_empty() && !pair.stream.settled(Kind::Listener, &fewer));
    assert_eq!(pair.told(&snapshot(&[], &[("a", "2")])), ["Listener +a:2"]);
    pair.answer(Kind::Listener);
    assert!(pair.stream.settled(Kind::Listener, &snapshot(&[], &[("a", "2")])));
}

#[test]
fn what_was_refused_and_is_gone_or_asked_for_no_more_is_forgotten() {
    let mut pair = Pair::new();
    let (both, one) = (snapshot(&[("a", "1"), ("b", "1")], &[]), snapshot(&[("a", "1")], &[]));
    pair.settle(&one);
    pair.told(&both);
    pair.answer(Kind::Cluster);
    pair.stream.ask_again(Kind::Endpoints, [Arc::from("b")]);
    assert_eq!(pair.told(&both), ["Endpoints +b:1"]);
    pair.refuse(Kind::Endpoints);
    assert!(pair.told(&both).is_empty() && !pair.stream.settled(Kind::Endpoints, &both));
    pair.stream.ask_no_more(Kind::Endpoints, [Arc::from("b")]);
    assert!(pair.told(&both).is_empty() && pair.stream.settled(Kind::Endpoints, &both));
    assert_eq!(pair.stream.wait_until(), None, "there is nothing to tell once more");

    pair.stream.ask_again(Kind::Endpoints, [Arc::from("b")]);
    pair.told(&both);
    pair.refuse(Kind::Endpoints);
    assert_eq!(pair.told(&one), ["Cluster -b", "Endpoints -b"]);
    pair.answer(Kind::Endpoints);
    assert!(pair.told(&one).is_empty() && pair.stream.settled(Kind::Endpoints, &one));
    assert_eq!(pair.stream.wait_until(), None);
}

/// Its removal waits for a listener; when it comes back as it was, the client still does not have it.
#[test]
fn what_was_refused_is_told_again_if_it_was_gone_for_a_moment() {
    let mut pair = Pair::new();
    pair.settle(&snapshot(&[("a", "1")], &[("l", "1")]));
    let both = snapshot(&[("a", "1"), ("b", "1")], &[("l", "1")]);
    assert_eq!(pair.told(&both), ["Cluster +b:1"]);
    pair.refuse(Kind::Cluster);
    assert_eq!(pair.told(&snapshot(&[("a", "1")], &[("l", "2")])), ["Listener +l:2"]);
    assert_eq!(pair.told(&snapshot(&[("a", "2")], &[("l", "2")])), ["Cluster +a:2", "Endpoints +a:2"]);
    pair.answer(Kind::Cluster);
    let back = snapshot(&[("a", "3"), ("b", "1")], &[("l", "2")]);
    assert_eq!(pair.told(&back), ["Cluster +a:3 +b:1"]);
}

#[test]
fn an_answer_that_is_owed_holds_what_was_refused() {
    let (mut pair, wanted) = (Pair::new(), snapshot(&[("a", "1")], &[]));
    pair.settle(&snapshot(&[], &[]));
    pair.stream.ask(Kind::Endpoints, &names(&["a"]));
    pair.told(&wanted);
    pair.answer(Kind::Cluster);
    pair.refuse(Kind::Endpoints);
    assert!(pair.told(&wanted).is_empty());
    pair.stream.ask_for_everything(Kind::Endpoints, true);
    assert_eq!(pair.told(&wanted), ["Endpoints +a:1"], "what is said to nothing would say nothing of a");
}

/// Its removal waits for a listener that is refused too: there is nothing to tell, and no reason to look again and again.
#[test]
fn what_was_refused_and_cannot_go_yet_is_not_looked_at_all_the_time() {
    let mut pair = Pair::new();
    pair.settle(&snapshot(&[("a", "1")], &[]));
    let both = snapshot(&[("a", "1"), ("b", "1")], &[("l", "1")]);
    assert_eq!(pair.told(&both), ["Cluster +b:1"]);
    pair.refuse(Kind::Cluster);
    pair.stream.ask_again(Kind::Endpoints, [Arc::from("b")]);
    assert_eq!(pair.told(&both), ["Endpoints +b:1"]);
    pair.answer(Kind::Endpoints);
    assert_eq!(pair.told(&both), ["Listener +l:1"]);
    pair.refuse(Kind::Listener);
    let one = snapshot(&[("a", "1")], &[("l", "1")]);
    assert!(pair.told(&one).is_empty(), "the listener may lead to b");
    pair.now += FIRST_RETRY;
    assert_eq!(pair.told(&one), ["Listener +l:1"]);
    pair.refuse(Kind::Listener);
    assert!(pair.told(&one).is_empty());
    assert_eq!(pair.stream.wait_until(), Some(pair.now + FIRST_RETRY));
}

/// What a client may say, and what may change meanwhile.
#[derive(Clone, Debug)]
enum Turn {
    Wanted(BTreeMap<String, u8>),
    Ask(BTreeSet<String>),
    Answer,
    Refuse(usize),
    Later(u64),
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = prop_oneof![
        prop::collection::btree_map("[a-c]", 0..3_u8, 0..4).prop_map(Turn::Wanted),
        prop::collection::btree_set("[a-c]", 0..4).prop_map(Turn::Ask),
        Just(Turn::Answer),
        (0..3_usize).prop_map(Turn::Refuse),
        (0..8_u64).prop_map(Turn::Later),
    ];
    prop::collection::vec(turn, 1..40)
}

proptest! {
    /// Whatever is refused, whenever: when nothing can be told, nobody is to look again at once.
    #[test]
    fn whoever_has_nothing_to_tell_rests(turns in turns()) {
        let (mut pair, mut wanted) = (Pair::new(), Snapshot::default());
        for turn in turns {
            match turn {
                Turn::Wanted(clusters) => wanted = of_clusters(&clusters),
                Turn::Ask(some) => pair.stream.ask(Kind::Endpoints, &names(&some.iter().map(String::as_str).collect::<Vec<_>>())),
                Turn::Answer => if let Some(kind) = pair.unanswered.keys().next().copied() {
                    pair.answer(kind);
                },
                Turn::Refuse(which) => if let Some(kind) = pair.unanswered.keys().nth(which).copied() {
                    pair.refuse(kind);
                },
                Turn::Later(seconds) => pair.now += Duration::from_secs(seconds),
            }
            pair.told(&wanted);
        }
    }
}
