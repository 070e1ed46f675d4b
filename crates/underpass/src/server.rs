//! The connection to an API server that runs already.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// The server that a kubeconfig file names. Nothing is asked yet.
pub(crate) async fn from_file(path: &Path) -> anyhow::Result<Client> {
    if !path.exists() {
        bail!("there is no kubeconfig at {}: start `underpass up`, or name another with --kubeconfig", path.display());
    }
    let kubeconfig =
        Kubeconfig::read_from(path).map_err(|error| anyhow!("{}: {}", cannot_use(path), first_line(&error)))?;
    client(kubeconfig).await.with_context(|| cannot_use(path))
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

/// Without the picture that the YAML parser draws below it.
fn first_line(error: &impl ToString) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
