//! Objects from files, brought to a server: definitions and namespaces first, so that what needs them finds them.

use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::core::discovery::Scope;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, discovery};
use tokio_util::sync::CancellationToken;
use underpass_operator::Answer;

use super::Document;

/// Owns the fields that files set. Not the controllers' name: what a file no longer says is taken back by the next apply of that file.
const FIELD_MANAGER: &str = "underpass-apply";

/// A server needs milliseconds for it; a definition whose names are taken waits for ever.
const ESTABLISHING: Duration = Duration::from_secs(10);

/// Applies all documents, in an order in which each can succeed, and calls `applied` after each. After `stop` no other is begun.
pub(crate) async fn apply_all(
    client: &Client,
    mut documents: Vec<Document>,
    stop: &CancellationToken,
    mut applied: impl FnMut(&Document),
) -> anyhow::Result<()> {
    order(&mut documents);
    for document in documents.iter().take_while(|_| !stop.is_cancelled()) {
        apply(client, document).await.with_context(|| format!("{document} was not applied"))?;
        applied(document);
    }
    Ok(())
}

/// Definitions, namespaces, everything else; otherwise as written.
pub(crate) fn order(documents: &mut [Document]) {
    documents.sort_by_key(|document| match document.text("/kind") {
        "CustomResourceDefinition" => 0,
        "Namespace" => 1,
        _ => 2,
    });
}

async fn apply(client: &Client, document: &Document) -> anyhow::Result<()> {
    let api = api(client, document).await?;
    // The file is the user's word: where somebody else set the same field, it wins. A field that the kind does not know is refused.
    let params = PatchParams::apply(FIELD_MANAGER).force().validation_strict();
    api.patch(document.text("/metadata/name"), &params, &Patch::Apply(&document.object)).await.map_err(Answer::from)?;
    if document.text("/kind") == "CustomResourceDefinition" {
        established(client, document.text("/metadata/name")).await?;
    }
    Ok(())
}

async fn api(client: &Client, document: &Document) -> anyhow::Result<Api<DynamicObject>> {
    let (group, version) = document.text("/apiVersion").rsplit_once('/').unwrap_or(("", document.text("/apiVersion")));
    let names = GroupVersionKind::gvk(group, version, document.text("/kind"));
    let (resource, capabilities) = match discovery::pinned_kind(client, &names).await {
        Ok(found) => found,
        Err(error) if is_unknown(&error) => {
            let (kind, version) = (names.kind, document.text("/apiVersion"));
            bail!("the server has no kind {kind} in {version}; `kubectl api-resources` shows those that it has")
        }
        Err(error) => return Err(Answer::from(error)).context("the server does not tell its kinds"),
    };
    Ok(match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => match document.text("/metadata/namespace") {
            "" => Api::namespaced_with(client.clone(), "default", &resource),
            namespace => Api::namespaced_with(client.clone(), namespace, &resource),
        },
    })
}

fn is_unknown(error: &kube::Error) -> bool {
    match error {
        kube::Error::Discovery(_) => true,
        kube::Error::Api(status) => status.is_not_found(),
        _ => false,
    }
}

async fn established(client: &Client, name: &str) -> anyhow::Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let established = await_condition(definitions, name, conditions::is_crd_established());
    match tokio::time::timeout(ESTABLISHING, established).await {
        Ok(seen) => seen.map(|_| ()).with_context(|| format!("cannot see {name} become usable")),
        Err(_) => bail!("the server does not serve it; `kubectl describe crd {name}` shows why"),
    }
}
