//! Where the connections of one backend go, and how.

use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::Serialize;

/// What a ProxyServer's backend has when it does not say otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_ATTEMPTS: u32 = 3;

/// One backend, ready to be dialled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Route {
    /// Unique in a table, the same over generations: `<proxy>-<backend>`. Metrics are labelled with it.
    pub name: String,
    /// What it leads to, in words that change when another place is meant: `clusters-a/kube-apiserver:6443`. Connections go on
    /// over a new table as long as their route and its target stay.
    pub target: String,
    /// Where to dial, sorted by address. Empty: connections are refused until there are some.
    pub endpoints: Vec<Endpoint>,
    pub balance: Balance,
    /// Not dialled: a connection is taken from the relay's stock and told that it belongs to this tunnel. The one endpoint is what it is
    /// called in logs.
    pub stock: Option<u32>,
    /// For one attempt.
    pub connect_timeout: Duration,
    /// How many endpoints are tried, as long as nothing was sent to one.
    pub connect_attempts: u32,
    /// None: a silent connection may stay for ever; keepalive finds the dead ones.
    pub idle_timeout: Option<Duration>,
    pub max_connections: Option<u32>,
    /// The header that endpoints are sent first.
    pub proxy_header: Option<ProxyHeader>,
    /// Who may connect. Empty: everybody.
    pub sources: Vec<IpNet>,
    pub health_check: Option<HealthCheck>,
    /// Why there are no endpoints, where that is known.
    pub trouble: Option<String>,
}

/// One place to dial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    pub address: SocketAddr,
    /// Where it runs, if that is known.
    pub zone: Option<String>,
    /// It is about to end and others are there: it keeps its connections and gets no new ones.
    pub draining: bool,
}

/// How the endpoint of a connection is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Balance {
    #[default]
    RoundRobin,
    LeastConnections,
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ProxyHeader {
    V1,
    V2,
}

/// A regular check of every endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HealthCheck {
    pub kind: CheckKind,
    pub interval: Duration,
    pub timeout: Duration,
    /// Failures in a row that make an endpoint unhealthy.
    pub unhealthy_after: u32,
    /// Successes in a row that make it healthy again.
    pub healthy_after: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum CheckKind {
    /// A connection is opened.
    Tcp,
    /// A handshake is completed under this server name. Whose certificate it is does not matter here: clients check that.
    Tls { server_name: String },
}

/// Bounds for connections. None: no bound of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    pub connections: Option<u32>,
    pub per_second_per_source: Option<u32>,
    /// Connections that have not yet said where they want to go.
    pub half_open: Option<u32>,
}

impl Route {
    /// As for a backend that says nothing but where it leads to.
    pub fn new(name: impl Into<String>, target: impl Into<String>, endpoints: Vec<SocketAddr>) -> Self {
        Self {
            name: name.into(),
            target: target.into(),
            endpoints: endpoints.into_iter().map(Endpoint::from).collect(),
            balance: Balance::default(),
            stock: None,
            connect_timeout: CONNECT_TIMEOUT,
            connect_attempts: CONNECT_ATTEMPTS,
            idle_timeout: None,
            max_connections: None,
            proxy_header: None,
            sources: Vec::new(),
            health_check: None,
            trouble: None,
        }
    }

    /// Whether connections made under this route may go on under `newer`.
    pub fn goes_on_as(&self, newer: &Self) -> bool {
        self.name == newer.name && self.target == newer.target && self.proxy_header == newer.proxy_header
    }

    /// Where new connections go.
    pub fn open(&self) -> impl Iterator<Item = SocketAddr> {
        self.endpoints.iter().filter(|endpoint| !endpoint.draining).map(|endpoint| endpoint.address)
    }

    /// What a connection was made for.
    pub fn identity(&self) -> (&str, &str) {
        (&self.name, &self.target)
    }

    pub fn admits(&self, source: std::net::IpAddr) -> bool {
        self.sources.is_empty() || self.sources.iter().any(|network| network.contains(&source))
    }
}

impl From<SocketAddr> for Endpoint {
    /// Of which nothing else is known.
    fn from(address: SocketAddr) -> Self {
        Self { address, zone: None, draining: false }
    }
}
