//! A relay's table in Envoy's words: one cluster and one list of endpoints for each route, one listener for each listener.
//!
//! What is the same in two tables is the same byte for byte in Envoy's words: an Envoy then changes only what changed, and drains only
//! the filter chains that are gone. Everything is sorted, and no map has two entries, whose order would be left to chance.

mod cluster;
mod endpoints;
mod filter_chain;
mod listener;
mod metrics;

use std::collections::BTreeMap;
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
use underpass_tables::{Listener, RelayTable, Route, Transport};

pub(crate) use self::cluster::LONGEST_CHECK;
use self::listener::KnownListener;
use crate::resources::Resource;
use crate::snapshot::{Kind, Snapshot};

/// Turns tables into snapshots. Remembers the one before, so that only what changed is translated again.
#[derive(Default)]
pub struct Translator {
    /// Sorted by name, as routes are.
    routes: Vec<KnownRoute>,
    listeners: BTreeMap<Arc<str>, KnownListener>,
    /// A listener that is told beside every table.
    beside: Option<(Arc<str>, Arc<Resource>)>,
    last: Snapshot,
}

/// A route and what it became.
struct KnownRoute {
    name: Arc<str>,
    route: Arc<Route>,
    cluster: Arc<Resource>,
    endpoints: Arc<Resource>,
}

impl Translator {
    /// Has every Envoy show its metrics, and whether it is ready, at this address and only to those who come by this device: by a cluster of
    /// its own that leads to its admin port.
    pub fn with_metrics(address: SocketAddr, device: &str, admin_cluster: &str) -> Self {
        let listener = metrics::listener(address, device, admin_cluster);
        let beside = (Arc::from(listener.name.as_str()), Arc::new(Resource::new(Kind::Listener, &listener)));
        Self { beside: Some(beside), ..Self::default() }
    }

    pub fn snapshot(&mut self, table: &RelayTable) -> Snapshot {
        self.learn_routes(&table.routes);
        self.learn_listeners(table);
        let clusters: Vec<_> = self.routes.iter().map(|known| (&known.name, &known.cluster)).collect();
        let endpoints: Vec<_> = self.routes.iter().map(|known| (&known.name, &known.endpoints)).collect();
        let listeners = self.listeners.iter().map(|(name, known)| (name, &known.resource));
        let mut listeners: Vec<_> =
            listeners.chain(self.beside.iter().map(|(name, resource)| (name, resource))).collect();
        listeners.sort_unstable_by_key(|(name, _)| *name);
        self.last = Snapshot {
            clusters: self.last.clusters.followed_by(&clusters),
            endpoints: self.last.endpoints.followed_by(&endpoints),
            listeners: self.last.listeners.followed_by(&listeners),
        };
        self.last.clone()
    }

    /// One walk along the routes before and those of now.
    fn learn_routes(&mut self, routes: &[Arc<Route>]) {
        let mut before = std::mem::take(&mut self.routes).into_iter().peekable();
        let learn = |route: &Arc<Route>| {
            if let Some(same) = before.next_if(|known| Arc::ptr_eq(&known.route, route)) {
                return same;
            }
            while before.next_if(|known| *known.name < *route.name).is_some() {}
            match before.next_if(|known| *known.name == *route.name) {
                Some(known) if known.route == *route => known,
                Some(known) => known.changed(route),
                None => KnownRoute::new(route),
            }
        };
        self.routes = routes.iter().map(learn).collect();
    }

    fn learn_listeners(&mut self, table: &RelayTable) {
        let mut before = std::mem::take(&mut self.listeners);
        let learn = |wanted: &Listener| {
            if let Some((name, mut known)) = before.remove_entry(wanted.name.as_str())
                && known.goes_on_as(wanted, &table.routes)
            {
                return (name, known);
            }
            (wanted.name.as_str().into(), KnownListener::new(wanted, &table.routes))
        };
        self.listeners = table.listeners.iter().map(learn).collect();
    }
}

impl KnownRoute {
    fn new(route: &Arc<Route>) -> Self {
        let cluster = Resource::new(Kind::Cluster, &cluster::cluster(route));
        // A cluster that changes waits for its endpoints, also if its Envoy lost us between the two and says that it has them.
        let endpoints = Resource::new(Kind::Endpoints, &endpoints::assignment(route)).along_with(&cluster);
        Self {
            name: route.name.as_str().into(),
            route: route.clone(),
            cluster: Arc::new(cluster),
            endpoints: Arc::new(endpoints),
        }
    }

    /// What is the same as before is not made twice.
    fn changed(self, route: &Arc<Route>) -> Self {
        let now = Self::new(route);
        let keep = |before: Arc<Resource>, now: Arc<Resource>| if before.version == now.version { before } else { now };
        Self {
            name: self.name,
            route: now.route,
            cluster: keep(self.cluster, now.cluster),
            endpoints: keep(self.endpoints, now.endpoints),
        }
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
