//! Podman and Docker over their API sockets: networks, images, containers, events.
//!
//! [`ContainerEngine`] is what the rest of underpass knows. [`LocalEngine`] finds the engine as the engines' own clients do and speaks
//! to it (`api`); both engines answer the same API, but not in the same words, and neither says the whole truth: the differences are
//! met here and nowhere else. [`TunnelImages`] makes sure that the image with our own program is there.
//!
//! No command line of an engine is ever run: its output is for people, its version is another than the engine's, and it costs a process.

mod api;
mod connections;
mod container;
mod contexts;
mod engine;
mod home;
mod image_archive;
pub mod labels;
mod local;
mod places;
mod tunnel_image;

pub use container::{
    Attachment, Container, ContainerRequest, ContainerState, File, Image, Limits, NetworkChoice, Port, Protocol,
    Published, Volume,
};
pub use engine::{BuildRequest, Change, ContainerEngine, Description, EngineError, EngineKind};
pub use home::{Elsewhere, Home, Place};
pub use image_archive::{About, Archive, program_image, scratch_image};
pub use local::LocalEngine;
pub use places::{Candidate, Refusal, candidates};
pub use tunnel_image::{Ensured, Outcome, TunnelImages, remove_stale_locks};
pub use underpass_plan::NetworkRequest;
pub use underpass_plan::container_network::Network;
