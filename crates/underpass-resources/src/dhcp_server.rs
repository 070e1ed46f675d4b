//! DHCPServer: addresses for the machines on a secondary network.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::address::{Cidr, HostAddress, IpAddress, MacAddress};
use crate::attachment::NetworkAttachment;
use crate::duration::DurationText;
use crate::name::{DomainName, Image, Label};
use crate::rules::{at, different, in_order, inside, must_be_v4, outside_range};

/// The network that is served, and the addresses that are leased on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "hostedcluster.densityops.com",
    version = "v1alpha1",
    kind = "DHCPServer",
    plural = "dhcpservers",
    shortname = "dhcp",
    namespaced,
    doc = "A DHCPv4 server on a secondary network: leases, reservations and options for the machines of a hosted cluster.",
    status = "DHCPServerStatus",
    derive = "PartialEq",
    printcolumn(name = "ServerIP", type_ = "string", json_path = ".spec.networkConfig.serverIP"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Active Leases", type_ = "integer", json_path = ".status.activeLeases")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = inside(".leaseConfig.rangeStart", "true", "self.leaseConfig.rangeStart", "self.networkConfig.cidr", "networkConfig.cidr"),
    validation = inside(".leaseConfig.rangeEnd", "true", "self.leaseConfig.rangeEnd", "self.networkConfig.cidr", "networkConfig.cidr"),
    validation = in_order(".leaseConfig.rangeEnd", "true", "self.leaseConfig.rangeStart", "self.leaseConfig.rangeEnd"),
    validation = outside_range(
        ".networkConfig.serverIP",
        "true",
        "self.networkConfig.serverIP",
        "self.leaseConfig.rangeStart",
        "self.leaseConfig.rangeEnd",
        "serverIP lies between rangeStart and rangeEnd and would be leased to a machine; choose an address outside the range"
    ),
    validation = outside_range(
        ".networkConfig.gateway",
        "true",
        "self.networkConfig.gateway",
        "self.leaseConfig.rangeStart",
        "self.leaseConfig.rangeEnd",
        "gateway lies between rangeStart and rangeEnd and would be leased to a machine; move the range"
    ),
    validation = at(
        ".leaseConfig.reservations",
        "!has(self.leaseConfig.reservations) || !isCIDR(self.networkConfig.cidr) || self.leaseConfig.reservations.all(r, \
         !isIP(r.ip) || cidr(self.networkConfig.cidr).containsIP(r.ip))",
        "a reservation is outside networkConfig.cidr; reserve addresses of that network"
    ),
    validation = at(
        ".leaseConfig.reservations",
        "!has(self.leaseConfig.reservations) || self.leaseConfig.reservations.all(r, r.ip != self.networkConfig.gateway && \
         !(self.networkConfig.serverIP + '/').startsWith(r.ip + '/'))",
        "a reservation is the address of the gateway or of this server; reserve another one"
    )
)]
pub struct DHCPServerSpec {
    /// The network on which the server stands.
    pub network_config: DHCPNetworkConfig,

    /// The addresses that it leases.
    pub lease_config: LeaseConfig,

    /// Further DHCP options for every machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["code"]))]
    pub options: Vec<DHCPOption>,

    /// Image of the server. Left out: the image that the operator itself runs from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,

    /// ServiceAccount of the server's pod. Left out: one is made for it, with only the rights that it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<Label>,
}

/// The network on which a DHCP server stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = at(
        ".cidr",
        "!isCIDR(self.cidr) || cidr(self.cidr).ip().family() == 4",
        "cidr is an IPv6 network; DHCP leases IPv4 addresses, write an IPv4 network"
    ),
    validation = inside(".gateway", "true", "self.gateway", "self.cidr", "cidr"),
    validation = inside(".serverIP", "true", "self.serverIP", "self.cidr", "cidr"),
    validation = different(
        ".serverIP", "true", "self.serverIP", "self.gateway",
        "serverIP is the address of the gateway; give the server an address of its own"
    )
)]
pub struct DHCPNetworkConfig {
    /// The network, for example 192.168.100.0/24. Machines get their mask from it.
    pub cidr: Cidr,

    /// The router that machines are told, an address in cidr.
    pub gateway: IpAddress,

    /// The server's own address in cidr, with or without a prefix.
    #[serde(rename = "serverIP")]
    pub server_ip: HostAddress,

    /// The DNS servers that machines are told, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "set"))]
    pub dns_servers: Vec<IpAddress>,

    #[serde(flatten)]
    pub attachment: NetworkAttachment,
}

/// What is leased.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = must_be_v4(".rangeStart", "true", "self.rangeStart"),
    validation = must_be_v4(".rangeEnd", "true", "self.rangeEnd"),
    // Quadratic, so a longer list is left to the controller, which reports the second reservation.
    validation = at(
        ".reservations",
        "!has(self.reservations) || size(self.reservations) > 64 || self.reservations.all(r, self.reservations.exists_one(o, o.ip == r.ip))",
        "two machines have the same address reserved; reserve each address once"
    )
)]
pub struct LeaseConfig {
    /// First address to lease.
    pub range_start: IpAddress,

    /// Last address to lease.
    pub range_end: IpAddress,

    /// How long a lease lasts, for example 1h.
    #[serde(default = "default_lease_time")]
    pub lease_time: DurationText,

    /// Machines that always get the same address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["macAddress"]))]
    pub reservations: Vec<Reservation>,
}

/// One machine that always gets the same address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = must_be_v4(".ip", "true", "self.ip"))]
pub struct Reservation {
    /// Hardware address of the machine's network card, lower-case.
    pub mac_address: MacAddress,

    /// The address that it gets, inside or outside of the range.
    pub ip: IpAddress,

    /// The host name that it is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<DomainName>,
}

/// One DHCP option.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DHCPOption {
    /// Number of the option, for example 42 for time servers.
    #[schemars(range(min = 1, max = 254))]
    pub code: u8,

    /// Value of the option; lists are separated by commas.
    #[schemars(length(min = 1, max = 1024))]
    pub value: String,
}

pub(crate) fn default_lease_time() -> DurationText {
    "1h".into()
}

/// What became of the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DHCPServerStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::conditions::schema")]
    pub conditions: Vec<Condition>,

    /// Leases that have not run out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_leases: Option<i32>,

    /// Addresses that can be leased, reservations included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_leases: Option<i32>,

    /// ConfigMap with the server's configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_name: Option<String>,

    /// Deployment of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment_name: Option<String>,

    /// PersistentVolumeClaim that keeps the leases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_claim_name: Option<String>,
}
