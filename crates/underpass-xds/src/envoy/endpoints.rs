//! Where the connections of a route go.

use envoy_types::pb::envoy::config::core::v3::HealthStatus;
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints};
use std::net::SocketAddr;
use underpass_tables::{Route, Transport};

use super::socket_address;

/// Without endpoints it is empty, not left out: a cluster whose endpoints are not told is not used at all.
pub(super) fn assignment(route: &Route) -> ClusterLoadAssignment {
    let lb_endpoints: Vec<LbEndpoint> = route.endpoints.iter().map(|endpoint| lb_endpoint(*endpoint)).collect();
    let locality = LocalityLbEndpoints { lb_endpoints, ..LocalityLbEndpoints::default() };
    let endpoints = if route.endpoints.is_empty() { Vec::new() } else { vec![locality] };
    ClusterLoadAssignment { cluster_name: route.name.clone(), endpoints, ..ClusterLoadAssignment::default() }
}

fn lb_endpoint(address: SocketAddr) -> LbEndpoint {
    let endpoint = Endpoint { address: Some(socket_address(address, Transport::Stream)), ..Endpoint::default() };
    LbEndpoint {
        health_status: HealthStatus::Unknown.into(),
        host_identifier: Some(HostIdentifier::Endpoint(endpoint)),
        ..LbEndpoint::default()
    }
}
