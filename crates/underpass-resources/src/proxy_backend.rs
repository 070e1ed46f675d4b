//! One backend of a ProxyServer: which connections are its own, and where they go.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::address::Cidr;
use crate::name::{HostPattern, Label};
use crate::rules::at;

/// Which connections are meant, and the Service that gets them. TLS is never ended here: the Service sees what the client sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = at(
        ".alternateHostnames",
        "!has(self.alternateHostnames) || !(self.hostname in self.alternateHostnames)",
        "alternateHostnames repeats hostname; list only the other names"
    ),
    validation = at(
        ".proxyProtocol",
        "self.protocol != 'UDP' || !has(self.proxyProtocol)",
        "proxyProtocol is for streams; remove it from this UDP backend"
    ),
    validation = at(
        ".healthCheck",
        "self.protocol != 'UDP' || !has(self.healthCheck)",
        "healthCheck opens connections, which this UDP backend may not take; remove it"
    )
)]
pub struct ProxyBackend {
    /// Name of the backend, unique in this object.
    pub name: Label,

    /// The TLS server name (SNI) that clients ask for. *.apps.example.com stands for all names below apps.example.com; an exact name
    /// wins over it.
    pub hostname: HostPattern,

    /// Further server names that lead to the same Service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "set"))]
    pub alternate_hostnames: Vec<HostPattern>,

    /// Port on which the proxy listens for this backend. Several backends may share a port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,

    /// Name of the Service that gets the connections.
    pub target_service: Label,

    /// Port of that Service.
    #[schemars(range(min = 1, max = 65535))]
    pub target_port: u16,

    /// Namespace of that Service.
    pub target_namespace: Label,

    /// How connections are recognised. TLS and HTTPS: by server name only. TCP: by server name, and also eligible for connections
    /// without one. UDP: by port alone.
    #[serde(default)]
    pub protocol: BackendProtocol,

    /// Seconds that connecting to the Service may take.
    #[serde(default = "default_timeout_seconds")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: u32,

    /// Seconds after which a connection without traffic is closed. 0: never, which suits watches and long-lived agents.
    #[serde(default)]
    #[schemars(range(min = 0, max = 604_800))]
    pub idle_timeout_seconds: u32,

    /// Whether connections without a server name on this port come here. At most one backend per port. If no backend of a port says
    /// so, they go to the API server's backend if there is one, else to konnectivity's, else they are refused.
    #[serde(default)]
    pub default: bool,

    /// Networks from which clients may connect. Left out: from everywhere.
    #[serde(default, rename = "sourceCIDRs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "set"))]
    pub source_cidrs: Vec<Cidr>,

    /// How endpoints are checked besides by using them. Left out: only by using them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,

    /// The PROXY protocol towards clients and towards the Service. Left out: not spoken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<ProxyProtocol>,

    /// How the endpoint of a connection is chosen.
    #[serde(default)]
    pub load_balancing: LoadBalancing,

    /// How many endpoints are tried before a connection is given up, as long as nothing was sent to one.
    #[serde(default = "default_connect_attempts")]
    #[schemars(range(min = 1, max = 10))]
    pub connect_attempts: u32,

    /// How many connections the backend takes at once; more are refused. Left out: no limit of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_connections: Option<u32>,
}

/// How connections of a backend are recognised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum BackendProtocol {
    #[default]
    Tcp,
    Tls,
    Https,
    Udp,
}

/// How the endpoint of a connection is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LoadBalancing {
    #[default]
    RoundRobin,
    LeastConnections,
}

/// A regular check of every endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = at(
    ".timeoutSeconds",
    "self.timeoutSeconds <= self.intervalSeconds",
    "timeoutSeconds is longer than intervalSeconds; let one check end before the next begins"
))]
pub struct HealthCheck {
    /// TCP: a connection is opened. TLS: a handshake is completed.
    #[serde(default, rename = "type")]
    pub type_: HealthCheckType,

    /// Seconds between two checks.
    #[serde(default = "default_interval_seconds")]
    #[schemars(range(min = 1, max = 3600))]
    pub interval_seconds: u32,

    /// Seconds that a check may take; with Envoy, ten at most.
    #[serde(default = "default_check_timeout_seconds")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: u32,

    /// Failed checks in a row after which an endpoint gets no more connections.
    #[serde(default = "default_unhealthy_threshold")]
    #[schemars(range(min = 1, max = 100))]
    pub unhealthy_threshold: u32,

    /// Good checks in a row after which it gets connections again.
    #[serde(default = "default_healthy_threshold")]
    #[schemars(range(min = 1, max = 100))]
    pub healthy_threshold: u32,
}

/// What a check does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum HealthCheckType {
    #[default]
    Tcp,
    Tls,
}

/// The PROXY protocol, which carries the client's address along.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyProtocol {
    /// Whether clients begin with a PROXY header, version 1 or 2. All backends of a port must agree.
    #[serde(default)]
    pub accept: bool,

    /// The header that the Service is sent. Left out: none. The Kubernetes API server does not understand any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send: Option<ProxyProtocolVersion>,
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProxyProtocolVersion {
    V1,
    V2,
}

impl ProxyBackend {
    /// All server names that lead here, the primary one first.
    pub fn hostnames(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.hostname).chain(self.alternate_hostnames.iter().map(|name| &**name))
    }

    pub fn accepts_proxy_protocol(&self) -> bool {
        self.proxy_protocol.as_ref().is_some_and(|protocol| protocol.accept)
    }
}

fn default_timeout_seconds() -> u32 {
    30
}

fn default_connect_attempts() -> u32 {
    3
}

fn default_interval_seconds() -> u32 {
    10
}

fn default_check_timeout_seconds() -> u32 {
    5
}

fn default_unhealthy_threshold() -> u32 {
    3
}

fn default_healthy_threshold() -> u32 {
    2
}
