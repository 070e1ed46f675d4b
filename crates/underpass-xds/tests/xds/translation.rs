//! A table in Envoy's words: what stays the same stays the same byte for byte.

use std::sync::Arc;

use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener};
use prost::Message;
use underpass_tables::{RelayTable, Route, RouteId, Rule, Rules, Unnamed};
use underpass_xds::{Kind, Snapshot, Translator};

use crate::table;

fn edge() -> RelayTable {
    table([("a", 1), ("b", 1)].into_iter())
}

fn changed(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let news = |kind: Kind| {
        let (before, after) = (before.of(kind), after.of(kind));
        let names = after.iter().filter(|(name, resource)| before.get(name).is_none_or(|old| old != *resource));
        names.map(|(name, _)| format!("{kind:?} {name}")).collect::<Vec<_>>()
    };
    Kind::ALL.into_iter().flat_map(news).collect()
}

fn chains(snapshot: &Snapshot) -> Vec<FilterChain> {
    let listener = snapshot.listeners.iter().next().unwrap().1;
    Listener::decode(listener.value.as_slice()).unwrap().filter_chains
}

#[test]
fn two_processes_make_the_same_of_the_same() {
    let (one, other) = (Translator::default().snapshot(&edge()), Translator::default().snapshot(&edge()));
    assert_eq!(one, other);
    assert_eq!(one.version(), other.version());
}

#[test]
fn other_endpoints_change_nothing_else() {
    let mut translator = Translator::default();
    let before = translator.snapshot(&edge());
    let after = translator.snapshot(&table([("a", 1), ("b", 2)].into_iter()));
    assert_eq!(changed(&before, &after), ["Endpoints b"]);
    assert!(Arc::ptr_eq(before.clusters.get("a").unwrap(), after.clusters.get("a").unwrap()), "nothing is made twice");
    assert_ne!(before.version(), after.version());
}

#[test]
fn a_listener_is_made_again_only_when_it_changes() {
    let mut translator = Translator::default();
    let listener = |snapshot: &Snapshot| snapshot.listeners.iter().next().unwrap().1.clone();
    let before = listener(&translator.snapshot(&edge()));
    let other_endpoints = listener(&translator.snapshot(&table([("a", 2), ("b", 3)].into_iter())));
    assert!(Arc::ptr_eq(&before, &other_endpoints), "endpoints are none of its business");
    let mut table = edge();
    table.routes.insert(0, Arc::new(Route::new("Z", "ns/Z", Vec::new())));
    table.listeners[0].rules = Rules::default();
    table.listeners[0].rules.add_name("a.example.com", RouteId(1)).unwrap();
    table.listeners[0].rules.add_name("b.example.com", RouteId(2)).unwrap();
    assert!(Arc::ptr_eq(&before, &listener(&translator.snapshot(&table))), "the same routes at other places");
    table.listeners[0].rules = Rules::default();
    table.listeners[0].rules.add_name("a.example.com", RouteId(1)).unwrap();
    table.listeners[0].rules.add_name("b.example.com", RouteId(0)).unwrap();
    let elsewhere = translator.snapshot(&table);
    assert_ne!(before, listener(&elsewhere));
    assert_eq!(listener(&elsewhere), listener(&Translator::default().snapshot(&table)));
    table.listeners[0].rules.plain = Some(RouteId(1));
    assert_eq!(translator.snapshot(&table), Translator::default().snapshot(&table));
    table.listeners[0].rules.plain = Some(RouteId(2));
    assert_eq!(translator.snapshot(&table), Translator::default().snapshot(&table));
}

#[test]
fn another_name_leaves_the_chains_of_the_others_as_they_are() {
    let mut table = edge();
    let before = Translator::default().snapshot(&table);
    table.listeners[0].rules.add_name("*.more.example.com", RouteId(0)).unwrap();
    let after = Translator::default().snapshot(&table);
    assert_eq!(changed(&before, &after), ["Listener edge-listener-443"]);
    let (before, after) = (chains(&before), chains(&after));
    assert_eq!(after.len(), before.len() + 1);
    assert!(before.iter().all(|chain| after.contains(chain)));
}

#[test]
fn a_route_that_leads_elsewhere_has_another_chain() {
    let mut table = edge();
    let before = chains(&Translator::default().snapshot(&table));
    table.routes[0] = Arc::new(Route { target: "ns/other".into(), ..(*table.routes[0]).clone() });
    let after = chains(&Translator::default().snapshot(&table));
    let same: Vec<bool> = before.iter().zip(&after).map(|(one, other)| one == other).collect();
    assert_eq!(same, [false, true], "connections of the old target are drained, others are not");
}

#[test]
fn without_a_name_an_unknown_one_is_kept_out_before_anything_is_dialled() {
    let mut table = edge();
    table.listeners[0].rules.unnamed = Some(Unnamed { route: RouteId(1), rule: Rule::ApiServer });
    let chains = chains(&Translator::default().snapshot(&table));
    let unnamed = chains.iter().find(|chain| chain.name == "b/no name").unwrap();
    let filters: Vec<&str> = unnamed.filters.iter().map(|filter| filter.name.as_str()).collect();
    assert_eq!(
        filters,
        ["envoy.filters.network.rbac", "envoy.filters.network.sni_cluster", "envoy.filters.network.tcp_proxy"]
    );
}
