//! The lab is what it says: a cluster whose parts work together, and which leaves nothing.
//!
//! - `cluster`: pods, Services, cluster DNS, exec, logs, admission.
//! - `images`: archives get onto every node.
//! - `life`: starting and ending, in order and by accident; on a machine of its own each, beside the lab that runs.
//! - `networks`: further networks of pods.
//!
//! All but `life` want a lab that runs: `make lab-up`.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod cluster;
mod images;
mod life;
mod networks;
