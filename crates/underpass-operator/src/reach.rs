//! Whether an API server can be worked with, and if not, in one sentence what to do.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::time::timeout;
use tracing::{info, warn};
use underpass_resources::KINDS;

use crate::answer::Answer;
use crate::health::Health;
use crate::kinds;

#[derive(Debug, thiserror::Error)]
pub enum Unreachable {
    #[error("the API server cannot be reached ({why}): start it, or give the kubeconfig of one that runs")]
    NoConnection { why: String },
    #[error(
        "the API server is another one than the kubeconfig was made for (its certificate is signed by an unknown authority): use the kubeconfig of the server that runs now"
    )]
    ForeignServer,
    #[error(
        "the API server does not accept the credentials of the kubeconfig (401): they are expired or made for another server; use the kubeconfig of the server that runs now"
    )]
    Credentials,
    #[error("the user of the kubeconfig may not read {what} (403): grant it, or use another kubeconfig")]
    Forbidden { what: String },
    #[error(
        "the API server does not know {0}: install the CRDs first (underpass crds | kubectl apply --server-side -f -)"
    )]
    MissingKinds(String),
    #[error("the API server answered in an unexpected way")]
    Other(#[source] Answer),
}

/// What a watch asks for. Of several API servers one can vanish without a word, and of a watch that hears nothing nobody knows that it is one
/// of a server that is gone: the server ends it after this time, or else we do, a few seconds later.
pub fn watch() -> watcher::Config {
    const ENDS_AFTER_SECONDS: u32 = 60;
    watcher::Config::default().timeout(ENDS_AFTER_SECONDS)
}

/// Between two looks at a server that cannot be worked with yet.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// A server that takes a connection and says nothing has to be told of while it does: whoever says nothing for long is started anew.
const LONGEST_LOOK: Duration = Duration::from_secs(10);

/// Until the server can be worked with: on a cluster, definitions and rights may come a moment after the process that needs them. Says whether
/// it is one.
pub async fn usable(client: &Client, health: &Health) -> bool {
    let mut told = None;
    let is_cluster = loop {
        let unreachable = match timeout(LONGEST_LOOK, look(client)).await {
            Ok(Ok(is_cluster)) => break is_cluster,
            Ok(Err(unreachable)) => unreachable,
            Err(_) => Unreachable::NoConnection { why: format!("it said nothing for {} s", LONGEST_LOOK.as_secs()) },
        };
        let why = chain(&unreachable);
        health.troubled(&why);
        if told.as_ref() != Some(&why) {
            warn!("cannot start: {why}; trying again every {} s", LOOK_AGAIN.as_secs());
            told = Some(why);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    };
    if told.is_some() {
        info!("the API server can be worked with now");
    }
    is_cluster
}

async fn look(client: &Client) -> Result<bool, Unreachable> {
    check(client).await?;
    is_cluster(client).await
}

/// An error and its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Asks for one object of every kind: it proves the connection, the credentials and the CRDs at once.
pub async fn check(client: &Client) -> Result<(), Unreachable> {
    let mut missing = Vec::new();
    for kind in KINDS {
        match kinds::api(client, kind, None).list(&ListParams::default().limit(1)).await {
            Ok(_) => {}
            Err(error) if is_not_served(&error) => {
                missing.push(kind.crd_name());
            }
            Err(error) => return Err(explain(error, kind.plural)),
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(Unreachable::MissingKinds(missing.join(", "))) }
}

/// What tells this server from every other, for as long as its objects live: the uid of a namespace that cannot be deleted.
pub async fn identity(client: &Client) -> Result<String, Unreachable> {
    const NAMESPACE: &str = "kube-system";
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = namespaces.get(NAMESPACE).await.map_err(|error| explain(error, "namespaces"))?;
    Ok(namespace.metadata.uid.unwrap_or_default())
}

/// Whether the server does not have the kind whose objects were asked for. Kubernetes says so in plain text when it has no kind of the
/// group, which kube does not take for the answer "not found".
pub fn is_not_served(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether the server is that of a cluster, with all that pods take, and not one for our kinds alone.
async fn is_cluster(client: &Client) -> Result<bool, Unreachable> {
    let groups = client.list_api_groups().await.map_err(|error| explain(error, "API groups"))?;
    Ok(groups.groups.iter().any(|group| group.name == "rbac.authorization.k8s.io"))
}

/// What a failed request says about the server; `what` was asked for.
pub fn explain(error: kube::Error, what: &str) -> Unreachable {
    let answer = Answer::from(error);
    match answer.status().map(|status| status.code) {
        Some(401) => Unreachable::Credentials,
        Some(403) => Unreachable::Forbidden { what: what.to_owned() },
        Some(_) => Unreachable::Other(answer),
        // The layers between rustls and kube box their causes, so that the text is all that is left to recognise one by.
        None if answer.to_string().contains("invalid peer certificate") => Unreachable::ForeignServer,
        None if answer.is_connection() => Unreachable::NoConnection { why: answer.to_string() },
        None => Unreachable::Other(answer),
    }
}
