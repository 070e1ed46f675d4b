//! One file per kind: what is gathered before the planner decides.

mod container_network;
mod tunnel_proxy;
mod unbuilt;

pub use container_network::ContainerNetworks;
pub use tunnel_proxy::TunnelProxies;
pub use unbuilt::Unbuilt;
