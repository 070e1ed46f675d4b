//! Whether an API server can be worked with, and if not, in one sentence what to do.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client};
use underpass_resources::KINDS;

use crate::answer::Answer;
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

/// Asks for one object of every kind: it proves the connection, the credentials and the CRDs at once.
pub async fn check(client: &Client) -> Result<(), Unreachable> {
    let mut missing = Vec::new();
    for kind in KINDS {
        match kinds::api(client, kind, None).list(&ListParams::default().limit(1)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => {
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
