//! Where an Envoy shows its metrics to others: reading only, and only two pages, since its admin port can also be told to quit.

use std::net::SocketAddr;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::socket_option::{SocketState, Value};
use envoy_types::pb::envoy::config::core::v3::{HttpProtocolOptions, SocketOption};
use envoy_types::pb::envoy::config::listener::v3::filter::ConfigType;
use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, Listener};
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use envoy_types::pb::envoy::config::route::v3::{Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost};
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_filter::ConfigType as HttpConfigType;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter,
};
use underpass_tables::Transport;

use super::listener::SOL_SOCKET;
use super::{socket_address, span, typed};

/// Linux' number.
const SO_BINDTODEVICE: i64 = 25;
const NAME: &str = "metrics";
const PAGES: [&str; 2] = ["/stats/prometheus", "/ready"];
const REQUEST_TIME: Duration = Duration::from_secs(30);
const HEADER_TIME: Duration = Duration::from_secs(10);
const IDLE_TIME: Duration = Duration::from_secs(60);

pub(super) fn listener(address: SocketAddr, device: &str, admin_cluster: &str) -> Listener {
    let manager = HttpConnectionManager {
        stat_prefix: NAME.into(),
        request_timeout: Some(span(REQUEST_TIME)),
        request_headers_timeout: Some(span(HEADER_TIME)),
        common_http_protocol_options: Some(HttpProtocolOptions {
            idle_timeout: Some(span(IDLE_TIME)),
            ..HttpProtocolOptions::default()
        }),
        route_specifier: Some(RouteSpecifier::RouteConfig(routes(admin_cluster))),
        http_filters: vec![HttpFilter {
            name: "envoy.filters.http.router".into(),
            config_type: Some(HttpConfigType::TypedConfig(typed(Router::default()))),
            ..HttpFilter::default()
        }],
        ..HttpConnectionManager::default()
    };
    let filter = Filter {
        name: "envoy.filters.network.http_connection_manager".into(),
        config_type: Some(ConfigType::TypedConfig(typed(manager))),
    };
    Listener {
        name: NAME.into(),
        stat_prefix: NAME.into(),
        address: Some(socket_address(address, Transport::Stream)),
        // When it is full, somebody wants to know.
        ignore_global_conn_limit: true,
        filter_chains: vec![FilterChain { filters: vec![filter], ..FilterChain::default() }],
        socket_options: vec![only_by(device)],
        ..Listener::default()
    }
}

/// Who is on another network of the machine can name the address too.
fn only_by(device: &str) -> SocketOption {
    SocketOption {
        description: "only by this device".into(),
        level: SOL_SOCKET,
        name: SO_BINDTODEVICE,
        state: SocketState::StatePrebind.into(),
        value: Some(Value::BufValue(device.into())),
        ..SocketOption::default()
    }
}

fn routes(admin_cluster: &str) -> RouteConfiguration {
    let page = |path: &str| Route {
        r#match: Some(RouteMatch { path_specifier: Some(PathSpecifier::Path(path.into())), ..RouteMatch::default() }),
        action: Some(Action::Route(RouteAction {
            cluster_specifier: Some(ClusterSpecifier::Cluster(admin_cluster.into())),
            ..RouteAction::default()
        })),
        ..Route::default()
    };
    RouteConfiguration {
        virtual_hosts: vec![VirtualHost {
            name: NAME.into(),
            domains: vec!["*".into()],
            routes: PAGES.map(page).into(),
            ..VirtualHost::default()
        }],
        ..RouteConfiguration::default()
    }
}
