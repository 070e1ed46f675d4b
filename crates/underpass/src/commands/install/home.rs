//! The namespace of the operator. One that somebody else made is used as it is, and stays: what else runs there has rules of its own.

use std::collections::BTreeSet;

use anyhow::Context;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::PartialObjectMeta;
use kube::discovery::{ApiGroup, Discovery, Scope, verbs};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use underpass_deploy::{INSTALLED, MADE_BY, OPERATOR};
use underpass_operator::Answer;
use underpass_resources::{HOSTED_CLUSTER_GROUP, UNDERPASS_GROUP};

use crate::output::tell;

use super::cluster::{Cluster, name, namespace};

/// What becomes of the namespaces when the operator goes.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    pub(crate) go: Vec<Value>,
    pub(crate) stay: Vec<Stays>,
}

#[derive(Debug)]
pub(crate) struct Stays {
    pub(crate) name: String,
    pub(crate) why: String,
    /// It has labels of ours.
    pub(crate) marked: Option<Value>,
}

impl std::fmt::Display for Stays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Namespace {}, {}", self.name, self.why)
    }
}

/// Of each namespace that is ours or in which something of ours is.
pub(crate) async fn fates(cluster: &Cluster, going: &[Value], with_objects: bool) -> anyhow::Result<Fates> {
    let marked: Vec<&Value> = going.iter().filter(|object| object["kind"] == "Namespace").collect();
    let around = going.iter().filter_map(namespace).map(str::to_owned);
    let names: BTreeSet<String> = around.chain(marked.iter().map(|object| name(object))).collect();
    let mut fates = Fates::default();
    for name in names {
        let marked = marked.iter().find(|object| super::cluster::name(object) == name).map(|object| (*object).clone());
        match (why_it_stays(cluster, &name, marked.as_ref(), with_objects).await?, marked) {
            (None, Some(namespace)) => fates.go.push(namespace),
            (why, marked) => fates.stay.push(Stays { name, why: why.unwrap_or_default(), marked }),
        }
    }
    Ok(fates)
}

async fn why_it_stays(
    cluster: &Cluster,
    name: &str,
    marked: Option<&Value>,
    with_objects: bool,
) -> anyhow::Result<Option<String>> {
    let (annotation, value) = MADE_BY;
    if marked.is_none_or(|object| object["metadata"]["annotations"][annotation] != value) {
        return Ok(Some("which `underpass install` did not make".to_owned()));
    }
    let others = strangers(cluster, name, with_objects).await?;
    Ok((!others.is_empty()).then(|| format!("in which there is more than ours: {}", others.join(", "))))
}

/// Takes a namespace of somebody else out of what is applied, and marks one that is not there yet as made here.
pub(crate) async fn settle(cluster: &Cluster, all: &mut Vec<Value>) -> anyhow::Result<()> {
    let Some(at) = all.iter().position(|object| object["kind"] == "Namespace") else { return Ok(()) };
    let found = cluster.get(&all[at]).await?;
    if found.as_ref().is_some_and(|found| !is_marked_installed(found)) {
        let namespace = all.remove(at);
        tell(&format!("leaving   Namespace {} as it is: it was there before underpass", name(&namespace)));
    } else if found.is_none_or(|found| is_made_here(found.annotations())) {
        let (annotation, value) = MADE_BY;
        all[at]["metadata"]["annotations"] = json!({ annotation: value });
    }
    Ok(())
}

fn is_marked_installed(object: &DynamicObject) -> bool {
    let (label, value) = INSTALLED;
    object.labels().get(label).is_some_and(|found| found == value)
}

fn is_made_here(annotations: &std::collections::BTreeMap<String, String>) -> bool {
    let (annotation, value) = MADE_BY;
    annotations.get(annotation).is_some_and(|found| found == value)
}

/// What would go with the namespace though we did not bring it, whatever its kind.
async fn strangers(cluster: &Cluster, namespace: &str, with_objects: bool) -> anyhow::Result<Vec<String>> {
    let (kinds, mut all) = kinds(cluster).await?;
    for resource in &kinds {
        if with_objects && [UNDERPASS_GROUP, HOSTED_CLUSTER_GROUP].contains(&resource.group.as_str()) {
            continue;
        }
        let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), namespace, resource);
        let list = api.list_metadata(&ListParams::default()).await.map_err(Answer::from);
        let list = list.with_context(|| format!("cannot look for {} in {namespace}", resource.plural))?;
        let is_known = |object: &&PartialObjectMeta<DynamicObject>| {
            is_the_clusters(&resource.kind, object, &kinds) || is_ours(&resource.kind, object)
        };
        let others = list.items.iter().filter(|object| !is_known(object));
        all.extend(others.map(|object| format!("{} {}", resource.kind, object.name_any())));
    }
    Ok(all)
}

/// Everything that can be in a namespace and be listed; and of the groups that do not answer, because their server is down, what they are called.
async fn kinds(cluster: &Cluster) -> anyhow::Result<(Vec<ApiResource>, Vec<String>)> {
    let (mut kinds, mut silent) = (Vec::new(), Vec::new());
    for group in cluster.groups().await?.into_iter().chain([ApiGroup::CORE_GROUP.to_owned()]) {
        match Discovery::new(cluster.client.clone()).filter(&[&group]).run().await {
            Ok(found) => {
                let all = found.groups().flat_map(ApiGroup::recommended_resources);
                let listed =
                    all.filter(|(_, able)| able.scope == Scope::Namespaced && able.supports_operation(verbs::LIST));
                kinds.extend(listed.map(|(resource, _)| resource));
            }
            Err(_) => silent.push(format!("what there may be of {group}, which does not answer")),
        }
    }
    Ok((kinds, silent))
}

fn is_ours(kind: &str, object: &PartialObjectMeta<DynamicObject>) -> bool {
    let (label, value) = INSTALLED;
    (kind == "Lease" && object.name_any() == OPERATOR) || object.labels().get(label).is_some_and(|found| found == value)
}

/// What a cluster makes by itself in every namespace, or of other objects there. The accounts `builder` and `deployer` are OpenShift's.
fn is_the_clusters(kind: &str, object: &PartialObjectMeta<DynamicObject>, namespaced: &[ApiResource]) -> bool {
    // An owner that is in no namespace would not go along.
    let is_here = |owner: &OwnerReference| {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        namespaced.iter().any(|kind| kind.kind == owner.kind && kind.group == group)
    };
    let of_an_account = |name: &str| {
        let parts = name.split_once("-token-").or_else(|| name.split_once("-dockercfg-"));
        parts.is_some_and(|(account, _)| ["builder", "default", "deployer"].contains(&account))
    };
    match (kind, object.name_any().as_str()) {
        ("Event" | "PodMetrics", _) => true,
        ("ServiceAccount", name) => ["builder", "default", "deployer"].contains(&name),
        ("ConfigMap", name) => ["kube-root-ca.crt", "openshift-service-ca.crt"].contains(&name),
        ("Secret", name) => of_an_account(name),
        ("RoleBinding", name) => name.starts_with("system:"),
        _ => object.owner_references().iter().any(is_here),
    }
}
