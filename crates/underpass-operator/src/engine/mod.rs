//! Container engines, as far as the kinds need them.

mod sockets;
mod unavailable;

use async_trait::async_trait;
use underpass_plan::container_network::Network;
use underpass_plan::{Cause, NetworkRequest};

pub use sockets::{Candidate, Found, candidates};
pub use unavailable::Unavailable;

/// One engine on this host. Every call may be repeated: what is there already, or gone already, is success.
#[async_trait]
pub trait ContainerEngine: Send + Sync + 'static {
    /// Whether it can be driven right now; the error says where it was looked for and what to do.
    async fn health(&self) -> Result<(), EngineError>;

    async fn find_network(&self, name: &str) -> Result<Option<Network>, EngineError>;

    async fn create_network(&self, request: &NetworkRequest) -> Result<(), EngineError>;

    async fn remove_network(&self, id: &str) -> Result<(), EngineError>;
}

/// What an engine answers when it does not do as asked. The text reaches the object's status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    #[error("{0}")]
    Unavailable(String),
    #[error("the name {0} is taken by another network")]
    NameTaken(String),
    #[error(
        "the engine has no free address range left: remove networks that nobody uses, or give it a larger address pool"
    )]
    AddressesExhausted,
    #[error("the network {0} is in use: stop or disconnect its containers")]
    InUse(String),
    #[error("the engine refused: {0}")]
    Refused(String),
}

impl EngineError {
    pub fn cause(&self) -> Cause {
        match self {
            Self::Unavailable(_) => Cause::NoContainerEngine,
            Self::NameTaken(_) => Cause::NameTaken,
            Self::AddressesExhausted => Cause::AddressesExhausted,
            Self::InUse(_) => Cause::NetworkInUse,
            Self::Refused(_) => Cause::EngineRefused,
        }
    }
}
