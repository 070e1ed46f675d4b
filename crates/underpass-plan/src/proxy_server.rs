//! ProxyServers, and the Services that they lead to, become the table of a relay.
//!
//! Entry by entry: a backend that cannot be served is left out and told as a reject, and the table is the one that its author would
//! have got without writing it. Refusing the whole object was rejected: one typo must not take a cluster's API away.
//!
//! Where two entries want the same thing, the first one has it: in the order of the list inside one object, by namespace and name
//! between objects. In which order objects come does not matter.

mod admission;
mod bootstrap;
mod explain;
mod listener;
mod report;
mod route;
mod targets;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use underpass_resources::ProxyServer;
use underpass_resources::proxy_server::LogLevel as Wanted;
use underpass_tables::{Limits, LogLevel, RelayTable};

use admission::Admission;
use targets::Targets;

pub use bootstrap::{ADMIN_CLUSTER, Bootstrap};
pub use explain::{Answer, Explanation, Question, Step, Way, explain};
pub use report::{Crossing, Passage, Proofs, backends, crossings};
pub(crate) use report::{DUPLICATE_MATCH, EXCLUDED};
pub use targets::external_name;

/// All that decides what a relay does.
#[derive(Debug, Default)]
pub struct Observed<'a> {
    pub proxies: Vec<&'a ProxyServer>,
    pub services: Vec<&'a Service>,
    pub slices: Vec<&'a EndpointSlice>,
    /// What a cluster adds; None: there is none, all that is known stands in a file.
    pub cluster: Option<&'a Cluster>,
}

/// What only a cluster knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// The addresses of the names that ExternalName Services lead to, or why there are none.
    pub names: BTreeMap<String, Result<Vec<IpAddr>, String>>,
    /// Namespaces about which nothing is known, and why.
    pub unknown: BTreeMap<String, String>,
    /// The address of the pod in which all this is carried.
    pub pod_ip: Option<IpAddr>,
}

/// The table for all of these proxies together.
pub fn relay_table(generation: u64, observed: &Observed<'_>) -> RelayTable {
    let mut proxies = observed.proxies.clone();
    proxies.sort_by_key(|proxy| key(&proxy.metadata));
    let targets = Targets::index(observed);
    // In a pod serverIP comes and goes, and other pods come by another address.
    let everywhere = observed.cluster.is_some();
    let mut admission = Admission::new(everywhere);
    for proxy in &proxies {
        admission.offer_all(proxy);
    }
    let (accepted, ports, mut rejects) = admission.finish();
    rejects.extend(targets.rejects().iter().cloned());
    let (routes, ids) = route::sorted(&accepted, &targets);
    let listeners = listener::sorted(&accepted, &ports, &ids);
    RelayTable {
        generation,
        listeners,
        routes,
        limits: limits(&proxies),
        drain: drain(&proxies),
        log_level: log_level(&proxies),
        rejects,
    }
}

/// The process has one count of connections: the strictest of several limits holds.
fn limits(proxies: &[&ProxyServer]) -> Limits {
    let given = || proxies.iter().filter_map(|proxy| proxy.spec.limits.as_ref());
    Limits {
        connections: given().filter_map(|limits| limits.max_connections).min(),
        per_second_per_source: given().filter_map(|limits| limits.connections_per_second_per_source).min(),
        half_open: given().filter_map(|limits| limits.max_half_open).min(),
    }
}

fn drain(proxies: &[&ProxyServer]) -> Duration {
    let longest = proxies.iter().map(|proxy| proxy.spec.drain_seconds).max();
    Duration::from_secs(longest.unwrap_or_default().into())
}

/// The process has one log: whoever wants to see most gets it.
fn log_level(proxies: &[&ProxyServer]) -> LogLevel {
    proxies.iter().map(|proxy| log_level_of(proxy.spec.log_level)).max().unwrap_or_default()
}

/// How much a data plane of ours logs.
pub fn log_level_of(wanted: Wanted) -> LogLevel {
    match wanted {
        Wanted::Trace => LogLevel::Trace,
        Wanted::Debug => LogLevel::Debug,
        Wanted::Info => LogLevel::Info,
        Wanted::Warning => LogLevel::Warn,
        // Nothing here is worse than an error.
        Wanted::Error | Wanted::Critical => LogLevel::Error,
    }
}

/// Namespace and name, as kubectl would fill them in.
pub fn key(metadata: &ObjectMeta) -> (&str, &str) {
    (metadata.namespace.as_deref().unwrap_or("default"), metadata.name.as_deref().unwrap_or_default())
}
