//! DNSServer: names of a hosted cluster, with one answer for its machines and another for pods.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::address::{Cidr, HostAddress, IpAddress, ResolverAddress};
use crate::attachment::NetworkAttachment;
use crate::duration::DurationText;
use crate::name::{DomainName, HostPattern, Image, Label, ObjectName};
use crate::rules::{different, inside};

/// The networks that are answered, and the names that are known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "hostedcluster.densityops.com",
    version = "v1alpha1",
    kind = "DNSServer",
    plural = "dnsservers",
    shortname = "dnssrv",
    namespaced,
    doc = "A split-horizon DNS server for a hosted cluster: machines on the secondary network are sent to the proxy, pods to the proxy's Service; other names are asked upstream.",
    status = "DNSServerStatus",
    derive = "PartialEq",
    printcolumn(name = "Domain", type_ = "string", json_path = ".spec.hostedClusterDomain"),
    printcolumn(name = "ServerIP", type_ = "string", json_path = ".spec.networkConfig.serverIP"),
    printcolumn(name = "ProxyIP", type_ = "string", json_path = ".spec.networkConfig.proxyIP")
)]
#[serde(rename_all = "camelCase")]
pub struct DNSServerSpec {
    /// The networks between which the server stands.
    pub network_config: DNSNetworkConfig,

    /// The domain of the hosted cluster. The server answers for it alone; names below it that it does not know do not exist.
    pub hosted_cluster_domain: DomainName,

    /// ProxyServer in this namespace whose hostnames are answered with proxyIP. Left out: only staticEntries are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_server_name: Option<ObjectName>,

    /// Names with fixed addresses. A name may stand here twice, with an IPv4 and with an IPv6 address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 500), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["hostname", "ip"]))]
    pub static_entries: Vec<StaticEntry>,

    /// Resolvers to ask for all other names. Left out: those of the server's node.
    #[serde(default, rename = "upstreamDNS", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "set"))]
    pub upstream_dns: Vec<ResolverAddress>,

    /// Image of the server. Left out: the image that the operator itself runs from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,

    /// Accepted for compatibility: changes apply at once, without an interval.
    #[serde(default = "default_reload_interval")]
    pub reload_interval: DurationText,

    /// How long clients may keep an answer.
    #[serde(default = "default_cache_ttl", rename = "cacheTTL")]
    pub cache_ttl: DurationText,

    /// ServiceAccount of the server's pod. Left out: one is made for it, with only the rights that it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<Label>,
}

/// The networks between which a DNS server stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = different(
        ".proxyIP", "true", "self.proxyIP", "self.serverIP",
        "proxyIP is the address of this server; write the address of the proxy, which is another pod"
    ),
    validation = inside(
        ".serverIP", "has(self.secondaryNetworkCIDR)", "self.serverIP", "self.secondaryNetworkCIDR", "secondaryNetworkCIDR"
    ),
    validation = inside(
        ".proxyIP", "has(self.secondaryNetworkCIDR)", "self.proxyIP", "self.secondaryNetworkCIDR", "secondaryNetworkCIDR"
    )
)]
pub struct DNSNetworkConfig {
    /// The server's own address on the secondary network, with or without a prefix.
    #[serde(rename = "serverIP")]
    pub server_ip: HostAddress,

    /// The proxy's address on the secondary network: what machines there get as the answer.
    #[serde(rename = "proxyIP")]
    pub proxy_ip: IpAddress,

    /// What pods get as the answer. Left out: the cluster IP of the proxy's Service.
    #[serde(rename = "internalProxyIP", skip_serializing_if = "Option::is_none")]
    pub internal_proxy_ip: Option<IpAddress>,

    /// The secondary network; who asks from there is a machine. Left out: whoever asks at serverIP.
    #[serde(rename = "secondaryNetworkCIDR", skip_serializing_if = "Option::is_none")]
    pub secondary_network_cidr: Option<Cidr>,

    /// Port of the server.
    #[serde(default = "default_dns_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub dns_port: u16,

    #[serde(flatten)]
    pub attachment: NetworkAttachment,
}

/// One name with one address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticEntry {
    /// The name, or *.domain for all names below a domain.
    pub hostname: HostPattern,

    /// Its address.
    pub ip: IpAddress,
}

fn default_reload_interval() -> DurationText {
    "5s".into()
}

fn default_cache_ttl() -> DurationText {
    "30s".into()
}

fn default_dns_port() -> u16 {
    53
}

/// What became of the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DNSServerStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::conditions::schema")]
    pub conditions: Vec<Condition>,

    /// ConfigMap with the server's configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_name: Option<String>,

    /// Deployment of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment_name: Option<String>,

    /// Service by which pods reach the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,

    /// Cluster IP of that Service.
    #[serde(rename = "serviceClusterIP", skip_serializing_if = "Option::is_none")]
    pub service_cluster_ip: Option<String>,

    /// How many names the server answers by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_count: Option<i32>,
}
