//! One place to listen.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::SocketOption;
use envoy_types::pb::envoy::config::core::v3::socket_option::{SocketState, Value};
use envoy_types::pb::envoy::config::listener::v3::listener_filter::ConfigType;
use envoy_types::pb::envoy::config::listener::v3::{Listener, ListenerFilter, UdpListenerConfig};
use envoy_types::pb::envoy::extensions::filters::listener::proxy_protocol::v3::ProxyProtocol;
use envoy_types::pb::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use envoy_types::pb::envoy::extensions::filters::udp::udp_proxy::v3::udp_proxy_config::RouteSpecifier;
use envoy_types::pb::envoy::extensions::filters::udp::udp_proxy::v3::{Route as UdpRoute, UdpProxyConfig};
use envoy_types::pb::envoy::extensions::matching::common_inputs::network::v3::SourceIpInput;
use envoy_types::pb::envoy::extensions::matching::input_matchers::ip::v3::Ip;
use envoy_types::pb::xds::core::v3::TypedExtensionConfig as MatcherPart;
use envoy_types::pb::xds::r#type::matcher::v3::Matcher;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_list::predicate::{
    MatchType, SinglePredicate, single_predicate,
};
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_list::{FieldMatcher, Predicate};
use envoy_types::pb::xds::r#type::matcher::v3::matcher::on_match;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::{MatcherList, MatcherType, OnMatch};
use prost::{Message, Name};
use underpass_tables::{Listener as Wanted, Route, Transport};

use super::cluster::{KEEPALIVE_AFTER, KEEPALIVE_EVERY, KEEPALIVE_PROBES};
use super::{cidr, filter_chain, number, socket_address, span, typed};
use crate::resources::Resource;
use crate::snapshot::Kind;

/// How long a client may take to say where it wants to go. Where it need not say anything it is waited for as long: a listener that had
/// another time with one backend than with two would be replaced, with all its connections, when the second one comes.
const HELLO_TIME: Duration = Duration::from_secs(5);
/// How long a client's datagrams keep their endpoint.
const DATAGRAM_IDLE: Duration = Duration::from_secs(60);
const BACKLOG: u32 = 4096;

// Linux' numbers.
pub(super) const SOL_SOCKET: i64 = 1;
const SO_KEEPALIVE: i64 = 9;
const IPPROTO_TCP: i64 = 6;
const TCP_KEEPIDLE: i64 = 4;
const TCP_KEEPINTVL: i64 = 5;
const TCP_KEEPCNT: i64 = 6;

/// A listener and what it became.
pub(super) struct KnownListener {
    address: SocketAddr,
    transport: Transport,
    proxy_header: bool,
    /// Where its connections go: by name, without one, and without TLS.
    names: Vec<(String, Arc<Route>)>,
    unnamed: Option<Arc<Route>>,
    plain: Option<Arc<Route>>,
    pub(super) resource: Arc<Resource>,
}

impl KnownListener {
    pub(super) fn new(wanted: &Wanted, routes: &[Arc<Route>]) -> Self {
        let rules = &wanted.rules;
        Self {
            address: wanted.address,
            transport: wanted.transport,
            proxy_header: wanted.proxy_header,
            names: rules.names().into_iter().map(|(name, route)| (name, routes[route.0].clone())).collect(),
            unnamed: rules.unnamed.map(|unnamed| routes[unnamed.route.0].clone()),
            plain: rules.plain.map(|route| routes[route.0].clone()),
            resource: Arc::new(Resource::new(Kind::Listener, &listener(wanted, routes))),
        }
    }

    /// Whether the same would become of this one; then its routes are the newest ones. Their endpoints, and where they stand among
    /// others, do not matter here.
    pub(super) fn goes_on_as(&mut self, wanted: &Wanted, routes: &[Arc<Route>]) -> bool {
        let rules = &wanted.rules;
        (self.address, self.transport, self.proxy_header) == (wanted.address, wanted.transport, wanted.proxy_header)
            && (self.unnamed.is_some(), self.plain.is_some()) == (rules.unnamed.is_some(), rules.plain.is_some())
            && self.unnamed.iter_mut().zip(rules.unnamed).all(|(known, now)| follow(known, &routes[now.route.0]))
            && self.plain.iter_mut().zip(rules.plain).all(|(known, now)| follow(known, &routes[now.0]))
            && self.names.len() == rules.name_count()
            && self
                .names
                .iter_mut()
                .all(|(name, known)| rules.named(name).is_some_and(|now| follow(known, &routes[now.0])))
    }
}

/// Whether a route's chains stay the same.
fn follow(known: &mut Arc<Route>, now: &Arc<Route>) -> bool {
    if Arc::ptr_eq(known, now) {
        return true;
    }
    let is_same = filter_chain::alike(known, now);
    if is_same {
        known.clone_from(now);
    }
    is_same
}

fn listener(wanted: &Wanted, routes: &[Arc<Route>]) -> Listener {
    let listener = Listener {
        name: wanted.name.clone(),
        // Metrics are labelled with it.
        stat_prefix: wanted.name.clone(),
        address: Some(socket_address(wanted.address, wanted.transport)),
        ..Listener::default()
    };
    match wanted.transport {
        Transport::Stream => stream(listener, wanted, routes),
        Transport::Datagram => datagram(listener, wanted, routes),
    }
}

fn stream(listener: Listener, wanted: &Wanted, routes: &[Arc<Route>]) -> Listener {
    let mut filters = Vec::new();
    if wanted.proxy_header {
        filters.push(filter("envoy.filters.listener.proxy_protocol", ProxyProtocol::default()));
    }
    filters.push(filter("envoy.filters.listener.tls_inspector", TlsInspector::default()));
    Listener {
        listener_filters: filters,
        listener_filters_timeout: Some(span(HELLO_TIME)),
        // Who has said nothing then has a chain where bytes of any kind have one, and else none; but where a header is due nobody is let in
        // without one.
        continue_on_listener_filters_timeout: !wanted.proxy_header,
        filter_chains: filter_chain::chains(wanted, routes),
        access_log: vec![filter_chain::access_log()],
        tcp_backlog_size: Some(number(BACKLOG)),
        socket_options: keepalive(),
        ..listener
    }
}

/// Connections inherit these from the socket that accepts them.
fn keepalive() -> Vec<SocketOption> {
    [
        ("keepalive", SOL_SOCKET, SO_KEEPALIVE, 1),
        ("keepalive after", IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_AFTER),
        ("keepalive every", IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_EVERY),
        ("keepalive probes", IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES),
    ]
    .map(|(description, level, name, value)| SocketOption {
        description: description.into(),
        level,
        name,
        state: SocketState::StatePrebind.into(),
        value: Some(Value::IntValue(value.into())),
        ..SocketOption::default()
    })
    .into()
}

fn datagram(listener: Listener, wanted: &Wanted, routes: &[Arc<Route>]) -> Listener {
    let Some(route) = wanted.rules.plain.map(|route| &routes[route.0]) else { return listener };
    let proxy = UdpProxyConfig {
        stat_prefix: route.name.clone(),
        idle_timeout: Some(span(route.idle_timeout.unwrap_or(DATAGRAM_IDLE))),
        route_specifier: Some(RouteSpecifier::Matcher(admitted(route))),
        ..UdpProxyConfig::default()
    };
    Listener {
        udp_listener_config: Some(UdpListenerConfig::default()),
        listener_filters: vec![filter("envoy.filters.udp_listener.udp_proxy", proxy)],
        ..listener
    }
}

/// Leads to the route whoever may use it; datagrams that it leads nowhere are dropped.
fn admitted(route: &Route) -> Matcher {
    let to = on_match::OnMatch::Action(part("route", UdpRoute { cluster: route.name.clone() }));
    let to = OnMatch { on_match: Some(to), ..OnMatch::default() };
    if route.sources.is_empty() {
        return Matcher { on_no_match: Some(Box::new(to)), ..Matcher::default() };
    }
    let predicate = Predicate { match_type: Some(MatchType::SinglePredicate(comes_from_its_sources(route))) };
    let matchers = vec![FieldMatcher { predicate: Some(predicate), on_match: Some(to) }];
    Matcher { matcher_type: Some(MatcherType::MatcherList(MatcherList { matchers })), ..Matcher::default() }
}

fn comes_from_its_sources(route: &Route) -> SinglePredicate {
    let networks = Ip {
        cidr_ranges: route.sources.iter().map(cidr).collect(),
        // Of sources that are no addresses, which datagrams do not have; but it must be said.
        stat_prefix: route.name.clone(),
    };
    SinglePredicate {
        input: Some(part("envoy.matching.inputs.source_ip", SourceIpInput {})),
        matcher: Some(single_predicate::Matcher::CustomMatch(part("envoy.matching.matchers.ip", networks))),
    }
}

fn part<M: Message + Name>(name: &str, config: M) -> MatcherPart {
    MatcherPart { name: name.into(), typed_config: Some(typed(config)) }
}

fn filter<M: Message + Name>(name: &str, config: M) -> ListenerFilter {
    ListenerFilter {
        name: name.into(),
        config_type: Some(ConfigType::TypedConfig(typed(config))),
        ..ListenerFilter::default()
    }
}
