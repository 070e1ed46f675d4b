//! A relay's table in Envoy's words: one cluster and one list of endpoints for each route, one listener for each listener.
//!
//! What is the same in two tables is the same byte for byte in Envoy's words: an Envoy then changes only what changed, and drains only
//! the filter chains that are gone. Everything is sorted, and no map has two entries, whose order would be left to chance.

mod cluster;
mod endpoints;
mod filter_chain;
mod listener;
mod metrics;

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::address::Address as AddressKind;
use envoy_types::pb::envoy::config::core::v3::socket_address::{PortSpecifier, Protocol};
use envoy_types::pb::envoy::config::core::v3::{Address, CidrRange, SocketAddress};
use envoy_types::pb::google::protobuf::{Any, Duration as Span, UInt32Value};
use envoy_types::util::pack_any;
use ipnet::IpNet;
use prost::{Message, Name};
use underpass_tables::{RelayTable, Route, Transport};

use crate::snapshot::{Resource, Resources, Snapshot};

/// Turns tables into snapshots. Remembers the one before, so that only what changed is translated again.
#[derive(Default)]
pub struct Translator {
    known: HashMap<String, Known>,
    /// What is told beside every table.
    beside: Option<(Arc<str>, Arc<Resource>)>,
}

/// A route and what it became.
struct Known {
    route: Arc<Route>,
    cluster: Arc<Resource>,
    endpoints: Arc<Resource>,
}

impl Translator {
    /// Has every Envoy show its metrics, and whether it is ready, at this address: by a cluster of its own that leads to its admin port.
    pub fn with_metrics(address: SocketAddr, admin_cluster: &str) -> Self {
        let listener = metrics::listener(address, admin_cluster);
        let beside = (Arc::from(listener.name.as_str()), Arc::new(Resource::new(&listener)));
        Self { beside: Some(beside), ..Self::default() }
    }

    pub fn snapshot(&mut self, table: &RelayTable) -> Snapshot {
        self.learn(&table.routes);
        let named = |part: fn(&Known) -> &Arc<Resource>| {
            let resources = table.routes.iter().filter_map(|route| {
                let known = self.known.get(&route.name)?;
                Some((Arc::from(route.name.as_str()), part(known).clone()))
            });
            Resources::new(resources.collect())
        };
        let listeners = table
            .listeners
            .iter()
            .map(|it| (Arc::from(it.name.as_str()), Arc::new(Resource::new(&listener::listener(it, &table.routes)))));
        Snapshot {
            clusters: named(|known| &known.cluster),
            endpoints: named(|known| &known.endpoints),
            listeners: Resources::new(listeners.chain(self.beside.clone()).collect::<BTreeMap<_, _>>()),
        }
    }

    fn learn(&mut self, routes: &[Arc<Route>]) {
        let mut known = HashMap::with_capacity(routes.len());
        for route in routes {
            let before = self.known.remove(&route.name).filter(|known| known.route == *route);
            let now = before.unwrap_or_else(|| Known {
                route: route.clone(),
                cluster: Arc::new(Resource::new(&cluster::cluster(route))),
                endpoints: Arc::new(Resource::new(&endpoints::assignment(route))),
            });
            known.insert(route.name.clone(), now);
        }
        self.known = known;
    }
}

fn socket_address(address: SocketAddr, transport: Transport) -> Address {
    let protocol = match transport {
        Transport::Stream => Protocol::Tcp,
        Transport::Datagram => Protocol::Udp,
    };
    let socket = SocketAddress {
        protocol: protocol.into(),
        address: address.ip().to_string(),
        port_specifier: Some(PortSpecifier::PortValue(address.port().into())),
        // A listener for all addresses of version 6 hears those of version 4 too.
        ipv4_compat: address.ip() == IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
        ..SocketAddress::default()
    };
    Address { address: Some(AddressKind::SocketAddress(socket)) }
}

fn cidr(network: &IpNet) -> CidrRange {
    CidrRange { address_prefix: network.network().to_string(), prefix_len: Some(number(network.prefix_len().into())) }
}

fn span(duration: Duration) -> Span {
    Span {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or_default(),
    }
}

fn number(value: u32) -> UInt32Value {
    UInt32Value { value }
}

fn typed<M: Message + Name>(message: M) -> Any {
    pack_any(message)
}
