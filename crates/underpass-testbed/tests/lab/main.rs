//! The lab is what it says: a cluster whose parts work together, and which leaves nothing.
//!
//! - `cluster`: pods, Services, cluster DNS, exec, logs, admission.
//! - `envoy`: its image, as a pod has it.
//! - `hosted`: what stands for hosted control planes.
//! - `images`: archives get onto every node.
//! - `life`: starting and ending, in order and by accident; on a machine of its own each, beside the lab that runs.
//! - `networks`: the tenant network, pods and machines on it.
//!
//! All but `life` want a lab that runs: `make lab-up`.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod cluster;
mod envoy;
mod hosted;
mod images;
mod life;
mod networks;
