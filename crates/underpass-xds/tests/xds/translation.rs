//! A table in Envoy's words: what stays the same stays the same byte for byte.

use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::HealthStatus;
use envoy_types::pb::envoy::config::core::v3::address;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterLoadAssignment, LbEndpoint};
use envoy_types::pb::envoy::config::listener::v3::filter::ConfigType;
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener};
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use prost::Message;
use underpass_tables::{
    Balance, CheckKind, Endpoint, HealthCheck, ProxyHeader, RelayTable, Route, RouteId, Rule, Rules, Unnamed,
};
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
fn every_zone_is_a_locality_and_what_ends_is_draining() {
    let mut table = edge();
    let endpoint = |port: u16, zone: Option<&str>, draining: bool| Endpoint {
        address: ([192, 0, 2, 1], port).into(),
        zone: zone.map(str::to_owned),
        draining,
    };
    let endpoints = vec![
        endpoint(1, Some("b"), false),
        endpoint(2, None, false),
        endpoint(3, Some("a"), true),
        endpoint(4, Some("b"), false),
    ];
    table.routes[0] = Arc::new(Route { endpoints, ..(*table.routes[0]).clone() });
    let snapshot = Translator::default().snapshot(&table);
    let said = ClusterLoadAssignment::decode(snapshot.endpoints.get("a").unwrap().value.as_slice()).unwrap();
    let host = |host: &LbEndpoint| {
        let Some(HostIdentifier::Endpoint(endpoint)) = &host.host_identifier else { panic!("an address is said") };
        let Some(address::Address::SocketAddress(address)) = endpoint.address.clone().unwrap().address else {
            panic!()
        };
        let Some(PortSpecifier::PortValue(port)) = address.port_specifier else { panic!("a number is said") };
        (port, host.health_status() == HealthStatus::Draining)
    };
    let localities: Vec<(_, Vec<_>)> = said
        .endpoints
        .iter()
        .map(|locality| {
            let zone = locality.locality.as_ref().map(|locality| locality.zone.clone());
            (zone, locality.lb_endpoints.iter().map(host).collect())
        })
        .collect();
    let expected = [
        (None, vec![(2, false)]),
        (Some("a".to_owned()), vec![(3, true)]),
        (Some("b".to_owned()), vec![(1, false), (4, false)]),
    ];
    assert_eq!(localities, expected);
}

/// It lets nobody in before every check has come to an end.
#[test]
fn an_envoy_that_starts_waits_for_no_check_for_long() {
    let mut table = edge();
    let check = HealthCheck {
        kind: CheckKind::Tcp,
        interval: Duration::from_secs(3600),
        timeout: Duration::from_secs(3600),
        unhealthy_after: 1,
        healthy_after: 1,
    };
    table.routes[0] = Arc::new(Route { health_check: Some(check), ..(*table.routes[0]).clone() });
    let snapshot = Translator::default().snapshot(&table);
    let said = Cluster::decode(snapshot.clusters.get("a").unwrap().value.as_slice()).unwrap();
    assert_eq!(said.health_checks[0].timeout.unwrap().seconds, 10);
    assert_eq!(said.health_checks[0].interval.unwrap().seconds, 3600);
}

/// Envoy's own minute would keep one that nobody has used yet from being looked at as often as was asked for.
#[test]
fn an_endpoint_is_checked_as_often_before_the_first_connection_as_after() {
    let mut table = edge();
    let check = HealthCheck {
        kind: CheckKind::Tcp,
        interval: Duration::from_secs(7),
        timeout: Duration::from_secs(1),
        unhealthy_after: 1,
        healthy_after: 1,
    };
    table.routes[0] = Arc::new(Route { health_check: Some(check), ..(*table.routes[0]).clone() });
    let snapshot = Translator::default().snapshot(&table);
    let said = Cluster::decode(snapshot.clusters.get("a").unwrap().value.as_slice()).unwrap();
    let check = &said.health_checks[0];
    let seconds = [check.interval, check.no_traffic_interval].map(|interval| interval.unwrap_or_default().seconds);
    assert_eq!(seconds, [7, 7]);
}

/// Envoy's own hour would end watches that are silent; who has died without a word is found by asking, at both ends.
#[test]
fn a_silent_connection_lasts_unless_somebody_says_otherwise() {
    let mut table = edge();
    table.routes[1] = Arc::new(Route { idle_timeout: Some(Duration::from_secs(900)), ..(*table.routes[1]).clone() });
    let snapshot = Translator::default().snapshot(&table);
    let idle_seconds = |chain: &FilterChain| {
        let filter = chain.filters.iter().find(|filter| filter.name == "envoy.filters.network.tcp_proxy").unwrap();
        let Some(ConfigType::TypedConfig(config)) = &filter.config_type else { panic!("{filter:?}") };
        TcpProxy::decode(config.value.as_slice()).unwrap().idle_timeout.unwrap().seconds
    };
    assert_eq!(chains(&snapshot).iter().map(idle_seconds).collect::<Vec<_>>(), [0, 900]);
    let listener = snapshot.listeners.iter().next().unwrap().1;
    let options = Listener::decode(listener.value.as_slice()).unwrap().socket_options;
    assert_eq!(options.len(), 4, "{options:?}");
    let cluster = Cluster::decode(snapshot.clusters.get("a").unwrap().value.as_slice()).unwrap();
    let keepalive = cluster.upstream_connection_options.unwrap().tcp_keepalive.unwrap();
    assert!(keepalive.keepalive_time.unwrap().value < 3600, "{keepalive:?}");
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
fn a_route_that_sends_another_header_has_another_chain() {
    let (mut translator, mut table) = (Translator::default(), edge());
    let mut chains_with = |proxy_header| {
        table.routes[0] = Arc::new(Route { proxy_header, ..(*table.routes[0]).clone() });
        chains(&translator.snapshot(&table))
    };
    let [none, one, two] = [None, Some(ProxyHeader::V1), Some(ProxyHeader::V2)].map(&mut chains_with);
    assert_eq!([&none[1], &one[1]], [&two[1]; 2], "others are not drained");
    assert!(none[0] != one[0] && one[0] != two[0] && none[0] != two[0]);
    assert_eq!(chains_with(None), none);
}

/// What a chain does not have cannot end its connections.
#[test]
fn limits_and_other_ways_of_connecting_leave_the_chains_as_they_are() {
    let (mut translator, mut table) = (Translator::default(), edge());
    let before = translator.snapshot(&table);
    table.routes[0] = Arc::new(Route {
        max_connections: Some(7),
        connect_timeout: Duration::from_secs(7),
        balance: Balance::LeastConnections,
        ..(*table.routes[0]).clone()
    });
    assert_eq!(
        changed(&before, &translator.snapshot(&table)),
        ["Cluster a", "Endpoints a"],
        "a cluster waits for its endpoints"
    );
}

/// Envoy's own 15 seconds would give it one without endpoints.
#[test]
fn a_cluster_waits_for_its_endpoints_however_long() {
    let snapshot = Translator::default().snapshot(&edge());
    let said = Cluster::decode(snapshot.clusters.get("a").unwrap().value.as_slice()).unwrap();
    let timeout = said.eds_cluster_config.unwrap().eds_config.unwrap().initial_fetch_timeout;
    assert_eq!(timeout.map(|time| (time.seconds, time.nanos)), Some((0, 0)));
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
