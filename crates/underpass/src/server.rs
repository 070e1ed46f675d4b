//! The connection to an API server that runs already.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

const SILENCE: Duration = Duration::from_secs(75);

/// A server as a kubeconfig describes it.
pub(crate) struct Server {
    pub(crate) client: Client,
    pub(crate) url: String,
    /// All that the kubeconfig says.
    pub(crate) text: String,
}

/// The server that a kubeconfig names: one file, or several with colons between them, as KUBECONFIG may. Nothing is asked yet.
pub(crate) async fn from_file(path: &Path) -> anyhow::Result<Server> {
    if files(path).is_empty() {
        bail!("there is no kubeconfig at {}: start `underpass up`, or name another with --kubeconfig", path.display());
    }
    in_context(path, None).await
}

/// The cluster that a kubeconfig names, in another context than its current one if that is said.
pub(crate) async fn cluster_from_file(path: &Path, context: Option<String>) -> anyhow::Result<Server> {
    if files(path).is_empty() {
        bail!("there is no kubeconfig at {}: say with --kubeconfig which cluster is meant", path.display());
    }
    in_context(path, context).await
}

/// The cluster that a kubeconfig names, or else the one in which this is a pod.
pub(crate) async fn from_file_or_pod(said: Option<PathBuf>) -> anyhow::Result<Client> {
    let variable = std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty());
    if let Some(path) = said.or_else(|| variable.map(PathBuf::from)) {
        return Ok(from_file(&path).await?.client);
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
        bail!("this is no pod of a cluster, and no kubeconfig is given: name one with --kubeconfig or KUBECONFIG");
    }
    let config = Config::incluster().context("the pod's service account cannot be used: is its token mounted?")?;
    client(config)
}

fn files(path: &Path) -> Vec<PathBuf> {
    std::env::split_paths(path).filter(|file| file.exists()).collect()
}

async fn in_context(path: &Path, context: Option<String>) -> anyhow::Result<Server> {
    let mut all = Kubeconfig::default();
    let mut text = String::new();
    for file in &files(path) {
        all = Kubeconfig::read_from(file)
            .and_then(|one| all.merge(one))
            .map_err(|error| anyhow!("{}: {}", cannot_use(file), why(&error)))?;
        text.push_str(&std::fs::read_to_string(file).with_context(|| cannot_use(file))?);
    }
    server(all, text, context).await.with_context(|| cannot_use(path))
}

/// The server that the text of a kubeconfig names.
pub(crate) async fn from_text(kubeconfig: &str) -> anyhow::Result<Client> {
    Ok(server(Kubeconfig::from_yaml(kubeconfig)?, kubeconfig.to_owned(), None).await?.client)
}

async fn server(kubeconfig: Kubeconfig, text: String, context: Option<String>) -> anyhow::Result<Server> {
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    Ok(Server { client: client(config)?, url, text })
}

/// No answer takes as long as this, and of a watch the server ends every minute: one that says nothing for longer has vanished, and another may have
/// its place.
fn client(mut config: Config) -> anyhow::Result<Client> {
    config.read_timeout = Some(SILENCE);
    // Connections wait for their next request as long as they want.
    config.reset_reader_on_write = true;
    Ok(Client::try_from(config)?)
}

fn cannot_use(path: &Path) -> String {
    format!("the kubeconfig {} cannot be used; repair it, or name another with --kubeconfig", path.display())
}

/// Without the path, which is said already, and the picture that the YAML parser draws below its words.
fn why(error: &KubeconfigError) -> String {
    let text = match error {
        KubeconfigError::ReadConfig(error, _) => error.to_string(),
        error => error.to_string(),
    };
    text.lines().next().unwrap_or_default().to_owned()
}
