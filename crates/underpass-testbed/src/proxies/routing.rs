//! What a proxy is told, in words that fit all of them.

use std::net::SocketAddr;

/// Which connections go where.
#[derive(Clone, Debug, Default)]
pub struct Routing {
    pub ports: Vec<Port>,
}

/// One port of the proxy.
#[derive(Clone, Debug)]
pub struct Port {
    pub number: u16,
    pub kind: Kind,
    /// Whether clients begin with a PROXY header.
    pub accepts_proxy_header: bool,
    pub routes: Vec<Route>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Routed by server name; anything that is not TLS is refused.
    Tls,
    /// One route that gets everything.
    Plain,
}

/// Connections of one backend.
#[derive(Clone, Debug)]
pub struct Route {
    /// A DNS label, unique in the routing.
    pub name: String,
    /// `api.example.test`, or `*.apps.example.test` for all names below.
    pub hosts: Vec<String>,
    /// Tried one after the other.
    pub targets: Vec<SocketAddr>,
    /// Whether TLS without a server name comes here.
    pub default: bool,
    /// The header that targets are sent first.
    pub sends: Option<ProxyHeader>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    V1,
    V2,
}

impl Port {
    pub fn tls(number: u16, routes: Vec<Route>) -> Self {
        Self { number, kind: Kind::Tls, accepts_proxy_header: false, routes }
    }

    pub fn plain(number: u16, route: Route) -> Self {
        Self { number, kind: Kind::Plain, accepts_proxy_header: false, routes: vec![route] }
    }
}

impl Route {
    pub fn new(name: &str, host: &str, target: SocketAddr) -> Self {
        Self { name: name.to_owned(), hosts: vec![host.to_owned()], targets: vec![target], default: false, sends: None }
    }
}

impl Routing {
    pub(super) fn routes(&self) -> impl Iterator<Item = &Route> {
        self.ports.iter().flat_map(|port| &port.routes)
    }
}
