//! The server as a whole: opened and bound first, run later, stopped by a token.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use underpass_store::{Options, Store};

use crate::api::Api;
use crate::collector::{Collector, Footprint};
use crate::definitions::Definitions;
use crate::identity::{Identity, IdentityError};
use crate::kubeconfig;
use crate::limits::Limits;
use crate::listen::{ListenError, Listening};
use crate::metrics::Metrics;
use crate::namespaces::Namespaces;
use crate::serve::Service;
use crate::status::ApiError;
use crate::store_metrics::StoreMetrics;

/// What a server needs to know.
pub struct Config {
    /// Where objects and keys are kept; `None` = nowhere, everything ends with the process.
    pub data_dir: Option<PathBuf>,
    pub listen: SocketAddr,
    /// CustomResourceDefinitions that are there from the beginning, brought up to date at every start.
    pub crds: Vec<Value>,
    /// How many events watches can resume over; `None` = as many as the store keeps by default.
    pub keep_events: Option<usize>,
}

impl Default for Config {
    fn default() -> Self {
        Self { data_dir: None, listen: SocketAddr::from(([127, 0, 0, 1], 0)), crds: Vec::new(), keep_events: None }
    }
}

/// A server that is bound and has its store open, and does not answer yet.
pub struct Server {
    api: Arc<Api>,
    listening: Listening,
    metrics: Arc<Metrics>,
    footprints: mpsc::UnboundedReceiver<Footprint>,
    definitions: Definitions,
    namespaces: Namespaces,
}

/// Why a server could not start. Each is one sentence that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] underpass_store::OpenError),
    #[error("{0}")]
    Identity(IdentitySentence),
    #[error("{0}")]
    Listen(ListenSentence),
    #[error("the server's own objects cannot be written: {0}")]
    Bootstrap(String),
}

/// Why a running server ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{0}")]
    Storage(String),
    #[error(
        "a part of the API server ended by itself, which is a defect of underpass; the objects are safe, start it again"
    )]
    Broken,
}

/// A sentence about keys and certificates; the error behind it stays private to this crate.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct IdentitySentence(String);

/// A sentence about the listening socket.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ListenSentence(String);

impl Server {
    pub async fn bind(config: Config) -> Result<Self, StartError> {
        let defaults = Options::default();
        let options = Options { keep_events: config.keep_events.unwrap_or(defaults.keep_events), ..defaults };
        let store = match &config.data_dir {
            Some(folder) => Store::open(folder, options)?,
            None => Store::ephemeral(options)?,
        };
        let identity = Identity::load_or_create(config.data_dir.as_deref())?;
        let listening = Listening::bind(config.listen, &identity, Limits::default()).await?;
        let metrics = Arc::new(Metrics::new());
        metrics.register(|registry| registry.register_collector(Box::new(StoreMetrics(store.clone()))));
        let (api, footprints) = Api::new(store, identity.ca_pem().to_owned(), identity.token().to_owned());
        let api = Arc::new(api);
        let mut definitions = Definitions::new(api.clone());
        let mut namespaces = Namespaces::new(api.clone());
        definitions.begin(&config.crds).await?;
        namespaces.begin().await?;
        Ok(Self { api, listening, metrics, footprints, definitions, namespaces })
    }

    pub fn address(&self) -> SocketAddr {
        self.listening.address()
    }

    /// The text of a kubeconfig that may do everything here.
    pub fn kubeconfig(&self) -> String {
        let mut address = self.address();
        if address.ip().is_unspecified() {
            // Bound everywhere: this machine reaches it by loopback.
            address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
        }
        kubeconfig::render(&format!("https://{address}"), &self.api.ca_pem, &self.api.token)
    }

    /// Lets whoever runs in the same process show its metrics at `/metrics` too.
    pub fn register_metrics<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        self.metrics.register(add)
    }

    /// Answers requests until `stop`, or until the storage fails.
    pub async fn run(self, stop: CancellationToken) -> Result<(), RunError> {
        let Self { api, listening, metrics, footprints, definitions, namespaces } = self;
        let service = Arc::new(Service { api: api.clone(), metrics: metrics.clone(), stop: stop.clone() });
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(Collector::new(api.clone()).run(footprints, stop.clone()));
        tasks.spawn(definitions.run(stop.clone()));
        tasks.spawn(namespaces.run(stop.clone()));
        tasks.spawn(listening.serve(service, metrics, stop.clone()));
        api.set_ready(true);
        let failure = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            why = api.store.failed() => Some(RunError::Storage(why)),
            _ = tasks.join_next() => Some(RunError::Broken),
        };
        api.set_ready(false);
        stop.cancel();
        while tasks.join_next().await.is_some() {}
        api.store.close().await;
        failure.map_or(Ok(()), Err)
    }
}

impl From<IdentityError> for StartError {
    fn from(error: IdentityError) -> Self {
        Self::Identity(IdentitySentence(chain(&error)))
    }
}

impl From<ListenError> for StartError {
    fn from(error: ListenError) -> Self {
        Self::Listen(ListenSentence(chain(&error)))
    }
}

impl From<ApiError> for StartError {
    fn from(error: ApiError) -> Self {
        Self::Bootstrap(error.message)
    }
}

/// An error and its causes as one sentence.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
