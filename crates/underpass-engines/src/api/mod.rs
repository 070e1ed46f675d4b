//! One engine, spoken to over its API. Both engines answer Docker's API; what they mean by it differs, and is met here.
//!
//! No question names a version of the API: each engine answers in its own. There is none that all have; Docker 29 refuses those before
//! 1.44, which Docker 24 and Podman do not have yet. What is read stands in all of them.

mod answers;
mod containers;
mod events;
mod images;
mod networks;
mod output;
mod raw;
mod volumes;

use std::time::Duration;

use bollard::{API_DEFAULT_VERSION, Docker};
use tokio::time::timeout;

use crate::engine::{Description, EngineError, EngineKind};
use crate::labels::Maker;
use crate::places::Candidate;
use answers::{chain, translate};

/// For questions: an engine that is alive answers in milliseconds, one under load in seconds.
const ASK: Duration = Duration::from_secs(15);
/// For what an engine has to do: starting a container on a slow disk, stopping a stubborn one.
const ACT: Duration = Duration::from_secs(90);
/// For a build, and for loading an image.
const IMAGE: Duration = Duration::from_secs(600);
/// For a pull: over a slow line it takes minutes, and behind it there is still a local copy to be looked for, and an image to be built.
const PULL: Duration = Duration::from_secs(300);

/// A connection to an engine that has answered once. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Connection {
    docker: Docker,
    place: Candidate,
    description: Description,
    maker: Maker,
}

impl Connection {
    /// Connects and asks who is there.
    pub(crate) async fn open(candidate: &Candidate, maker: Maker) -> Result<Self, String> {
        let docker = client(candidate).map_err(|error| chain(&error))?;
        let version = timeout(ASK, docker.version()).await;
        let version = version.map_err(|_| "it does not answer".to_owned())?.map_err(|error| chain(&error))?;
        let components = version.components.unwrap_or_default();
        let podman = components.iter().any(|component| component.name.starts_with("Podman"));
        let description = Description {
            kind: if podman { EngineKind::Podman } else { EngineKind::Docker },
            version: version.version.unwrap_or_default(),
            address: candidate.address.clone(),
            because: candidate.source.clone(),
        };
        Ok(Self { docker, place: candidate.clone(), description, maker })
    }

    pub(crate) fn description(&self) -> &Description {
        &self.description
    }

    pub(crate) async fn health(&self) -> Result<(), EngineError> {
        self.within(ASK, self.docker.ping()).await?;
        Ok(())
    }

    /// Runs a call to its end or its deadline.
    async fn within<T>(
        &self,
        deadline: Duration,
        call: impl Future<Output = Result<T, bollard::errors::Error>>,
    ) -> Result<T, EngineError> {
        match timeout(deadline, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(translate(&self.description, &error)),
            Err(_) => Err(self.too_slow(deadline)),
        }
    }

    fn too_slow(&self, deadline: Duration) -> EngineError {
        let Description { kind, address, .. } = &self.description;
        EngineError::Unavailable(format!("{kind} at {address} did not answer within {} seconds", deadline.as_secs()))
    }
}

fn client(candidate: &Candidate) -> Result<Docker, bollard::errors::Error> {
    // Ours are shorter, and name what was asked for.
    let longest = 2 * IMAGE.as_secs();
    // bollard wants to know one, and leaves it out of its paths.
    let version = API_DEFAULT_VERSION;
    match candidate.path() {
        Some(path) => Docker::connect_with_unix(&path.to_string_lossy(), longest, version),
        None => Docker::connect_with_http(&candidate.address, longest, version),
    }
}

/// `None` for what the engine does not have.
fn if_found<T>(answer: Result<T, EngineError>) -> Result<Option<T>, EngineError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(EngineError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What is gone already was asked for.
fn gone_is_fine(answer: Result<(), EngineError>) -> Result<(), EngineError> {
    if_found(answer).map(|_| ())
}

fn label_filter(labels: &[(&str, &str)]) -> Option<std::collections::HashMap<String, Vec<String>>> {
    let filters = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    Some([("label".to_owned(), filters)].into())
}
