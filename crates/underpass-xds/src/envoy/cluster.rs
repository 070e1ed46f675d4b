//! How the endpoints of a route are dialled.

use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3::circuit_breakers::Thresholds;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, CommonLbConfig, DiscoveryType, EdsClusterConfig, LbPolicy, TransportSocketMatch,
};
use envoy_types::pb::envoy::config::cluster::v3::{
    CircuitBreakers, Cluster, OutlierDetection, UpstreamConnectionOptions,
};
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::core::v3::health_check::{HealthChecker, TcpHealthCheck};
use envoy_types::pb::envoy::config::core::v3::proxy_protocol_config::Version;
use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
use envoy_types::pb::envoy::config::core::v3::{
    AggregatedConfigSource, ApiVersion, ConfigSource, HealthCheck, ProxyProtocolConfig, TcpKeepalive, TransportSocket,
};
use envoy_types::pb::envoy::extensions::transport_sockets::proxy_protocol::v3::ProxyProtocolUpstreamTransport;
use envoy_types::pb::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, TlsParameters, UpstreamTlsContext,
};
use envoy_types::pb::envoy::r#type::v3::Percent;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, UInt32Value, Value};
use prost::{Message, Name};
use underpass_tables::{Balance, CheckKind, ProxyHeader, Route};

use super::{number, span, typed};

/// As our own relay does it: failures in a row that set an endpoint aside, for how long at first, and at most.
const SET_ASIDE_AFTER: u32 = 5;
const SET_ASIDE_FOR: Duration = Duration::from_secs(30);
const SET_ASIDE_AT_MOST: Duration = Duration::from_secs(300);
/// An endpoint that is known to be ill is not dialled unless none is known to be well: a wrong verdict must not make an outage of its own.
/// Envoy takes whole percents of the endpoints, draining ones among them, and zero for never; so one that is well among more than a hundred
/// counts for none.
const ALL_ARE_TRIED_BELOW: f64 = 1.0;
/// Whoever is silent this long is asked whether it is still there.
pub(super) const KEEPALIVE_AFTER: u32 = 60;
pub(super) const KEEPALIVE_EVERY: u32 = 15;
pub(super) const KEEPALIVE_PROBES: u32 = 4;
/// Of a check. An Envoy that starts lets nobody in before every endpoint was checked once, so that one which does not answer keeps the
/// clients of all others waiting for as long.
pub(crate) const LONGEST_CHECK: Duration = Duration::from_secs(10);
/// The label by which a check finds its own way of connecting.
const CHECK: &str = "check";

pub(super) fn cluster(route: &Route) -> Cluster {
    let mut cluster = Cluster {
        name: route.name.clone(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: Some(by_the_same_stream()),
            ..EdsClusterConfig::default()
        }),
        connect_timeout: Some(span(route.connect_timeout)),
        lb_policy: match route.balance {
            Balance::RoundRobin => LbPolicy::RoundRobin,
            Balance::LeastConnections => LbPolicy::LeastRequest,
        }
        .into(),
        circuit_breakers: Some(CircuitBreakers { thresholds: vec![thresholds(route)], ..CircuitBreakers::default() }),
        outlier_detection: Some(outliers()),
        upstream_connection_options: Some(UpstreamConnectionOptions {
            tcp_keepalive: Some(keepalive()),
            ..UpstreamConnectionOptions::default()
        }),
        common_lb_config: Some(CommonLbConfig {
            healthy_panic_threshold: Some(Percent { value: ALL_ARE_TRIED_BELOW }),
            ..CommonLbConfig::default()
        }),
        transport_socket: route.proxy_header.map(|header| with_header(header, plain())),
        ..Cluster::default()
    };
    if let Some(check) = &route.health_check {
        // One that has left its Service is not kept for as long as it passes.
        cluster.ignore_health_on_host_removal = true;
        cluster.transport_socket_matches = vec![way_of_checking(&check.kind, route.proxy_header)];
        cluster.health_checks = vec![HealthCheck {
            interval: Some(span(check.interval)),
            // Before the first connection, too.
            no_traffic_interval: Some(span(check.interval)),
            timeout: Some(span(check.timeout.min(LONGEST_CHECK))),
            unhealthy_threshold: Some(number(check.unhealthy_after)),
            healthy_threshold: Some(number(check.healthy_after)),
            health_checker: Some(HealthChecker::TcpHealthCheck(TcpHealthCheck::default())),
            transport_socket_match_criteria: Some(labelled(CHECK)),
            ..HealthCheck::default()
        }];
    }
    cluster
}

fn by_the_same_stream() -> ConfigSource {
    ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        // Without end: after Envoy's own 15 seconds it would go on with a cluster of which nobody has told it the endpoints.
        initial_fetch_timeout: Some(span(Duration::ZERO)),
        ..ConfigSource::default()
    }
}

/// Envoy's own bounds are for requests; here only what is asked for holds.
fn thresholds(route: &Route) -> Thresholds {
    let unbounded: Option<UInt32Value> = Some(number(u32::MAX));
    Thresholds {
        max_connections: Some(number(route.max_connections.unwrap_or(u32::MAX))),
        max_pending_requests: unbounded,
        max_requests: unbounded,
        max_retries: unbounded,
        ..Thresholds::default()
    }
}

fn outliers() -> OutlierDetection {
    OutlierDetection {
        split_external_local_origin_errors: true,
        consecutive_local_origin_failure: Some(number(SET_ASIDE_AFTER)),
        enforcing_consecutive_local_origin_failure: Some(number(100)),
        enforcing_local_origin_success_rate: Some(number(0)),
        enforcing_success_rate: Some(number(0)),
        base_ejection_time: Some(span(SET_ASIDE_FOR)),
        max_ejection_time: Some(span(SET_ASIDE_AT_MOST)),
        // All of them if need be, since then all are tried: of many dead ones a bound would keep some in turn.
        max_ejection_percent: Some(number(100)),
        ..OutlierDetection::default()
    }
}

fn keepalive() -> TcpKeepalive {
    TcpKeepalive {
        keepalive_time: Some(number(KEEPALIVE_AFTER)),
        keepalive_interval: Some(number(KEEPALIVE_EVERY)),
        keepalive_probes: Some(number(KEEPALIVE_PROBES)),
    }
}

fn with_header(header: ProxyHeader, socket: TransportSocket) -> TransportSocket {
    let version = match header {
        ProxyHeader::V1 => Version::V1,
        ProxyHeader::V2 => Version::V2,
    };
    let config = ProxyProtocolUpstreamTransport {
        config: Some(ProxyProtocolConfig { version: version.into(), ..ProxyProtocolConfig::default() }),
        transport_socket: Some(socket),
        ..ProxyProtocolUpstreamTransport::default()
    };
    transport_socket("envoy.transport_sockets.upstream_proxy_protocol", config)
}

/// Checks connect in their own way: with a handshake if that is asked for, behind the header without which an endpoint would not take it.
/// Nobody is behind a check: in version 2 the header says so, in version 1 it has the check's own addresses. One without a handshake is over
/// before anything would be said.
fn way_of_checking(kind: &CheckKind, header: Option<ProxyHeader>) -> TransportSocketMatch {
    let socket = match (kind, header) {
        (CheckKind::Tcp, _) => plain(),
        (CheckKind::Tls { server_name }, None) => tls(server_name),
        (CheckKind::Tls { server_name }, Some(header)) => with_header(header, tls(server_name)),
    };
    TransportSocketMatch { name: CHECK.into(), r#match: Some(labelled(CHECK)), transport_socket: Some(socket) }
}

fn tls(server_name: &str) -> TransportSocket {
    // Envoy's own clients go no further than TLS 1.2, and there are servers that speak nothing so old.
    let newest = TlsParameters { tls_maximum_protocol_version: TlsProtocol::TlSv13.into(), ..TlsParameters::default() };
    let config = UpstreamTlsContext {
        common_tls_context: Some(CommonTlsContext { tls_params: Some(newest), ..CommonTlsContext::default() }),
        sni: server_name.to_owned(),
        ..UpstreamTlsContext::default()
    };
    transport_socket("envoy.transport_sockets.tls", config)
}

fn plain() -> TransportSocket {
    transport_socket("envoy.transport_sockets.raw_buffer", RawBuffer {})
}

fn transport_socket<M: Message + Name>(name: &str, config: M) -> TransportSocket {
    TransportSocket { name: name.into(), config_type: Some(ConfigType::TypedConfig(typed(config))) }
}

fn labelled(label: &str) -> Struct {
    Struct { fields: [(label.to_owned(), Value { kind: Some(Kind::BoolValue(true)) })].into() }
}
