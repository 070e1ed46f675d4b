//! Our kinds: what users declare, what controllers report, and the CRDs that say so to an API server.
//!
//! One module per kind, one per notion that kinds share. Everything that can be refused when an object is applied is refused there, by the
//! schema and its CEL rules, on a Kubernetes API server and on the embedded one alike. Pure: no clock, no I/O.

#![allow(clippy::duplicated_attributes, reason = "every printer column repeats its type")]
#![allow(unreachable_pub, reason = "derive(KubeSchema) repeats each pub struct inside a function")]

pub mod address;
pub mod attachment;
pub mod compute;
pub mod conditions;
pub mod container_network;
mod crd;
pub mod dhcp_server;
pub mod dns_server;
pub mod duration;
pub mod egress_gateway;
pub mod gateway_client;
pub mod infra;
pub mod intercept_request;
mod kinds;
pub mod name;
pub mod number_or_text;
pub mod proxy_backend;
pub mod proxy_server;
mod rules;
mod text;
pub mod tunnel_proxy;
pub mod workstation;

pub use container_network::{ContainerNetwork, ContainerNetworkSpec, ContainerNetworkStatus};
pub use crd::LONGEST_NAME;
pub use dhcp_server::{DHCPServer, DHCPServerSpec, DHCPServerStatus};
pub use dns_server::{DNSServer, DNSServerSpec, DNSServerStatus};
pub use egress_gateway::{EgressGateway, EgressGatewaySpec, EgressGatewayStatus};
pub use gateway_client::{GatewayClient, GatewayClientSpec, GatewayClientStatus};
pub use infra::{Infra, InfraSpec, InfraStatus};
pub use intercept_request::{InterceptRequest, InterceptRequestSpec, InterceptRequestStatus};
pub use kinds::{CATEGORY, HOSTED_CLUSTER_GROUP, KINDS, Kind, UNDERPASS_GROUP, VERSION, crds, kind};
pub use proxy_server::{ProxyServer, ProxyServerSpec, ProxyServerStatus};
pub use tunnel_proxy::{
    ContainerNetworkTunnelProxy, ContainerNetworkTunnelProxySpec, ContainerNetworkTunnelProxyStatus,
};
pub use workstation::{Workstation, WorkstationSpec, WorkstationStatus};
