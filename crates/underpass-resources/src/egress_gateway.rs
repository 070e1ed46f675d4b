//! EgressGateway: the only way out for pods that ask for it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::address::{Cidr, IpAddress, ResolverAddress};
use crate::compute::Resources;
use crate::name::{DomainName, EngineName, Image, Label, LabelValue, ObjectName, PublicKey};
use crate::rules::{at, fixed, fixed_optional};

/// Label and annotation by which a pod asks for a gateway.
pub const SET_GATEWAY: &str = "setGateway";

/// Who may use the gateway, how they reach it, and how it reaches the outside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "underpass.dev",
    version = "v1alpha1",
    kind = "EgressGateway",
    plural = "egressgateways",
    shortname = "egw",
    namespaced,
    doc = "A gateway through which pods reach the outside, and through nothing else: not one packet of theirs leaves another way, not even while it starts or fails.",
    status = "EgressGatewayStatus",
    derive = "PartialEq",
    printcolumn(
        name = "Gateway",
        type_ = "string",
        json_path = ".status.gatewayValue",
        description = "What pods write in setGateway"
    ),
    printcolumn(name = "Clients", type_ = "integer", json_path = ".status.clients"),
    printcolumn(
        name = "Replicas",
        type_ = "integer",
        json_path = ".status.readyReplicas",
        description = "Replicas that are ready"
    ),
    printcolumn(name = "Public IP", type_ = "string", json_path = ".status.endpoints[0].publicIP", priority = "1"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = fixed("implementation"),
    validation = fixed("clientCIDRs"),
    validation = fixed_optional("gatewayValue"),
    validation = at(
        ".clientCIDRs",
        "self.clientCIDRs.all(a, !isCIDR(a) || self.clientCIDRs.exists_one(b, isCIDR(b) && cidr(b).ip().family() == cidr(a).ip().family()))",
        "clientCIDRs holds two networks of one family; give one IPv4 network, one IPv6 network, or one of each"
    ),
    validation = at(
        ".directCIDRs",
        "!has(self.directCIDRs) || self.directCIDRs.all(d, !isCIDR(d) || cidr(d).prefixLength() > 0)",
        "directCIDRs holds the whole Internet, which would go around the gateway; list only networks of the cluster"
    ),
    validation = at(
        ".link",
        "self.implementation != 'PodGateway' || self.link.type == 'VXLAN'",
        "an existing pod-gateway is reached by VXLAN; write link.type: VXLAN, or implementation: Underpass"
    ),
    validation = at(
        ".replicas",
        "self.link.type != 'VXLAN' || self.replicas == 1",
        "a VXLAN gateway cannot have several replicas; write replicas: 1, or link.type: WireGuard"
    )
)]
pub struct EgressGatewaySpec {
    /// Who runs the gateway. Underpass: we do. PodGateway: an installation of pod-gateway that is there already. Cannot be changed.
    #[serde(default)]
    pub implementation: GatewayImplementation,

    /// What pods write in the label or annotation setGateway to ask for this gateway. Left out: the name of this object. Cannot be
    /// changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_value: Option<LabelValue>,

    /// Namespaces whose pods may ask. Left out: only the namespace of this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "set"))]
    pub routed_namespaces: Vec<Label>,

    /// How many gateway pods share the clients.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 1, max = 16))]
    pub replicas: u32,

    /// How many clients there may be at once; more are refused. Left out: as many as clientCIDRs has addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_000))]
    pub max_clients: Option<u32>,

    /// Networks from which clients get their addresses in the tunnel: one IPv4, one IPv6, or one of each. Cannot be changed.
    #[serde(default = "default_client_cidrs", rename = "clientCIDRs")]
    #[schemars(length(min = 1, max = 2))]
    pub client_cidrs: Vec<Cidr>,

    /// Networks that clients reach directly and not through the gateway, such as those of pods and Services.
    #[serde(default, rename = "directCIDRs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "set"))]
    pub direct_cidrs: Vec<Cidr>,

    /// How clients reach the gateway.
    #[serde(default)]
    pub link: GatewayLink,

    /// How the gateway reaches the outside. Left out: as its pod does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uplink: Option<GatewayUplink>,

    /// How clients' names are resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<GatewayDns>,

    /// Ports of the gateway's outside that lead to a client. Each port and protocol may be forwarded once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["port", "protocol"]))]
    pub port_forwards: Vec<PortForward>,

    /// Image of the gateway. Left out: the image that the operator itself runs from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,

    /// Processor and memory of a gateway pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// ServiceAccount of the gateway's pods. Left out: one is made for them, with only the rights that they need.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<Label>,
}

/// Who runs the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GatewayImplementation {
    #[default]
    Underpass,
    PodGateway,
}

/// How clients reach the gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = at(
    ".vxlanID",
    "!has(self.vxlanID) || self.type == 'VXLAN'",
    "vxlanID belongs to type VXLAN; remove it, or write type: VXLAN"
))]
pub struct GatewayLink {
    /// WireGuard: encrypted, each client with its own key. VXLAN: as pod-gateway does it, without either.
    #[serde(default, rename = "type")]
    pub type_: LinkType,

    /// UDP port of the gateway. Left out: 51820 for WireGuard, 8472 for VXLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,

    /// Number of the VXLAN. Left out: 42.
    #[serde(rename = "vxlanID", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16_777_215))]
    pub vxlan_id: Option<u32>,

    /// Largest packet inside the tunnel. Left out: found out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1280, max = 9000))]
    pub mtu: Option<u32>,
}

/// Kinds of links between clients and gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LinkType {
    #[default]
    WireGuard,
    #[serde(rename = "VXLAN")]
    Vxlan,
}

/// How the gateway reaches the outside: through a VPN interface that something else in its pod brings up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = at(
    ".serverAddress",
    "has(self.serverAddress) == has(self.serverPort)",
    "serverAddress and serverPort go together: only this server may be reached outside the VPN; write both"
))]
pub struct GatewayUplink {
    /// The VPN's interface, for example tun0. Clients leave through it or not at all.
    pub interface: EngineName,

    /// Address of the VPN server: the only one that the gateway itself may reach outside the VPN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_address: Option<IpAddress>,

    /// Port of the VPN server.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub server_port: Option<u16>,

    /// Protocol of the VPN.
    #[serde(default = "udp")]
    pub server_protocol: TransportProtocol,

    /// Networks that leave by the cluster and not by the VPN.
    #[serde(default, rename = "localCIDRs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "set"))]
    pub local_cidrs: Vec<Cidr>,

    /// Address that clients have outside. Left out: that of the interface.
    #[serde(rename = "sourceIP", skip_serializing_if = "Option::is_none")]
    pub source_ip: Option<IpAddress>,
}

/// How clients' names are resolved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayDns {
    /// Resolvers that are asked through the gateway. Left out: those of the VPN, else those of the gateway's pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "set"))]
    pub servers: Vec<ResolverAddress>,

    /// Domains that the cluster's own DNS is asked for.
    #[serde(default = "default_cluster_domains")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "set"))]
    pub cluster_domains: Vec<DomainName>,
}

/// A port of the gateway's outside that leads to a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PortForward {
    /// Port outside.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,

    /// TCP or UDP.
    #[serde(default)]
    pub protocol: TransportProtocol,

    /// GatewayClient that gets the connections.
    pub client: ObjectName,

    /// Port of the client. Left out: the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub target_port: Option<u16>,
}

/// TCP or UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum TransportProtocol {
    #[default]
    Tcp,
    Udp,
}

impl GatewayLink {
    pub fn effective_port(&self) -> u16 {
        self.port.unwrap_or(match self.type_ {
            LinkType::WireGuard => 51820,
            LinkType::Vxlan => 8472,
        })
    }
}

impl EgressGateway {
    /// What pods write in `setGateway`.
    pub fn gateway_value(&self) -> &str {
        self.spec.gateway_value.as_deref().or(self.metadata.name.as_deref()).unwrap_or_default()
    }

    /// Whether pods of a namespace may ask for this gateway.
    pub fn routes(&self, namespace: &str) -> bool {
        if self.spec.routed_namespaces.is_empty() {
            return self.metadata.namespace.as_deref() == Some(namespace);
        }
        self.spec.routed_namespaces.iter().any(|routed| &**routed == namespace)
    }
}

fn default_replicas() -> u32 {
    1
}

fn default_client_cidrs() -> Vec<Cidr> {
    vec!["172.16.0.0/20".into()]
}

fn default_cluster_domains() -> Vec<DomainName> {
    vec!["cluster.local".into()]
}

fn udp() -> TransportProtocol {
    TransportProtocol::Udp
}

/// What became of the gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressGatewayStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::conditions::schema")]
    pub conditions: Vec<Condition>,

    /// What pods write in setGateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_value: Option<String>,

    /// How many clients are routed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<i32>,

    /// How many gateway pods are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,

    /// The gateway pods that are ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["pod"]))]
    pub endpoints: Vec<GatewayEndpoint>,
}

/// One gateway pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayEndpoint {
    /// Name of the pod.
    pub pod: String,

    /// Address at which clients reach it.
    pub address: IpAddress,

    /// Its WireGuard public key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_key: Option<PublicKey>,

    /// Address that its clients have outside.
    #[serde(rename = "publicIP", skip_serializing_if = "Option::is_none")]
    pub public_ip: Option<IpAddress>,

    /// When the outside was last reached through it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<MicroTime>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_asked_for_by_value_else_by_name() {
        let spec: EgressGatewaySpec = serde_json::from_value(serde_json::json!({})).unwrap();
        let mut gateway = EgressGateway::new("foo", spec);
        gateway.metadata.namespace = Some("gateways".into());
        assert_eq!(gateway.gateway_value(), "foo");
        assert!(gateway.routes("gateways") && !gateway.routes("clients"));
        gateway.spec.gateway_value = Some("bar".into());
        gateway.spec.routed_namespaces = vec!["clients".into()];
        assert_eq!(gateway.gateway_value(), "bar");
        assert!(!gateway.routes("gateways") && gateway.routes("clients"));
        assert_eq!(gateway.spec.link.effective_port(), 51820);
    }
}
