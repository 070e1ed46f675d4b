//! ProxyServer: machines on a secondary network reach Services of the cluster, chosen by TLS server name or by port.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::address::{HostAddress, IpAddress};
use crate::attachment::NetworkAttachment;
use crate::compute::Resources;
use crate::name::{Image, Label};
use crate::proxy_backend::ProxyBackend;
use crate::rules::{at, different, fixed};

/// Envoy's and our relay's admin port, on loopback.
pub const ADMIN_PORT: u16 = 9901;
/// Where a pod shows /stats/prometheus and /ready of its data plane, on the pod network.
pub const METRICS_PORT: u16 = 9902;
/// Where a pod's manager shows /healthz, /readyz and /metrics of itself, on the pod network.
pub const MANAGER_PORT: u16 = 9903;
/// The ClusterRole for who may read the Services of a namespace; installed with the operator, bound where backends lead to.
pub const TARGETS_ROLE: &str = "underpass-proxy-targets";
/// The ClusterRole for who may use OpenShift's constraints for proxies; installed with the operator.
pub const CONSTRAINTS_ROLE: &str = "underpass-proxy";
/// The same for proxies with several replicas, which move an address between their pods.
pub const REPLICAS_CONSTRAINTS_ROLE: &str = "underpass-proxy-replicas";
/// Ports that no backend can have.
pub const OWN_PORTS: [u16; 3] = [ADMIN_PORT, METRICS_PORT, MANAGER_PORT];

/// Where the proxy stands, and what it leads to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "hostedcluster.densityops.com",
    version = "v1alpha1",
    kind = "ProxyServer",
    plural = "proxyservers",
    shortname = "proxy",
    shortname = "proxies",
    namespaced,
    doc = "A proxy with one foot on a secondary network and one in the cluster. Machines on the former reach Services of the latter, chosen by TLS server name (SNI) or by port; TLS is passed through, never ended.",
    status = "ProxyServerStatus",
    derive = "PartialEq",
    printcolumn(name = "ServerIP", type_ = "string", json_path = ".spec.networkConfig.serverIP"),
    printcolumn(name = "Port", type_ = "integer", json_path = ".spec.port"),
    printcolumn(
        name = "Backends",
        type_ = "integer",
        json_path = ".status.backendCount",
        description = "Backends that are configured"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    // Walks the list once for each of its entries, which a Kubernetes API server is slow at and prices by maxItems: a longer list is
    // left to the controller, which reports DuplicateMatch.
    validation = at(
        ".backends",
        "size(self.backends) > 50 || self.backends.all(a, self.backends.exists_one(b, b.port == a.port && b.hostname == a.hostname && \
         (b.protocol == 'UDP') == (a.protocol == 'UDP')))",
        "two backends have the same hostname and port; keep one of them, or give one another hostname or port"
    ),
    validation = at(
        ".backends",
        "self.backends.filter(a, a.default).all(a, self.backends.exists_one(b, b.default && b.port == a.port))",
        "two backends of one port have default: true; connections without a server name can go to only one of them"
    ),
    validation = at(
        ".backends",
        format!("self.backends.all(b, b.port != self.xdsPort && !(b.port in {OWN_PORTS:?}))"),
        "a backend listens on xdsPort or on 9901 to 9903, which the proxy needs for itself; choose another port, or another xdsPort"
    ),
    validation = at(
        ".port",
        format!("!(self.port in {OWN_PORTS:?})"),
        "port is one of 9901 to 9903, which the proxy needs for itself; choose another"
    ),
    validation = at(
        ".xdsPort",
        format!("!(self.xdsPort in {OWN_PORTS:?}) && self.xdsPort != self.port"),
        "xdsPort must differ from port and from 9901 to 9903, the proxy's own; choose another, for example 18000"
    ),
    validation = fixed("namingStyle")
)]
pub struct ProxyServerSpec {
    /// The secondary network on which the proxy stands.
    pub network_config: ProxyNetworkConfig,

    /// Which connections go where. Changes apply to running proxies at once, without a restart. No two may have the same hostname and
    /// port; above 50 backends that is not refused here but reported by the condition ConfigurationValid.
    #[schemars(length(min = 1, max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub backends: Vec<ProxyBackend>,

    /// What carries the traffic. Envoy: an Envoy container that a manager container feeds by xDS. Native: one container with our own
    /// relay. Both obey the same fields and show the same metrics.
    #[serde(default)]
    pub data_plane: DataPlane,

    /// Image of the Envoy container.
    #[serde(default = "default_proxy_image")]
    pub proxy_image: Image,

    /// Image of the manager container, and of the only container with dataPlane Native. Left out: the image that the operator itself
    /// runs from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manager_image: Option<Image>,

    /// The port by which the proxy's Service is known. Which ports are listened on is said by the backends.
    #[serde(default = "default_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,

    /// Port on loopback at which the manager feeds Envoy.
    #[serde(default = "default_xds_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub xds_port: u16,

    /// How much the data plane logs.
    #[serde(default)]
    pub log_level: LogLevel,

    /// How many pods stand ready. One of them at a time holds serverIP; another takes it over when that one fails.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 1, max = 10))]
    pub replicas: u32,

    /// Seconds that the connections of a removed or changed backend may go on. With a secondary network a pod that ends takes its
    /// connections along, because its address goes to another at once; without one, and with dataPlane Native, they have this time too.
    #[serde(default = "default_drain_seconds")]
    #[schemars(range(min = 0, max = 3600))]
    pub drain_seconds: u32,

    /// Limits for all backends together. Left out: none, but see maxConnections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<ConnectionLimits>,

    /// Processor and memory of the container that carries the traffic. Left out: 100m to 500m, 256Mi to 512Mi.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// Processor and memory of the manager container. Left out: 50m to 250m, 128Mi to 256Mi.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manager_resources: Option<Resources>,

    /// ServiceAccount of the pods. Left out: one is made for them, with only the rights that they need.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<Label>,

    /// How the objects of this proxy are named. Documented: ConfigMap envoy-bootstrap-NAME, Deployment proxy-server-NAME, Service
    /// NAME-svc. Suffixed: the same with Deployment NAME-deployment. Plain: ConfigMap NAME-proxy-bootstrap, Deployment NAME, Service
    /// NAME. Cannot be changed; the status shows the names.
    #[serde(default)]
    pub naming_style: NamingStyle,
}

/// The secondary network on which a proxy stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = different(
        ".gateway", "has(self.gateway)", "self.gateway", "self.serverIP",
        "gateway is the proxy's own address; write the address of the router, or leave it out"
    ),
    validation = at(
        ".serverIP",
        "!(has(self.networkAttachmentName) || has(self.nadName)) || !(isIP(self.serverIP) || isCIDR(self.serverIP)) || \
         (isIP(self.serverIP) ? ip(self.serverIP) : cidr(self.serverIP).ip()).isGlobalUnicast()",
        "serverIP is no address that a machine on a network can have; write a free one of the secondary network, for example 192.168.100.4/24"
    ),
    validation = at(
        ".serverIP",
        "!(has(self.networkAttachmentName) || has(self.nadName)) || !self.serverIP.matches('([.](0|255)/24|::/[0-9]+)$')",
        "serverIP is the address of the whole network; write a free one on it, for example 192.168.100.4/24"
    ),
    validation = at(
        ".gateway",
        "!has(self.gateway) || !isIP(self.gateway) || !isCIDR(self.serverIP) || cidr(self.serverIP).containsIP(self.gateway)",
        "gateway is outside the network of serverIP; choose a router on that network, or correct the prefix of serverIP"
    )
)]
pub struct ProxyNetworkConfig {
    /// The proxy's address on the secondary network, for example 192.168.100.4. With a prefix, as in 192.168.100.4/24, that is the
    /// size of the network; without one it comes from the NetworkAttachmentDefinition, else it is 24.
    #[serde(rename = "serverIP")]
    pub server_ip: HostAddress,

    #[serde(flatten)]
    pub attachment: NetworkAttachment,

    /// Router of the secondary network, by which answers go to machines that are not on it themselves. Left out: only machines on the
    /// network are answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddress>,

    /// DNS servers that the proxy's pods ask. Left out: those of the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), extend("x-kubernetes-list-type" = "set"))]
    pub dns: Vec<IpAddress>,
}

/// What carries the traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DataPlane {
    #[default]
    Envoy,
    Native,
}

/// How much the data plane logs, in Envoy's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Trace,
    Debug,
    #[default]
    Info,
    Warning,
    Error,
    Critical,
}

impl LogLevel {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
        }
    }
}

/// Limits for all backends of a proxy together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionLimits {
    /// Connections at once; more are refused. Left out: as many as the machine carries; with dataPlane Envoy 50000, because an Envoy that
    /// runs out of file descriptors ends with all of its connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_connections: Option<u32>,

    /// New connections per second from one client address; more are refused. With dataPlane Native only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub connections_per_second_per_source: Option<u32>,

    /// Connections at once that have not yet said where they want to go; more are refused. With dataPlane Native only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_half_open: Option<u32>,
}

/// How the objects of a proxy are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NamingStyle {
    #[default]
    Documented,
    Suffixed,
    Plain,
}

/// The names of the objects of one proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyObjectNames {
    pub config_map: String,
    pub deployment: String,
    pub service: String,
}

impl NamingStyle {
    pub fn names(self, proxy: &str) -> ProxyObjectNames {
        let (config_map, deployment, service) = match self {
            Self::Documented => {
                (format!("envoy-bootstrap-{proxy}"), format!("proxy-server-{proxy}"), format!("{proxy}-svc"))
            }
            Self::Suffixed => {
                (format!("envoy-bootstrap-{proxy}"), format!("{proxy}-deployment"), format!("{proxy}-svc"))
            }
            Self::Plain => (format!("{proxy}-proxy-bootstrap"), proxy.to_owned(), proxy.to_owned()),
        };
        ProxyObjectNames { config_map, deployment, service }
    }
}

pub(crate) fn default_proxy_image() -> Image {
    "envoyproxy/envoy:v1.36.4".into()
}

fn default_port() -> u16 {
    443
}

pub(crate) fn default_xds_port() -> u16 {
    18000
}

pub(crate) fn default_replicas() -> u32 {
    1
}

fn default_drain_seconds() -> u32 {
    30
}

/// What became of the proxy and of its backends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyServerStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Ready, ConfigurationValid, BackendsResolved, NetworkReady, Progressing, Degraded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::conditions::schema")]
    pub conditions: Vec<Condition>,

    /// ConfigMap with Envoy's bootstrap configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_name: Option<String>,

    /// Deployment of the proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment_name: Option<String>,

    /// Service by which pods reach the proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,

    /// Cluster IP of that Service.
    #[serde(rename = "serviceIP", skip_serializing_if = "Option::is_none")]
    pub service_ip: Option<String>,

    /// How many backends the data plane has taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_count: Option<i32>,

    /// How many pods are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,

    /// The pod that holds serverIP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_pod: Option<String>,

    /// Version of the configuration that the data plane runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration_version: Option<String>,

    /// One entry per backend, sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub backends: Vec<BackendStatus>,

    /// What every pod says of itself; the conditions are made of this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub pods: Vec<PodReport>,
}

/// What one pod of a proxy says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    /// Name of the pod.
    pub name: String,

    /// The generation of the spec that its data plane was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Version of the configuration that its data plane runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration_version: Option<String>,

    /// What its data plane refused, in its own words. The configuration before stays in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<String>,

    /// One entry per backend, sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub backends: Vec<BackendStatus>,
}

/// What became of one backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackendStatus {
    /// Name of the backend.
    pub name: String,

    /// Whether the data plane serves it, and a probe has crossed it where one can.
    pub ready: bool,

    /// Why not, in one word: DuplicateMatch, Excluded, ServiceNotFound, NoEndpoints, NotTried, NotCrossed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// Endpoints of its Service.
    pub endpoints: i32,

    /// Endpoints that take connections.
    pub healthy: i32,

    /// Why it is not served, or what went wrong last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_style() {
        assert_eq!(NamingStyle::Documented.names("a").deployment, "proxy-server-a");
        assert_eq!(NamingStyle::Suffixed.names("a").deployment, "a-deployment");
        assert_eq!(NamingStyle::Plain.names("a").config_map, "a-proxy-bootstrap");
    }

    #[test]
    fn log_levels_are_written_as_they_are_called() {
        for level in [LogLevel::Trace, LogLevel::Info, LogLevel::Critical] {
            assert_eq!(serde_json::to_value(level).unwrap(), level.as_str());
        }
    }
}
