//! For tests only: a running underpass, kubectl, container engines, a real cluster, scratch folders, proxies and what they must hold.
//!
//! Everything here panics when it fails, with all that the processes said: the caller is a test. Every process that is started here
//! is ended when its value goes, every folder is removed, and nothing is shared between two tests: no port, no home, no cache.

mod control_plane;
mod engines;
mod envoy;
pub mod fidelity;
mod forwarder;
mod guide;
pub mod hello;
mod hosted;
pub mod http;
pub mod interrupt;
mod kubectl;
mod lab;
pub mod load;
mod machine;
mod netns;
mod process;
mod program;
pub mod proxies;
mod replica;
pub mod report;
mod shell;
pub mod tenant;
mod underpass;
mod unique;
pub mod usage;
mod wait;

pub use control_plane::ControlPlane;
pub use engines::{PrivateEngine, TestEngine, engines};
pub use envoy::Envoy;
pub use forwarder::Forwarder;
pub use guide::follow_guide;
pub use hosted::{HostedControlPlane, HostedService};
pub use kubectl::Kubectl;
pub use lab::{Lab, LabNamespace};
pub use machine::Machine;
pub use netns::{NetNamespace, Switch};
pub use process::{Ended, Process};
pub use program::write_program;
pub use replica::Replica;
pub use rustix::process::Signal;
pub use shell::Shell;
pub use tenant::Tenant;
pub use underpass::{Launch, Ready, Underpass};
pub use wait::{PATIENCE, look_until, wait_until};
