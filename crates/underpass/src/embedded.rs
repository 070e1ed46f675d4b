//! The embedded API server as `up` and `apiserver` run it: the data directory taken, the server serving, the kubeconfig in place.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use kube::Client;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use underpass_apiserver::{Config, RunError, Server, kubeconfig};
use underpass_operator::Metrics;

use crate::args::TextOrJson;
use crate::data_dir::DataDir;
use crate::server;
use crate::settings::{Place, ServerSettings, kubeconfig_in};

/// A server that serves. Its kubeconfig is removed when this value goes, the data directory is let go last.
pub(crate) struct Embedded {
    client: Client,
    api: String,
    serving: JoinHandle<Result<(), RunError>>,
    stop: CancellationToken,
    kubeconfig: WrittenKubeconfig,
    controllers_metrics: Metrics,
    data_dir: DataDir,
}

/// A kubeconfig file of ours: removed at the end, unless somebody else has written there since.
struct WrittenKubeconfig {
    path: PathBuf,
    text: String,
}

impl Embedded {
    pub(crate) async fn start(settings: &ServerSettings) -> anyhow::Result<Self> {
        let data_dir = match &settings.place {
            Place::Folder(folder) => DataDir::take(folder)?,
            Place::Temporary => DataDir::temporary()?,
        };
        if !settings.listen.ip().is_loopback() {
            warn!(listen = %settings.listen, "the API server listens beyond this machine: whoever has the kubeconfig can use it from there");
        }
        let server = Server::bind(config(settings, &data_dir)?).await?;
        let (address, text) = (server.address(), server.kubeconfig());
        let controllers_metrics = server.register_metrics(Metrics::register);
        let stop = CancellationToken::new();
        let serving = tokio::spawn(server.run(stop.clone()));
        let client = server::from_text(&text).await.context("the API server's own kubeconfig cannot be used")?;
        client.apiserver_version().await.context("the API server does not answer")?;
        let path = settings.kubeconfig.clone().unwrap_or_else(|| kubeconfig_in(data_dir.path()));
        let kubeconfig = WrittenKubeconfig::write(path, text)?;
        Ok(Self { client, api: format!("https://{address}"), serving, stop, kubeconfig, controllers_metrics, data_dir })
    }

    /// The data directory.
    pub(crate) fn folder(&self) -> &Path {
        self.data_dir.path()
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Where controllers in this process count, so that `/metrics` shows it.
    pub(crate) fn controllers_metrics(&self) -> Metrics {
        self.controllers_metrics.clone()
    }

    /// What stdout is told when all is ready: one line of JSON, or a block for people.
    pub(crate) fn announcement(&self, format: TextOrJson) -> String {
        let (api, kubeconfig, pid) = (&self.api, self.kubeconfig.path.display(), std::process::id());
        match format {
            TextOrJson::Json => {
                format!("{}\n", json!({ "api": api, "kubeconfig": self.kubeconfig.path, "pid": pid }))
            }
            TextOrJson::Text => format!(
                "underpass is ready\n  api         {api}\n  kubeconfig  {kubeconfig}\n  pid         {pid}\n\n  \
                 export KUBECONFIG={kubeconfig}\n  kubectl get underpass -A\n"
            ),
        }
    }

    /// Resolves only when the server ends without having been asked to.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        match (&mut self.serving).await {
            Ok(Ok(())) => anyhow::anyhow!("the API server ended by itself"),
            Ok(Err(error)) => anyhow::Error::new(error),
            Err(error) => {
                anyhow::Error::new(error).context("the API server broke down, which is a defect of underpass")
            }
        }
    }

    /// Takes the kubeconfig away, so that nobody new comes, and lets the server finish what it is answering.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        drop(self.kubeconfig);
        self.stop.cancel();
        match self.serving.await {
            Ok(result) => Ok(result?),
            Err(error) => bail!("the API server broke down: {error}"),
        }
    }
}

impl WrittenKubeconfig {
    fn write(path: PathBuf, text: String) -> anyhow::Result<Self> {
        kubeconfig::write(&path, &text)?;
        Ok(Self { path, text })
    }
}

impl Drop for WrittenKubeconfig {
    fn drop(&mut self) {
        if let Err(error) = kubeconfig::remove(&self.path, &self.text) {
            warn!(path = %self.path.display(), error = &error as &dyn std::error::Error, "the kubeconfig stays behind");
        }
    }
}

fn config(settings: &ServerSettings, data_dir: &DataDir) -> anyhow::Result<Config> {
    let crds = underpass_resources::crds().iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    Ok(Config {
        data_dir: settings.durable.then(|| data_dir.path().to_owned()),
        listen: settings.listen,
        crds,
        keep_events: settings.keep_events,
    })
}
