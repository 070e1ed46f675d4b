//! One file per kind: what is gathered before the planner decides.

mod addresses;
mod container_network;
mod engine;
mod infra;
mod proxy_server;
mod tunnel_proxy;
mod unbuilt;

pub use container_network::ContainerNetworks;
pub(crate) use infra::Infras;
pub use proxy_server::ProxyServers;
pub use tunnel_proxy::TunnelProxies;
pub use unbuilt::Unbuilt;
