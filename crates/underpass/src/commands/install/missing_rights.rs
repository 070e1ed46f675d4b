//! What to ask an administrator for, when the cluster forbids an installation.

use std::collections::BTreeSet;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{ApiResource, PostParams};
use underpass_deploy::{Settings, objects};
use underpass_operator::Answer;

use super::cluster::{Cluster, namespace, resource};

/// The same error, unless it is a refusal that a list of rights explains better.
pub(crate) async fn name(
    cluster: &Cluster,
    settings: &Settings,
    asks_for_port: bool,
    error: anyhow::Error,
) -> anyhow::Error {
    if !error.chain().any(is_forbidden) {
        return error;
    }
    match refuse(cluster, settings, asks_for_port).await {
        Err(Refused::Missing(missing)) => Refused::Missing(missing).into(),
        _ => error,
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error(
        "this user may not install: forbidden are\n  {}\nAsk for these rights, or let an administrator of the cluster install",
        .0.join("\n  ")
    )]
    Missing(Vec<String>),
    #[error("cannot ask what this user may do")]
    Unanswered(#[source] Answer),
}

/// Asks for every right that an installation needs, where nothing else tells before it is too late.
pub(crate) async fn refuse(cluster: &Cluster, settings: &Settings, asks_for_port: bool) -> Result<(), Refused> {
    let missing = missing(cluster, settings, asks_for_port).await.map_err(|error| Refused::Unanswered(error.into()))?;
    if missing.is_empty() { Ok(()) } else { Err(Refused::Missing(missing)) }
}

fn is_forbidden(cause: &(dyn std::error::Error + 'static)) -> bool {
    let status = cause.downcast_ref::<Answer>().and_then(Answer::status);
    status.is_some_and(|status| status.code == 403)
}

/// Per kind what is lacking of what an installation does.
async fn missing(cluster: &Cluster, settings: &Settings, asks_for_port: bool) -> Result<Vec<String>, kube::Error> {
    let mut lines = Vec::new();
    for (resource, place, verbs) in needed(settings, asks_for_port) {
        let forbidden = forbidden(cluster, verbs, &resource, place.as_deref()).await?;
        if !forbidden.is_empty() {
            let place = place.map(|namespace| format!(" in {namespace}")).unwrap_or_default();
            lines.push(format!("{} {}{place}", forbidden.join(", "), resource.plural));
        }
    }
    Ok(lines)
}

/// It looks for earlier installations everywhere, writes in its place, asks where the API server listens, and looks whether its pods work.
fn needed(settings: &Settings, asks_for_port: bool) -> Vec<(ApiResource, Option<String>, &'static [&'static str])> {
    let (all, mut seen, mut needed) = (objects(settings), BTreeSet::new(), Vec::new());
    for object in all.iter().filter(|object| seen.insert(object["kind"].to_string())) {
        needed.push((resource(object), None, &["list"][..]));
        needed.push((resource(object), namespace(object).map(str::to_owned), &["get", "create", "patch"]));
    }
    if asks_for_port {
        needed.push((ApiResource::erase::<EndpointSlice>(&()), Some("default".to_owned()), &["list"]));
    }
    needed.push((ApiResource::erase::<Pod>(&()), Some(settings.namespace.clone()), &["list"]));
    needed.push((ApiResource::erase::<Lease>(&()), Some(settings.namespace.clone()), &["get"]));
    needed
}

async fn forbidden<'a>(
    cluster: &Cluster,
    verbs: &[&'a str],
    resource: &ApiResource,
    place: Option<&str>,
) -> Result<Vec<&'a str>, kube::Error> {
    let mut all = Vec::new();
    for verb in verbs {
        if !may(cluster, verb, resource, place).await? {
            all.push(*verb);
        }
    }
    Ok(all)
}

async fn may(cluster: &Cluster, verb: &str, resource: &ApiResource, place: Option<&str>) -> Result<bool, kube::Error> {
    let attributes = ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(resource.group.clone()),
        resource: Some(resource.plural.clone()),
        namespace: place.map(str::to_owned),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    let answer = Api::all(cluster.client.clone()).create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
