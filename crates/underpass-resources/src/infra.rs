//! Infra: DHCP, DNS and proxy of one hosted cluster, with one plan for their addresses.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::Rule;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::address::{Cidr, Host, IpAddress};
use crate::attachment::{self, ResolvedAttachment};
use crate::dhcp_server::default_lease_time;
use crate::duration::DurationText;
use crate::name::{AttachmentReference, DomainName, Image, Label};
use crate::proxy_server::{DataPlane, OWN_PORTS, default_proxy_image, default_replicas, default_xds_port};
use crate::rules::{at, different, in_order, inside, must_be_v4, outside_range};

/// The network of the hosted cluster's machines, and what is to stand on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "hostedcluster.densityops.com",
    version = "v1alpha1",
    kind = "Infra",
    plural = "infras",
    namespaced,
    doc = "The infrastructure of one hosted cluster on a secondary network: DHCP, DNS and proxy, made from one object and one plan of addresses.",
    status = "InfraStatus",
    derive = "PartialEq",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "DHCP", type_ = "boolean", json_path = ".status.componentStatus.dhcpReady"),
    printcolumn(name = "DNS", type_ = "boolean", json_path = ".status.componentStatus.dnsReady"),
    printcolumn(name = "Proxy", type_ = "boolean", json_path = ".status.componentStatus.proxyReady"),
    printcolumn(name = "CIDR", type_ = "string", json_path = ".spec.networkConfig.cidr", priority = "1")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = in_cidr("dhcp", "serverIP"),
    validation = in_cidr("dhcp", "rangeStart"),
    validation = in_cidr("dhcp", "rangeEnd"),
    validation = in_cidr("dns", "serverIP"),
    validation = in_cidr("proxy", "serverIP"),
    validation = not_the_gateway("dhcp"),
    validation = not_the_gateway("dns"),
    validation = not_the_gateway("proxy"),
    validation = not_shared("dns", "dhcp"),
    validation = not_shared("proxy", "dhcp"),
    validation = not_shared("proxy", "dns"),
    validation = not_leased("dhcp"),
    validation = not_leased("dns"),
    validation = not_leased("proxy"),
    validation = outside_range(
        ".networkConfig.gateway", HAS_RANGE, "self.networkConfig.gateway", RANGE_START, RANGE_END,
        "gateway lies between rangeStart and rangeEnd and would be leased to a machine; move the range"
    ),
    validation = at(
        ".infraComponents.proxy",
        "!has(self.infraComponents) || !has(self.infraComponents.proxy) || !self.infraComponents.proxy.enabled || \
         (has(self.infraComponents.dns) && has(self.infraComponents.dns.clusterName) && has(self.infraComponents.dns.baseDomain))",
        "the names that lead through the proxy end in clusterName.baseDomain: write dns.clusterName and dns.baseDomain, with \
         enabled: false if no DNS server is wanted"
    ),
    validation = at(
        ".infraComponents.dns.serverIP",
        "!has(self.infraComponents) || !has(self.infraComponents.dns) || !self.infraComponents.dns.enabled || \
         (has(self.infraComponents.proxy) && self.infraComponents.proxy.enabled)",
        "dns needs the proxy, whose address it answers with; add a proxy block, or disable dns"
    )
)]
pub struct InfraSpec {
    /// The network of the machines.
    pub network_config: InfraNetworkConfig,

    /// What is to stand on that network. A block that is there is enabled unless it says enabled: false; a block that is not there is
    /// disabled. What is disabled is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infra_components: Option<InfraComponents>,
}

/// The network of a hosted cluster's machines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = inside(".gateway", "true", "self.gateway", "self.cidr", "cidr"),
    validation = at(
        ".networkAttachmentNamespace",
        "!has(self.networkAttachmentNamespace) || !self.networkAttachmentDefinition.contains('/') || \
         self.networkAttachmentDefinition.startsWith(self.networkAttachmentNamespace + '/')",
        "networkAttachmentNamespace differs from the namespace in networkAttachmentDefinition; keep one of them"
    )
)]
pub struct InfraNetworkConfig {
    /// The network, for example 192.168.100.0/24.
    pub cidr: Cidr,

    /// The router of the network, an address in cidr.
    pub gateway: IpAddress,

    /// Name of the Multus NetworkAttachmentDefinition that leads to the network, for example tenant-vlan-100. Also taken:
    /// namespace/name.
    pub network_attachment_definition: AttachmentReference,

    /// Namespace of the NetworkAttachmentDefinition. Left out: the namespace of this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_attachment_namespace: Option<Label>,

    /// Resolvers for names outside the hosted cluster. Left out: those of the DNS server's node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "set"))]
    pub dns_servers: Vec<IpAddress>,
}

impl InfraNetworkConfig {
    pub fn attachment(&self, own_namespace: &str) -> ResolvedAttachment {
        attachment::resolve(
            &self.network_attachment_definition,
            self.network_attachment_namespace.as_ref(),
            own_namespace,
        )
    }
}

/// What stands on the network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InfraComponents {
    /// The DHCP server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp: Option<InfraDhcp>,

    /// The DNS server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<InfraDns>,

    /// The proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<InfraProxy>,
}

/// The DHCP server of a hosted cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = needed("serverIP", "the server's own address"),
    validation = needed("rangeStart", "the first address to lease"),
    validation = needed("rangeEnd", "the last address to lease"),
    validation = must_be_v4(".serverIP", "has(self.serverIP)", "self.serverIP"),
    validation = must_be_v4(".rangeStart", "has(self.rangeStart)", "self.rangeStart"),
    validation = must_be_v4(".rangeEnd", "has(self.rangeEnd)", "self.rangeEnd"),
    validation = in_order(".rangeEnd", "has(self.rangeStart) && has(self.rangeEnd)", "self.rangeStart", "self.rangeEnd")
)]
pub struct InfraDhcp {
    /// Whether it is wanted.
    #[serde(default = "enabled")]
    pub enabled: bool,

    /// Its own address in cidr. The prefix is that of cidr.
    #[serde(rename = "serverIP", skip_serializing_if = "Option::is_none")]
    pub server_ip: Option<IpAddress>,

    /// First address to lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range_start: Option<IpAddress>,

    /// Last address to lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range_end: Option<IpAddress>,

    /// How long a lease lasts.
    #[serde(default = "default_lease_time")]
    pub lease_time: DurationText,

    /// Its image. Left out: the image that the operator itself runs from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
}

/// The DNS server of a hosted cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = needed("serverIP", "the server's own address"),
    validation = needed("baseDomain", "the domain below which the cluster is named"),
    validation = needed("clusterName", "the cluster's name below baseDomain")
)]
pub struct InfraDns {
    /// Whether it is wanted.
    #[serde(default = "enabled")]
    pub enabled: bool,

    /// Its own address in cidr.
    #[serde(rename = "serverIP", skip_serializing_if = "Option::is_none")]
    pub server_ip: Option<IpAddress>,

    /// The domain below which the cluster is named. The cluster's names end in clusterName.baseDomain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_domain: Option<DomainName>,

    /// The cluster's name below baseDomain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<Label>,

    /// Its image. Left out: the image that the operator itself runs from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
}

/// The proxy of a hosted cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = needed("serverIP", "the proxy's own address"),
    validation = free("ignitionPorts"),
    validation = free("konnectivityPorts")
)]
pub struct InfraProxy {
    /// Whether it is wanted.
    #[serde(default = "enabled")]
    pub enabled: bool,

    /// Its own address in cidr, which the DNS server answers with.
    #[serde(rename = "serverIP", skip_serializing_if = "Option::is_none")]
    pub server_ip: Option<IpAddress>,

    /// What pods are sent to in its place: an address, or the DNS name of a Service. Left out: the proxy's own Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal_proxy_service: Option<Host>,

    /// Namespace of the hosted control plane's Services. Left out: NAMESPACE-NAME of this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_namespace: Option<Label>,

    /// Service of the hosted cluster's API server.
    #[serde(default = "default_api_server_service")]
    pub api_server_service: Label,

    /// Ports on which machines reach the ignition server, for example 443 and 22623.
    #[serde(default = "default_tls_ports")]
    #[schemars(length(min = 1, max = 4), inner(range(min = 1, max = 65535)), extend("x-kubernetes-list-type" = "set"))]
    pub ignition_ports: Vec<u16>,

    /// Ports on which machines reach konnectivity, for example 443 and 8132.
    #[serde(default = "default_tls_ports")]
    #[schemars(length(min = 1, max = 4), inner(range(min = 1, max = 65535)), extend("x-kubernetes-list-type" = "set"))]
    pub konnectivity_ports: Vec<u16>,

    /// Image of the Envoy container.
    #[serde(default = "default_proxy_image")]
    pub proxy_image: Image,

    /// Image of the manager container. Left out: the image that the operator itself runs from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manager_image: Option<Image>,

    /// What carries the traffic; as in ProxyServer.
    #[serde(default)]
    pub data_plane: DataPlane,

    /// How many pods stand ready; as in ProxyServer.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 1, max = 10))]
    pub replicas: u32,
}

impl InfraSpec {
    /// The DHCP block, if DHCP is wanted.
    pub fn dhcp(&self) -> Option<&InfraDhcp> {
        self.infra_components.as_ref()?.dhcp.as_ref().filter(|dhcp| dhcp.enabled)
    }

    /// The DNS block, if DNS is wanted.
    pub fn dns(&self) -> Option<&InfraDns> {
        self.infra_components.as_ref()?.dns.as_ref().filter(|dns| dns.enabled)
    }

    /// The domain of the hosted cluster, once both of its parts are given, whether or not DNS is wanted.
    pub fn domain(&self) -> Option<String> {
        let dns = self.infra_components.as_ref()?.dns.as_ref()?;
        Some(format!("{}.{}", dns.cluster_name.as_ref()?, dns.base_domain.as_ref()?))
    }

    /// The proxy block, if a proxy is wanted.
    pub fn proxy(&self) -> Option<&InfraProxy> {
        self.infra_components.as_ref()?.proxy.as_ref().filter(|proxy| proxy.enabled)
    }
}

impl Infra {
    /// The namespace of the hosted control plane's Services.
    pub fn control_plane_namespace(&self) -> String {
        let named = self.spec.proxy().and_then(|proxy| proxy.control_plane_namespace.as_ref());
        let namespace = self.metadata.namespace.as_deref().unwrap_or("default");
        named.map_or_else(
            || format!("{namespace}-{}", self.metadata.name.as_deref().unwrap_or_default()),
            ToString::to_string,
        )
    }
}

const CIDR: &str = "self.networkConfig.cidr";
const RANGE_START: &str = "self.infraComponents.dhcp.rangeStart";
const RANGE_END: &str = "self.infraComponents.dhcp.rangeEnd";
const HAS_RANGE: &str = "has(self.infraComponents) && has(self.infraComponents.dhcp) && has(self.infraComponents.dhcp.rangeStart) && \
                         has(self.infraComponents.dhcp.rangeEnd)";

fn has(component: &str, field: &str) -> String {
    format!(
        "has(self.infraComponents) && has(self.infraComponents.{component}) && has(self.infraComponents.{component}.{field})"
    )
}

fn in_cidr(component: &str, field: &str) -> Rule {
    inside(
        &format!(".infraComponents.{component}.{field}"),
        &has(component, field),
        &format!("self.infraComponents.{component}.{field}"),
        CIDR,
        "networkConfig.cidr",
    )
}

fn not_the_gateway(component: &str) -> Rule {
    different(
        &format!(".infraComponents.{component}.serverIP"),
        &has(component, "serverIP"),
        &format!("self.infraComponents.{component}.serverIP"),
        "self.networkConfig.gateway",
        "serverIP is the address of the gateway; choose an address of its own",
    )
}

fn not_shared(component: &str, other: &str) -> Rule {
    different(
        &format!(".infraComponents.{component}.serverIP"),
        &format!("{} && {}", has(component, "serverIP"), has(other, "serverIP")),
        &format!("self.infraComponents.{component}.serverIP"),
        &format!("self.infraComponents.{other}.serverIP"),
        &format!("serverIP of {component} is also serverIP of {other}; each needs an address of its own"),
    )
}

fn not_leased(component: &str) -> Rule {
    outside_range(
        &format!(".infraComponents.{component}.serverIP"),
        &format!("{} && {HAS_RANGE}", has(component, "serverIP")),
        &format!("self.infraComponents.{component}.serverIP"),
        RANGE_START,
        RANGE_END,
        "serverIP lies between rangeStart and rangeEnd and would be leased to a machine; choose an address outside the range",
    )
}

fn needed(field: &str, what: &str) -> Rule {
    at(
        &format!(".{field}"),
        format!("!self.enabled || has(self.{field})"),
        format!("{field} is needed: {what}; write it, or enabled: false"),
    )
    .reason(kube::core::Reason::FieldValueRequired)
}

/// The ProxyServer that is made of it would be refused.
fn free(field: &str) -> Rule {
    let xds_port = default_xds_port();
    at(
        &format!(".{field}"),
        format!("!self.enabled || self.{field}.all(port, port != {xds_port} && !(port in {OWN_PORTS:?}))"),
        format!("{field} has {xds_port} or one of 9901 to 9903, which the proxy needs for itself; choose another"),
    )
}

fn enabled() -> bool {
    true
}

fn default_api_server_service() -> Label {
    "kube-apiserver".into()
}

fn default_tls_ports() -> Vec<u16> {
    vec![443]
}

/// What became of the components.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InfraStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::conditions::schema")]
    pub conditions: Vec<Condition>,

    /// Readiness of each component that is enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component_status: Option<ComponentStatus>,
}

/// Readiness of the components; a disabled one has no entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentStatus {
    /// Whether the DHCP server works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp_ready: Option<bool>,

    /// Whether the DNS server works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_ready: Option<bool>,

    /// Whether the proxy works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_ready: Option<bool>,
}
