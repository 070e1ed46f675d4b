//! What underpass asks of a container engine.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use underpass_plan::container_network::Network;
use underpass_plan::{Cause, NetworkRequest};

use crate::container::{Container, ContainerRequest, File, Image, Volume};

/// One engine on this host. Every call may be repeated: what is there already, or gone already, is success. Every call has a deadline.
#[async_trait]
pub trait ContainerEngine: Send + Sync + 'static {
    /// Whether it can be driven right now; the error says where it was looked for and what to do.
    async fn health(&self) -> Result<(), EngineError>;

    /// Which engine was chosen, and why.
    async fn describe(&self) -> Result<Description, EngineError>;

    async fn find_network(&self, name: &str) -> Result<Option<Network>, EngineError>;

    async fn create_network(&self, request: &NetworkRequest) -> Result<(), EngineError>;

    async fn remove_network(&self, id: &str) -> Result<(), EngineError>;

    /// Those that carry all of the labels.
    async fn list_networks(&self, labels: &[(&str, &str)]) -> Result<Vec<Network>, EngineError>;

    async fn find_image(&self, reference: &str) -> Result<Option<Image>, EngineError>;

    /// An archive as `docker save` and [`crate::scratch_image`] write it.
    async fn load_image(&self, archive: Bytes) -> Result<(), EngineError>;

    async fn pull_image(&self, reference: &str) -> Result<(), EngineError>;

    async fn build_image(&self, request: BuildRequest) -> Result<(), EngineError>;

    async fn list_images(&self, labels: &[(&str, &str)]) -> Result<Vec<Image>, EngineError>;

    /// Takes it away if no container uses it.
    async fn remove_image(&self, id: &str) -> Result<(), EngineError>;

    /// Makes it without starting it, and gives its id. A container of the same name and with the same labels is it.
    async fn create_container(&self, request: &ContainerRequest) -> Result<String, EngineError>;

    /// Writes files into the private folder of a container that was created.
    async fn put_files(&self, id: &str, folder: &str, files: &[File]) -> Result<(), EngineError>;

    async fn start_container(&self, id: &str) -> Result<(), EngineError>;

    /// By its id or its name.
    async fn find_container(&self, id: &str) -> Result<Option<Container>, EngineError>;

    /// Those that carry all of the labels, running or not.
    async fn list_containers(&self, labels: &[(&str, &str)]) -> Result<Vec<Container>, EngineError>;

    /// Those on the network, running or not; of these, those that carry the label, whatever its value.
    async fn list_containers_on(&self, network: &str, label: Option<&str>) -> Result<Vec<Container>, EngineError>;

    /// Stops it without asking, and returns when it is gone, with its private folder.
    async fn remove_container(&self, id: &str) -> Result<(), EngineError>;

    /// The private folders of containers that carry all of the labels, or did.
    async fn list_volumes(&self, labels: &[(&str, &str)]) -> Result<Vec<Volume>, EngineError>;

    async fn remove_volume(&self, name: &str) -> Result<(), EngineError>;

    /// The last lines that it wrote, to either stream.
    async fn container_logs(&self, id: &str, lines: usize) -> Result<String, EngineError>;

    /// What changes, for as long as the stream is read. It outlives every break: see [`Change::Everything`].
    fn changes(&self) -> BoxStream<'static, Change>;
}

/// An image that the engine shall build from a Dockerfile.
#[derive(Debug, Clone)]
pub struct BuildRequest {
    pub reference: String,
    /// A tar with a file `Dockerfile` at its top.
    pub context: Bytes,
    pub labels: BTreeMap<String, String>,
}

/// Where to look again. Never data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Network {
        id: String,
        name: String,
    },
    Container {
        id: String,
    },
    /// Changes may have been missed: the engine was found, came back, or went away. What one cares about has to be looked at again.
    Everything,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    Docker,
    Podman,
}

/// The engine that is driven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    pub kind: EngineKind,
    pub version: String,
    pub address: String,
    /// Who named this place: a variable, a context, or the engine's own default.
    pub because: String,
}

/// What an engine answers when it does not do as asked. The text reaches the object's status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    #[error("{0}")]
    Unavailable(String),
    #[error("the name is taken: {0}; choose another name, or remove what has it")]
    NameTaken(String),
    #[error(
        "the engine has no free address range left: remove networks that nobody uses, or give it a larger address pool ({0})"
    )]
    AddressesExhausted(String),
    #[error("it is in use: stop or disconnect its containers ({0})")]
    InUse(String),
    #[error("a port of this host is taken: {0}")]
    PortTaken(String),
    #[error("the engine does not have it: {0}")]
    NotFound(String),
    #[error("the image {reference} cannot be had: {why}")]
    NoImage { reference: String, why: String },
    #[error("building the image {reference} failed:\n{output}")]
    BuildFailed { reference: String, output: String },
    #[error("the engine refused: {0}")]
    Refused(String),
}

impl EngineError {
    pub fn cause(&self) -> Cause {
        match self {
            Self::Unavailable(_) => Cause::NoContainerEngine,
            Self::NameTaken(_) => Cause::NameTaken,
            Self::AddressesExhausted(_) => Cause::AddressesExhausted,
            Self::InUse(_) => Cause::NetworkInUse,
            Self::PortTaken(_) => Cause::PortTaken,
            Self::NoImage { .. } => Cause::NoImage,
            Self::BuildFailed { .. } => Cause::BuildFailed,
            Self::NotFound(_) | Self::Refused(_) => Cause::EngineRefused,
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Docker => "Docker",
            Self::Podman => "Podman",
        })
    }
}

impl FromStr for EngineKind {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "docker" => Ok(Self::Docker),
            "podman" => Ok(Self::Podman),
            _ => Err(format!("{word} is not a container engine; write docker or podman")),
        }
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, version, address, because } = self;
        write!(f, "{kind} {version} at {address} ({because})")
    }
}
