//! Which backends are served: one after the other, each wholly or not at all.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use underpass_resources::ProxyServer;
use underpass_resources::proxy_backend::{BackendProtocol, ProxyBackend};
use underpass_resources::proxy_server::OWN_PORTS;
use underpass_tables::{Reject, Transport};

use super::key;

/// In the reason of a backend that wants a name, a port or a default that another one of its ProxyServer has.
pub(super) const TAKEN: &str = "belongs to backend";

/// A backend that is served.
pub(super) struct Accepted<'a> {
    pub(super) backend: &'a ProxyBackend,
    /// `<proxy>-<backend>`.
    pub(super) route: String,
}

/// Where backends are served, and which, by their places in the list of accepted ones.
pub(super) struct Port<'a> {
    pub(super) proxy: &'a ProxyServer,
    pub(super) proxy_header: bool,
    pub(super) backends: Vec<usize>,
    names: HashMap<String, usize>,
    default: Option<usize>,
}

pub(super) type Ports<'a> = BTreeMap<(SocketAddr, Transport), Port<'a>>;

#[derive(Default)]
pub(super) struct Admission<'a> {
    /// Whether ports are listened on at all addresses, and not at the proxy's own only.
    everywhere: bool,
    accepted: Vec<Accepted<'a>>,
    ports: Ports<'a>,
    routes: HashSet<String>,
    listeners: HashSet<String>,
    rejects: Vec<Reject>,
}

impl<'a> Admission<'a> {
    pub(super) fn new(everywhere: bool) -> Self {
        Self { everywhere, ..Self::default() }
    }

    pub(super) fn offer_all(&mut self, proxy: &'a ProxyServer) {
        for backend in &proxy.spec.backends {
            if let Err(reason) = self.offer(proxy, backend) {
                self.rejects.push(Reject { entry: entry(proxy, backend), reason });
            }
        }
    }

    pub(super) fn finish(self) -> (Vec<Accepted<'a>>, Ports<'a>, Vec<Reject>) {
        (self.accepted, self.ports, self.rejects)
    }

    /// Everything that could be wrong is asked before anything is remembered.
    fn offer(&mut self, proxy: &'a ProxyServer, backend: &'a ProxyBackend) -> Result<(), String> {
        let place = self.place(proxy, backend)?;
        let route = route_name(proxy, backend);
        if self.routes.contains(&route) {
            return Err(format!("another backend is called {route} already; choose another name"));
        }
        let (names, listener) = (names(backend), listener_name(proxy, place));
        if let Some(port) = self.ports.get(&place) {
            check_owner(port, place.0, proxy)?;
            self.check_neighbours(port, place.1, backend, &names)?;
        } else if self.listeners.contains(&listener) {
            return Err(format!(
                "another listener is called {listener} already; choose another port, or call one of the ProxyServers differently"
            ));
        }
        let number = self.accepted.len();
        let port = self.ports.entry(place).or_insert_with(|| Port {
            proxy,
            proxy_header: backend.accepts_proxy_protocol(),
            backends: Vec::new(),
            names: HashMap::new(),
            default: None,
        });
        port.backends.push(number);
        port.names.extend(names.into_iter().map(|name| (name, number)));
        port.default = port.default.or(backend.default.then_some(number));
        self.listeners.insert(listener);
        self.routes.insert(route.clone());
        self.accepted.push(Accepted { backend, route });
        Ok(())
    }

    fn place(&self, proxy: &ProxyServer, backend: &ProxyBackend) -> Result<(SocketAddr, Transport), String> {
        let spec = &proxy.spec;
        let Some(address) = spec.network_config.server_ip.address() else {
            return Err(format!("serverIP {} is not an address", spec.network_config.server_ip));
        };
        let port = backend.port;
        if OWN_PORTS.contains(&port) || port == spec.xds_port {
            return Err(format!(
                "port {port} is needed by the proxy itself (9901 to 9903 and xdsPort); choose another"
            ));
        }
        let transport = match backend.protocol {
            BackendProtocol::Udp => Transport::Datagram,
            BackendProtocol::Tcp | BackendProtocol::Tls | BackendProtocol::Https => Transport::Stream,
        };
        let address = match address {
            IpAddr::V4(_) if self.everywhere => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) if self.everywhere => Ipv6Addr::UNSPECIFIED.into(),
            own => own,
        };
        Ok((SocketAddr::new(address, port), transport))
    }

    /// Whether a backend gets along with those that its port has.
    fn check_neighbours(
        &self,
        port: &Port<'_>,
        transport: Transport,
        backend: &ProxyBackend,
        names: &[String],
    ) -> Result<(), String> {
        let number = backend.port;
        let called = |accepted: usize| &self.accepted[accepted].backend.name;
        if transport == Transport::Datagram {
            let first = called(port.backends[0]);
            return Err(format!("UDP port {number} {TAKEN} {first}; datagrams carry no name to choose by"));
        }
        if port.proxy_header != backend.accepts_proxy_protocol() {
            let (first, does) = (called(port.backends[0]), if port.proxy_header { "does" } else { "does not" });
            return Err(format!(
                "proxyProtocol.accept must be the same for all backends of port {number}, and backend {first} {does} accept it"
            ));
        }
        if let Some((name, holder)) = names.iter().find_map(|name| Some((name, port.names.get(name)?))) {
            return Err(format!(
                "{name} on port {number} {TAKEN} {}; take it out of backend {}",
                called(*holder),
                backend.name
            ));
        }
        match port.default {
            Some(holder) if backend.default => {
                Err(format!("the default of port {number} {TAKEN} {}; only one can have default: true", called(holder)))
            }
            _ => Ok(()),
        }
    }
}

/// What a backend is called where it is refused.
pub(super) fn entry(proxy: &ProxyServer, backend: &ProxyBackend) -> String {
    let (namespace, name) = key(&proxy.metadata);
    format!("ProxyServer {namespace}/{name}, backend {}", backend.name)
}

/// What the route of a backend is called.
pub(super) fn route_name(proxy: &ProxyServer, backend: &ProxyBackend) -> String {
    format!("{}-{}", key(&proxy.metadata).1, backend.name)
}

/// What the listener of a place is called.
pub(super) fn listener_name(proxy: &ProxyServer, (address, transport): (SocketAddr, Transport)) -> String {
    let suffix = if transport == Transport::Datagram { "-udp" } else { "" };
    format!("{}-listener-{}{suffix}", key(&proxy.metadata).1, address.port())
}

/// A port is served by one object: two would have to agree about every one of its names.
fn check_owner(port: &Port<'_>, address: SocketAddr, proxy: &ProxyServer) -> Result<(), String> {
    if std::ptr::eq(port.proxy, proxy) {
        return Ok(());
    }
    let (namespace, name) = key(&port.proxy.metadata);
    Err(format!("{address} belongs to ProxyServer {namespace}/{name}; choose another port or serverIP"))
}

/// In the form in which names are compared.
fn names(backend: &ProxyBackend) -> Vec<String> {
    if backend.protocol == BackendProtocol::Udp {
        return Vec::new();
    }
    backend.hostnames().map(|name| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()).collect()
}
