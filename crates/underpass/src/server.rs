//! The connection to an API server that runs already.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

/// The server that a kubeconfig names: one file, or several with colons between them, as KUBECONFIG may. Nothing is asked yet.
pub(crate) async fn from_file(path: &Path) -> anyhow::Result<Client> {
    let files: Vec<PathBuf> = std::env::split_paths(path).filter(|file| file.exists()).collect();
    if files.is_empty() {
        bail!("there is no kubeconfig at {}: start `underpass up`, or name another with --kubeconfig", path.display());
    }
    let mut all = Kubeconfig::default();
    for file in &files {
        all = Kubeconfig::read_from(file)
            .and_then(|one| all.merge(one))
            .map_err(|error| anyhow!("{}: {}", cannot_use(file), why(&error)))?;
    }
    client(all).await.with_context(|| cannot_use(path))
}

/// The server that the text of a kubeconfig names.
pub(crate) async fn from_text(kubeconfig: &str) -> anyhow::Result<Client> {
    client(Kubeconfig::from_yaml(kubeconfig)?).await
}

async fn client(kubeconfig: Kubeconfig) -> anyhow::Result<Client> {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
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
