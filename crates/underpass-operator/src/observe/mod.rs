//! One file per kind: what is gathered before the planner decides.

mod container_network;
mod unbuilt;

pub use container_network::ContainerNetworks;
pub use unbuilt::Unbuilt;
