//! Where the connections of a route go.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::{HealthStatus, Locality};
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint as Host, LbEndpoint, LocalityLbEndpoints,
};
use underpass_tables::{Endpoint, Route, Transport};

use super::socket_address;

/// Without endpoints it is empty, not left out: a cluster whose endpoints are not told is not used at all.
pub(super) fn assignment(route: &Route) -> ClusterLoadAssignment {
    let mut zones: BTreeMap<Option<&str>, Vec<LbEndpoint>> = BTreeMap::new();
    for endpoint in &route.endpoints {
        zones.entry(endpoint.zone.as_deref()).or_default().push(lb_endpoint(endpoint));
    }
    let locality = |(zone, lb_endpoints): (Option<&str>, _)| LocalityLbEndpoints {
        locality: zone.map(|zone| Locality { zone: zone.to_owned(), ..Locality::default() }),
        lb_endpoints,
        ..LocalityLbEndpoints::default()
    };
    let endpoints = zones.into_iter().map(locality).collect();
    ClusterLoadAssignment { cluster_name: route.name.clone(), endpoints, ..ClusterLoadAssignment::default() }
}

fn lb_endpoint(endpoint: &Endpoint) -> LbEndpoint {
    let address = Some(socket_address(endpoint.address, Transport::Stream));
    let health = if endpoint.draining { HealthStatus::Draining } else { HealthStatus::Unknown };
    LbEndpoint {
        health_status: health.into(),
        host_identifier: Some(HostIdentifier::Endpoint(Host { address, ..Host::default() })),
        ..LbEndpoint::default()
    }
}
