//! The engine of this host, found when it is first needed and kept then.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::sync::{OnceCell, mpsc};
use tokio::time::Instant;
use tracing::{debug, info};
use underpass_plan::NetworkRequest;
use underpass_plan::container_network::Network;

use crate::api::Connection;
use crate::container::{Container, ContainerRequest, File, Image, Volume};
use crate::engine::{BuildRequest, Change, ContainerEngine, Description, EngineError, EngineKind};
use crate::home::{Elsewhere, Home, Place};
use crate::labels::{self, Maker};
use crate::places::{Candidate, candidates};

/// How many changes wait for a slow reader before the engine has to.
const QUEUE: usize = 256;
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Looks at every call until an engine answers; from then on it is that one and no other, even while it is away: what was made there
/// cannot be found elsewhere. Cheap to clone.
#[derive(Clone)]
pub struct LocalEngine {
    inner: Arc<Inner>,
}

struct Inner {
    candidates: Vec<Candidate>,
    forced: Option<EngineKind>,
    /// Docker's way of asking for TLS on tcp://.
    tls: bool,
    maker: Maker,
    /// Where it is written down which engine was chosen; `None`: nowhere.
    home: Option<Home>,
    chosen: OnceCell<Connection>,
}

impl LocalEngine {
    pub fn new(candidates: Vec<Candidate>, forced: Option<EngineKind>, maker: Maker) -> Self {
        Self { inner: Arc::new(Inner { candidates, forced, tls: false, maker, home: None, chosen: OnceCell::new() }) }
    }

    /// Looks where the engines' own clients would, given this process's environment, and takes no other engine than the one at home.
    pub fn from_environment(forced: Option<EngineKind>, maker: Maker, home: Home) -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let tls = variable("DOCKER_TLS_VERIFY").is_some_and(|value| !value.is_empty());
        let candidates = candidates(forced, variable);
        let (home, chosen) = (Some(home), OnceCell::new());
        Self { inner: Arc::new(Inner { candidates, forced, tls, maker, home, chosen }) }
    }

    /// Whether an engine is there which is not the one at home. Where none answers there is nothing to be said.
    pub async fn check_home(&self) -> Result<(), Elsewhere> {
        match self.inner.search().await {
            Ok(found) => self.inner.check_home(&found).await,
            Err(_) => Ok(()),
        }
    }

    /// As [`Self::connection`], for somebody who is about to make something there.
    async fn connection_to_make(&self) -> Result<&Connection, EngineError> {
        let connection = self.connection().await?;
        if let Some(home) = &self.inner.home {
            home.write(connection.description())
                .map_err(|error| EngineError::Refused(format!("which engine it is cannot be written down: {error}")))?;
        }
        Ok(connection)
    }

    async fn connection(&self) -> Result<&Connection, EngineError> {
        self.inner.chosen.get_or_try_init(|| self.inner.find()).await
    }
}

impl Inner {
    async fn find(&self) -> Result<Connection, EngineError> {
        let found = self.search().await?;
        match self.check_home(&found).await {
            Ok(()) => Ok(found),
            Err(elsewhere) => Err(EngineError::Unavailable(elsewhere.to_string())),
        }
    }

    async fn check_home(&self, found: &Connection) -> Result<(), Elsewhere> {
        let Some(home) = &self.home else { return Ok(()) };
        let Some(first) = home.place().filter(|place| !place.is(found.description())) else { return Ok(()) };
        let unseen = match self.is_empty(&first).await {
            // Should it stay there is nothing lost but this look.
            Ok(true) => return home.forget().or(Ok(())),
            Ok(false) => None,
            Err(why) => Some(why),
        };
        Err(home.elsewhere(first, found.description(), unseen))
    }

    /// Whether nothing of this instance that has an owner is there.
    async fn is_empty(&self, place: &Place) -> Result<bool, String> {
        let candidate = Candidate::new("what this data directory remembers", place.address.as_str());
        candidate.check(self.tls).map_err(|refusal| refusal.to_string())?;
        let connection = Connection::open(&candidate, self.maker.clone()).await?;
        let ours = [(labels::INSTANCE, self.maker.instance())];
        let words = |error: EngineError| error.to_string();
        let networks = connection.list_networks(&ours).await.map_err(words)?;
        Ok(networks.iter().all(|network| network.owner.is_none())
            && connection.list_containers(&ours).await.map_err(words)?.is_empty()
            && connection.list_volumes(&ours).await.map_err(words)?.is_empty())
    }

    async fn search(&self) -> Result<Connection, EngineError> {
        let mut looked = Vec::new();
        for candidate in &self.candidates {
            match self.try_one(candidate).await {
                Ok(connection) => {
                    info!(engine = %connection.description(), "container engine found");
                    return Ok(connection);
                }
                Err(why) => looked.push(format!("{} ({}): {why}", candidate.address, candidate.source)),
            }
        }
        Err(EngineError::Unavailable(format!(
            "no container engine found: looked at {}; start Podman (podman system service) or Docker, or set \
             CONTAINER_HOST or DOCKER_HOST to its socket",
            looked.join(", ")
        )))
    }

    async fn try_one(&self, candidate: &Candidate) -> Result<Connection, String> {
        candidate.check(self.tls).map_err(|refusal| refusal.to_string())?;
        let connection = Connection::open(candidate, self.maker.clone()).await?;
        match (self.forced, connection.description().kind) {
            (Some(forced), kind) if forced != kind => Err(format!("it is {kind}, and {forced} was asked for")),
            _ => Ok(connection),
        }
    }
}

/// Follows one engine for ever. A break is told like a return: what depends on the engine has to be looked at in both cases.
async fn follow(engine: LocalEngine, changes: mpsc::Sender<Change>) {
    let mut wait = FIRST_WAIT;
    while !changes.is_closed() {
        let began = Instant::now();
        if let Err(error) = follow_once(&engine, &changes).await {
            debug!(%error, "not subscribed to the engine's events");
        }
        if began.elapsed() > LONGEST_WAIT {
            wait = FIRST_WAIT;
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => wait = (2 * wait).min(LONGEST_WAIT),
            () = changes.closed() => {}
        }
    }
}

async fn follow_once(engine: &LocalEngine, changes: &mpsc::Sender<Change>) -> Result<(), EngineError> {
    let connection = engine.connection().await?;
    connection.health().await?;
    let ended = connection.follow(changes).await;
    // Nobody listens any more, or will see by itself that the engine is away.
    let _ = changes.send(Change::Everything).await;
    ended
}

#[async_trait]
impl ContainerEngine for LocalEngine {
    async fn health(&self) -> Result<(), EngineError> {
        self.connection().await?.health().await
    }

    async fn describe(&self) -> Result<Description, EngineError> {
        Ok(self.connection().await?.description().clone())
    }

    async fn find_network(&self, name: &str) -> Result<Option<Network>, EngineError> {
        self.connection().await?.find_network(name).await
    }

    async fn create_network(&self, request: &NetworkRequest) -> Result<(), EngineError> {
        self.connection_to_make().await?.create_network(request).await
    }

    async fn remove_network(&self, id: &str) -> Result<(), EngineError> {
        self.connection().await?.remove_network(id).await
    }

    async fn list_networks(&self, labels: &[(&str, &str)]) -> Result<Vec<Network>, EngineError> {
        self.connection().await?.list_networks(labels).await
    }

    async fn find_image(&self, reference: &str) -> Result<Option<Image>, EngineError> {
        self.connection().await?.find_image(reference).await
    }

    async fn load_image(&self, archive: Bytes) -> Result<(), EngineError> {
        self.connection().await?.load_image(archive).await
    }

    async fn pull_image(&self, reference: &str) -> Result<(), EngineError> {
        self.connection().await?.pull_image(reference).await
    }

    async fn build_image(&self, request: BuildRequest) -> Result<(), EngineError> {
        self.connection().await?.build_image(request).await
    }

    async fn list_images(&self, labels: &[(&str, &str)]) -> Result<Vec<Image>, EngineError> {
        self.connection().await?.list_images(labels).await
    }

    async fn remove_image(&self, id: &str) -> Result<(), EngineError> {
        self.connection().await?.remove_image(id).await
    }

    async fn create_container(&self, request: &ContainerRequest) -> Result<String, EngineError> {
        self.connection_to_make().await?.create_container(request).await
    }

    async fn put_files(&self, id: &str, folder: &str, files: &[File]) -> Result<(), EngineError> {
        self.connection().await?.put_files(id, folder, files).await
    }

    async fn start_container(&self, id: &str) -> Result<(), EngineError> {
        self.connection().await?.start_container(id).await
    }

    async fn find_container(&self, id: &str) -> Result<Option<Container>, EngineError> {
        self.connection().await?.find_container(id).await
    }

    async fn list_containers(&self, labels: &[(&str, &str)]) -> Result<Vec<Container>, EngineError> {
        self.connection().await?.list_containers(labels).await
    }

    async fn list_containers_on(&self, network: &str, label: Option<&str>) -> Result<Vec<Container>, EngineError> {
        self.connection().await?.list_containers_on(network, label).await
    }

    async fn remove_container(&self, id: &str) -> Result<(), EngineError> {
        self.connection().await?.remove_container(id).await
    }

    async fn list_volumes(&self, labels: &[(&str, &str)]) -> Result<Vec<Volume>, EngineError> {
        self.connection().await?.list_volumes(labels).await
    }

    async fn remove_volume(&self, name: &str) -> Result<(), EngineError> {
        self.connection().await?.remove_volume(name).await
    }

    async fn container_logs(&self, id: &str, lines: usize) -> Result<String, EngineError> {
        self.connection().await?.container_logs(id, lines).await
    }

    fn changes(&self) -> BoxStream<'static, Change> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::spawn(follow(self.clone(), sender));
        stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) }).boxed()
    }
}

impl fmt::Debug for LocalEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalEngine").field("candidates", &self.inner.candidates).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(addresses: &[&str], forced: Option<EngineKind>) -> LocalEngine {
        let candidates = addresses.iter().map(|address| Candidate::new("test", *address)).collect();
        LocalEngine::new(candidates, forced, Maker::this_process("test").unwrap())
    }

    #[tokio::test]
    async fn names_every_place_where_it_looked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engine.sock");
        let address = format!("unix://{}", path.display());
        let engine = engine(&[&address, "ssh://host"], None);

        let none = engine.health().await.unwrap_err().to_string();
        assert!(none.starts_with("no container engine found: looked at ") && none.contains(&address), "{none}");
        assert!(none.contains("ssh:// is not supported"), "{none}");

        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(_listener);
        let dead = engine.health().await.unwrap_err().to_string();
        assert!(dead.contains(&address) && dead.contains("refused"), "{dead}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_never_answers_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engine.sock");
        let _silent = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let refused = engine(&[&format!("unix://{}", path.display())], None).health().await.unwrap_err();
        assert!(refused.to_string().contains("it does not answer"), "{refused}");
    }
}
