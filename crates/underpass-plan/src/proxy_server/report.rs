//! What a data plane says about its backends, from its table and from what was tried.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use underpass_resources::ProxyServer;
use underpass_resources::proxy_backend::{BackendProtocol, ProxyBackend};
use underpass_resources::proxy_server::BackendStatus;
use underpass_tables::{Listener, ProxyHeader, RelayTable, Route, Transport};

use super::admission::{TAKEN, entry, route_name};
use super::route::check_name;
use super::targets::SERVICE_NOT_FOUND;

/// Why a backend is left out of the configuration: for what another has, or for anything else.
pub(crate) const DUPLICATE_MATCH: &str = "DuplicateMatch";
pub(crate) const EXCLUDED: &str = "Excluded";

/// A connection that shows whether a backend can be reached through the data plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossing {
    pub passage: Passage,
    /// Where it leads to.
    pub endpoints: Vec<SocketAddr>,
}

/// What a connection shows something about: a backend as its object has it. Endpoints come and go, and a passage stays the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Passage {
    pub backend: String,
    /// `<namespace>/<service>:<port>`.
    pub target: String,
    pub port: u16,
    pub server_name: String,
    /// Whether the port expects a PROXY header first.
    pub proxy_header: bool,
    /// The PROXY header that the server gets first.
    pub sent_header: Option<ProxyHeader>,
    /// Whether whatever is not TLS goes there too, so that the server may speak anything.
    pub plain: bool,
    /// Whether a connection takes one of the places that the backend has for its clients (`maxConnections`), of which there may be none left.
    pub takes_a_place: bool,
}

/// What came of those that were tried; of one that failed, why.
pub type Proofs = BTreeMap<Passage, Result<(), String>>;

/// What can be tried.
pub fn crossings(proxy: &ProxyServer, table: &RelayTable) -> Vec<Crossing> {
    let routes = routes(table);
    let tried = |backend: &ProxyBackend| {
        let route = routes.get(route_name(proxy, backend).as_str())?;
        can_be_tried(backend, route)
            .then(|| Crossing { passage: passage(table, backend, route), endpoints: route.open().collect() })
    };
    proxy.spec.backends.iter().filter_map(tried).collect()
}

/// One entry per backend, sorted by name. `proofs`, if any were made, may be of before, when backends were others; `healthy` counts endpoints
/// by route.
pub fn backends(
    proxy: &ProxyServer,
    table: &RelayTable,
    proofs: Option<&Proofs>,
    healthy: &BTreeMap<String, usize>,
) -> Vec<BackendStatus> {
    let routes = routes(table);
    let mut all: Vec<BackendStatus> = proxy
        .spec
        .backends
        .iter()
        .map(|backend| {
            let name = route_name(proxy, backend);
            match routes.get(name.as_str()) {
                Some(route) => {
                    let proof = proofs.and_then(|proofs| {
                        // What cannot be tried is taken at its word.
                        if !can_be_tried(backend, route) {
                            return Some(&Ok(()));
                        }
                        proofs.get(&passage(table, backend, route))
                    });
                    served(backend, route, proof, healthy.get(&name))
                }
                None => excluded(proxy, backend, table),
            }
        })
        .collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// Not datagrams, and not backends that only some clients may reach.
fn can_be_tried(backend: &ProxyBackend, route: &Route) -> bool {
    backend.protocol != BackendProtocol::Udp && route.sources.is_empty() && !route.endpoints.is_empty()
}

fn passage(table: &RelayTable, backend: &ProxyBackend, route: &Route) -> Passage {
    Passage {
        backend: backend.name.to_string(),
        target: route.target.clone(),
        port: backend.port,
        server_name: check_name(backend),
        proxy_header: backend.accepts_proxy_protocol(),
        sent_header: route.proxy_header,
        plain: is_plain(table, backend.port, route),
        takes_a_place: route.max_connections.is_some(),
    }
}

fn is_plain(table: &RelayTable, port: u16, route: &Route) -> bool {
    let of_port = |listener: &&Listener| (listener.address.port(), listener.transport) == (port, Transport::Stream);
    let plain = table.listeners.iter().filter(of_port).find_map(|listener| listener.rules.plain);
    plain.is_some_and(|plain| table.routes[plain.0].name == route.name)
}

fn routes(table: &RelayTable) -> BTreeMap<&str, &Route> {
    table.routes.iter().map(|route| (route.name.as_str(), &**route)).collect()
}

fn served(
    backend: &ProxyBackend,
    route: &Route,
    proof: Option<&Result<(), String>>,
    healthy: Option<&usize>,
) -> BackendStatus {
    let reason = match (&route.trouble, proof) {
        (Some(trouble), _) if trouble.starts_with(SERVICE_NOT_FOUND) => Some("ServiceNotFound"),
        (Some(_), _) => Some("NoEndpoints"),
        (None, None) => Some("NotTried"),
        (None, Some(Err(_))) => Some("NotCrossed"),
        (None, Some(Ok(()))) => None,
    };
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let open = route.open().count();
    BackendStatus {
        name: backend.name.to_string(),
        ready: reason.is_none(),
        reason: reason.map(str::to_owned),
        endpoints: count(open),
        healthy: count(healthy.copied().unwrap_or(open)),
        last_error: route.trouble.clone().or_else(|| proof?.as_ref().err().cloned()),
    }
}

fn excluded(proxy: &ProxyServer, backend: &ProxyBackend, table: &RelayTable) -> BackendStatus {
    let entry = entry(proxy, backend);
    let why = table.rejects.iter().find(|reject| reject.entry == entry).map(|reject| &reject.reason);
    let is_duplicate = why.is_some_and(|why| why.contains(TAKEN));
    BackendStatus {
        name: backend.name.to_string(),
        ready: false,
        reason: Some(if is_duplicate { DUPLICATE_MATCH } else { EXCLUDED }.to_owned()),
        last_error: why.cloned(),
        ..BackendStatus::default()
    }
}
