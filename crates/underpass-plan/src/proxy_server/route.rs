//! One route per backend that is served.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use underpass_resources::address::Cidr;
use underpass_resources::proxy_backend::{self, HealthCheckType, LoadBalancing, ProxyBackend, ProxyProtocolVersion};
use underpass_tables::{Balance, CheckKind, HealthCheck, ProxyHeader, Route, RouteId};

use super::admission::Accepted;
use super::targets::Targets;

/// The label under which a wildcard is checked: every name below it leads to the backend.
const CHECK_LABEL: &str = "underpass-check";
/// Of any name, by the rules of DNS. Nobody takes a longer one.
const LONGEST_NAME: usize = 253;

/// The routes by name, and where each accepted backend's stands among them.
pub(super) fn sorted(accepted: &[Accepted<'_>], targets: &Targets<'_>) -> (Vec<Arc<Route>>, Vec<RouteId>) {
    let mut order: Vec<usize> = (0..accepted.len()).collect();
    order.sort_by(|one, other| accepted[*one].route.cmp(&accepted[*other].route));
    let mut ids = vec![RouteId(0); accepted.len()];
    for (position, number) in order.iter().enumerate() {
        ids[*number] = RouteId(position);
    }
    let routes = order.iter().map(|number| Arc::new(route(&accepted[*number], targets))).collect();
    (routes, ids)
}

fn route(accepted: &Accepted<'_>, targets: &Targets<'_>) -> Route {
    let backend = accepted.backend;
    let (endpoints, trouble) = match targets.endpoints(backend) {
        Ok(endpoints) => (endpoints, None),
        Err(trouble) => (Vec::new(), Some(trouble)),
    };
    Route {
        name: accepted.route.clone(),
        target: target(backend),
        endpoints,
        balance: match backend.load_balancing {
            LoadBalancing::RoundRobin => Balance::RoundRobin,
            LoadBalancing::LeastConnections => Balance::LeastConnections,
        },
        stock: None,
        connect_timeout: seconds(backend.timeout_seconds),
        connect_attempts: backend.connect_attempts,
        idle_timeout: Some(seconds(backend.idle_timeout_seconds)).filter(|time| !time.is_zero()),
        max_connections: backend.max_connections,
        proxy_header: backend.proxy_protocol.as_ref().and_then(|protocol| protocol.send).map(|version| match version {
            ProxyProtocolVersion::V1 => ProxyHeader::V1,
            ProxyProtocolVersion::V2 => ProxyHeader::V2,
        }),
        sources: sources(backend),
        health_check: backend.health_check.as_ref().map(|check| health_check(check, backend)),
        trouble,
    }
}

/// Each network once, however it is written: an Envoy takes none that has the same one twice, nor the listener around it.
fn sources(backend: &ProxyBackend) -> Vec<IpNet> {
    let written = backend.source_cidrs.iter().filter_map(Cidr::parts);
    let networks = written.filter_map(|(address, prefix)| IpNet::new(address, prefix).ok());
    networks.map(|network| network.trunc()).collect::<BTreeSet<_>>().into_iter().collect()
}

pub(super) fn target(backend: &ProxyBackend) -> String {
    format!("{}/{}:{}", backend.target_namespace, backend.target_service, backend.target_port)
}

fn health_check(check: &proxy_backend::HealthCheck, backend: &ProxyBackend) -> HealthCheck {
    HealthCheck {
        kind: match check.type_ {
            HealthCheckType::Tcp => CheckKind::Tcp,
            HealthCheckType::Tls => CheckKind::Tls { server_name: check_name(backend) },
        },
        interval: seconds(check.interval_seconds),
        timeout: seconds(check.timeout_seconds),
        unhealthy_after: check.unhealthy_threshold,
        healthy_after: check.healthy_threshold,
    }
}

/// A name that leads to the backend.
pub(super) fn check_name(backend: &ProxyBackend) -> String {
    let plain = backend.hostnames().find(|name| !name.starts_with('*'));
    let has_room = backend.hostname.len() + CHECK_LABEL.len() <= LONGEST_NAME + 1;
    let label = if has_room { CHECK_LABEL } else { &CHECK_LABEL[..1] };
    plain.map_or_else(|| backend.hostname.replacen('*', label, 1), str::to_owned)
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}
