//! The engine of a version that cannot drive one: it looks, reports what it found, and never pretends.

use async_trait::async_trait;
use underpass_plan::NetworkRequest;
use underpass_plan::container_network::Network;

use super::sockets::{Candidate, Found, candidates};
use super::{ContainerEngine, EngineError};

/// Looks again at every call, so that its answer is true when an engine starts or stops.
#[derive(Debug, Clone)]
pub struct Unavailable {
    candidates: Vec<Candidate>,
}

impl Unavailable {
    pub fn new(candidates: Vec<Candidate>) -> Self {
        Self { candidates }
    }

    /// Looks where the engines' own clients would, given this process's environment.
    pub fn from_environment() -> Self {
        Self::new(candidates(|name| std::env::var(name).ok()))
    }

    fn why(&self) -> String {
        let found = self.candidates.iter().find(|candidate| candidate.look() != Found::Nothing);
        match found {
            Some(Candidate { source, address }) => format!(
                "found a container engine at {address} ({source}), but this version of underpass cannot drive it yet; \
                 the object stays and a version that can will take it up"
            ),
            None => format!(
                "no container engine found: looked at {}; start Podman (podman system service) or Docker, or set \
                 CONTAINER_HOST or DOCKER_HOST to its socket",
                self.candidates.iter().map(|candidate| candidate.address.as_str()).collect::<Vec<_>>().join(", ")
            ),
        }
    }

    fn error(&self) -> EngineError {
        EngineError::Unavailable(self.why())
    }
}

#[async_trait]
impl ContainerEngine for Unavailable {
    async fn health(&self) -> Result<(), EngineError> {
        Err(self.error())
    }

    async fn find_network(&self, _name: &str) -> Result<Option<Network>, EngineError> {
        Err(self.error())
    }

    async fn create_network(&self, _request: &NetworkRequest) -> Result<(), EngineError> {
        Err(self.error())
    }

    async fn remove_network(&self, _id: &str) -> Result<(), EngineError> {
        Err(self.error())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn names_every_place_where_it_looked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engine.sock");
        let address = format!("unix://{}", path.display());
        let engine = Unavailable::new(vec![Candidate { source: "Docker", address: address.clone() }]);

        let none = engine.health().await.unwrap_err().to_string();
        assert!(none.starts_with("no container engine found: looked at ") && none.contains(&address), "{none}");

        let _listener = UnixListener::bind(&path).unwrap();
        let found = engine.health().await.unwrap_err().to_string();
        assert!(found.contains(&address) && found.contains("cannot drive it yet"), "{found}");
    }
}
