//! Whose a connection is: one filter chain for each name, one for TLS without a name, one for what is not TLS.
//!
//! One for each name, and not one for each route: a chain that changes is drained, and a name that comes or goes must not end the
//! connections that came by another.

use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::accesslog::v3::{AccessLog, access_log};
use envoy_types::pb::envoy::config::core::v3::DataSource;
use envoy_types::pb::envoy::config::core::v3::data_source::Specifier;
use envoy_types::pb::envoy::config::core::v3::substitution_format_string::Format;
use envoy_types::pb::envoy::config::core::v3::{Metadata, SubstitutionFormatString};
use envoy_types::pb::envoy::config::listener::v3::filter::ConfigType;
use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch};
use envoy_types::pb::envoy::config::rbac::v3::{
    Permission, Policy, Principal, Rbac as Rules, permission, principal, rbac,
};
use envoy_types::pb::envoy::extensions::access_loggers::stream::v3::{StdoutAccessLog, stdout_access_log};
use envoy_types::pb::envoy::extensions::filters::network::rbac::v3::Rbac;
use envoy_types::pb::envoy::extensions::filters::network::sni_cluster::v3::SniCluster;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::ClusterSpecifier;
use envoy_types::pb::envoy::r#type::matcher::v3::StringMatcher;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value};
use prost::{Message, Name};
use underpass_tables::{Listener, ProxyHeader, Route};

use super::{cidr, number, span, typed};

const TLS: &str = "tls";
const NOT_TLS: &str = "raw_buffer";
/// Sorted as they stand: one line of JSON for each connection, with the names that our own relay uses. Written here and not as a map, whose
/// order is left to chance.
const ACCESS_LOG: &str = concat!(
    r#"{"time":"%START_TIME%","client":"%DOWNSTREAM_REMOTE_ADDRESS%","server_name":"%REQUESTED_SERVER_NAME%","route":"%UPSTREAM_CLUSTER%","#,
    r#""endpoint":"%UPSTREAM_HOST%","bytes_sent":%BYTES_RECEIVED%,"bytes_received":%BYTES_SENT%,"duration_ms":%DURATION%,"#,
    r#""flags":"%RESPONSE_FLAGS%","end":"%CONNECTION_TERMINATION_DETAILS%"}"#,
    "\n"
);

pub(super) fn chains(listener: &Listener, routes: &[Arc<Route>]) -> Vec<FilterChain> {
    let rules = &listener.rules;
    let mut chains: Vec<FilterChain> = Vec::new();
    for (name, route) in rules.names() {
        let route = &routes[route.0];
        // A name may be written with the dot that ends it.
        let by_name = FilterChainMatch { server_names: vec![name.clone(), format!("{name}.")], ..protocol(TLS) };
        chains.push(chain(format!("{}/{name}", route.name), by_name, route, vec![tcp_proxy(route)]));
    }
    if let Some(unnamed) = rules.unnamed {
        let route = &routes[unnamed.route.0];
        let filters = vec![only_without_a_name(listener), elsewhere_with_a_name(), tcp_proxy(route)];
        chains.push(chain(format!("{}/no name", route.name), protocol(TLS), route, filters));
    }
    if let Some(plain) = rules.plain {
        let route = &routes[plain.0];
        chains.push(chain(format!("{}/not TLS", route.name), protocol(NOT_TLS), route, vec![tcp_proxy(route)]));
    }
    chains
}

/// Whether the chains of both are the same: everything of a route that goes into them.
pub(super) fn alike(one: &Route, other: &Route) -> bool {
    let Route { sources, idle_timeout, connect_attempts, .. } = one;
    one.goes_on_as(other)
        && (sources, idle_timeout, connect_attempts) == (&other.sources, &other.idle_timeout, &other.connect_attempts)
}

fn protocol(protocol: &str) -> FilterChainMatch {
    FilterChainMatch { transport_protocol: protocol.into(), ..FilterChainMatch::default() }
}

fn chain(name: String, matching: FilterChainMatch, route: &Route, filters: Vec<Filter>) -> FilterChain {
    FilterChain {
        name,
        filter_chain_match: Some(FilterChainMatch {
            source_prefix_ranges: route.sources.iter().map(cidr).collect(),
            ..matching
        }),
        filters,
        metadata: Some(Metadata {
            filter_metadata: [("underpass".to_owned(), made_for(route))].into(),
            ..Metadata::default()
        }),
        ..FilterChain::default()
    }
}

/// Connections that were made for another target, or with another header, are drained with their chain. In one word: a map with two has no order.
fn made_for(route: &Route) -> Struct {
    let header = route.proxy_header.map_or("", |header| match header {
        ProxyHeader::V1 => " by PROXY V1",
        ProxyHeader::V2 => " by PROXY V2",
    });
    let target = Value { kind: Some(Kind::StringValue(format!("{}{header}", route.target))) };
    Struct { fields: [("target".to_owned(), target)].into() }
}

fn tcp_proxy(route: &Route) -> Filter {
    let proxy = TcpProxy {
        stat_prefix: route.name.clone(),
        cluster_specifier: Some(ClusterSpecifier::Cluster(route.name.clone())),
        // Zero: never. Envoy's own hour would end watches and tunnels.
        idle_timeout: Some(span(route.idle_timeout.unwrap_or(Duration::ZERO))),
        max_connect_attempts: Some(number(route.connect_attempts)),
        ..TcpProxy::default()
    };
    filter("envoy.filters.network.tcp_proxy", proxy)
}

/// A chain without names also takes every name that no other chain has. An unknown name has no business here: it is led to a cluster of
/// its own name, which does not exist, before anything is dialled; and should it guess the name of one that does, not a byte of it
/// gets through.
fn elsewhere_with_a_name() -> Filter {
    filter("envoy.filters.network.sni_cluster", SniCluster {})
}

fn only_without_a_name(listener: &Listener) -> Filter {
    let no_name = StringMatcher { match_pattern: Some(MatchPattern::Exact(String::new())), ..StringMatcher::default() };
    let policy = Policy {
        permissions: vec![Permission { rule: Some(permission::Rule::RequestedServerName(no_name)) }],
        principals: vec![Principal { identifier: Some(principal::Identifier::Any(true)) }],
        ..Policy::default()
    };
    let rules = Rules {
        action: rbac::Action::Allow.into(),
        policies: [("no name".to_owned(), policy)].into(),
        ..Rules::default()
    };
    let filter_config =
        Rbac { rules: Some(rules), stat_prefix: format!("{}.unknown_name.", listener.name), ..Rbac::default() };
    filter("envoy.filters.network.rbac", filter_config)
}

pub(super) fn access_log() -> AccessLog {
    let text = DataSource { specifier: Some(Specifier::InlineString(ACCESS_LOG.into())), ..DataSource::default() };
    let format = SubstitutionFormatString {
        format: Some(Format::TextFormatSource(text)),
        ..SubstitutionFormatString::default()
    };
    let log = StdoutAccessLog { access_log_format: Some(stdout_access_log::AccessLogFormat::LogFormat(format)) };
    AccessLog {
        name: "envoy.access_loggers.stdout".into(),
        config_type: Some(access_log::ConfigType::TypedConfig(typed(log))),
        ..AccessLog::default()
    }
}

fn filter<M: Message + Name>(name: &str, config: M) -> Filter {
    Filter { name: name.into(), config_type: Some(ConfigType::TypedConfig(typed(config))) }
}
