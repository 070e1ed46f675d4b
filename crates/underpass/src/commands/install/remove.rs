//! The way out: our objects while the operator can still clean up behind them, then the operator, then the definitions, at last the
//! namespace; and a look at whether anything is left.

use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal};
use std::time::Duration;

use anyhow::{Context, bail};
use kube::api::{DynamicObject, ListParams};
use kube::core::PartialObjectMeta;
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use underpass_deploy::{INSTALLED, MANAGED_BY, OPERATOR};
use underpass_operator::{Answer, is_not_served, kinds, teardown};
use underpass_resources::KINDS;

use crate::args::Uninstall;
use crate::exit::Ended;
use crate::output::tell;
use crate::way_out;

use super::cluster::{Cluster, title};

/// Things that hold other things: never taken away because a newer version does not name them.
pub(crate) fn is_prunable(object: &Value) -> bool {
    !matches!(object["kind"].as_str(), Some("Namespace" | "CustomResourceDefinition"))
}

pub(crate) async fn run(cluster: &Cluster, args: &Uninstall) -> anyhow::Result<Ended> {
    let installed = cluster.installed().await?;
    if installed.is_empty() {
        tell(&format!("nothing of underpass is installed on {}", cluster.url));
        return Ok(Ended::Well);
    }
    refuse_helm(&installed)?;
    let going: Vec<Value> =
        installed.into_iter().filter(|object| !(args.keep_objects && is_definition(object))).collect();
    let objects = if args.keep_objects { BTreeMap::new() } else { count_objects(cluster).await? };
    tell(&summary(cluster, &going, &objects));
    if !args.yes && !confirmed()? {
        tell("nothing was changed");
        return Ok(Ended::Badly);
    }
    let patience = Duration::from_secs(args.timeout);
    if !args.keep_objects {
        remove_objects(cluster, patience).await?;
    }
    let removal = remove(cluster, &going);
    tokio::time::timeout(patience, removal).await.context("it takes too long: run `underpass uninstall` again")??;
    prove(cluster, args.keep_objects).await
}

/// Helm would bring back, or miss, what somebody else removes.
fn refuse_helm(installed: &[Value]) -> anyhow::Result<()> {
    let by_helm =
        |object: &&Value| object["kind"] == "Deployment" && object["metadata"]["labels"][MANAGED_BY] == "Helm";
    let Some(deployment) = installed.iter().find(by_helm) else { return Ok(()) };
    let namespace = deployment["metadata"]["namespace"].as_str().unwrap_or_default();
    bail!(
        "the operator in {namespace} was installed by Helm: delete your objects (kubectl delete underpass --all -A), run `helm uninstall \
         underpass -n {namespace}`, and then this again for the definitions"
    )
}

async fn count_objects(cluster: &Cluster) -> anyhow::Result<BTreeMap<&'static str, usize>> {
    let mut counts = BTreeMap::new();
    for kind in KINDS {
        match kinds::api(&cluster.client, kind, None).list_metadata(&ListParams::default()).await {
            Ok(list) if list.items.is_empty() => {}
            Ok(list) => drop(counts.insert(kind.kind, list.items.len())),
            Err(error) if is_not_served(&error) => {}
            Err(error) => {
                return Err(anyhow::Error::new(Answer::from(error)).context(format!("cannot list {}", kind.plural)));
            }
        }
    }
    Ok(counts)
}

fn summary(cluster: &Cluster, going: &[Value], objects: &BTreeMap<&'static str, usize>) -> String {
    let mut lines = vec![format!("This removes from {}:", cluster.url)];
    lines.extend(objects.iter().map(|(kind, count)| format!("  {count} {kind}, and what was built for it")));
    lines.extend(going.iter().map(|object| format!("  {}", title(object))));
    lines.join("\n")
}

fn confirmed() -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("nobody can be asked whether to go on: say --yes");
    }
    tell("Type yes to go on:");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}

async fn remove_objects(cluster: &Cluster, patience: Duration) -> anyhow::Result<()> {
    let left = teardown(&cluster.client, patience, way_out::report).await?;
    if left.is_empty() {
        return Ok(());
    }
    bail!(
        "after {} seconds these objects are still there; the operator stays until they are gone:\n  {}",
        patience.as_secs(),
        way_out::lines(&left).join("\n  ")
    )
}

async fn remove(cluster: &Cluster, going: &[Value]) -> anyhow::Result<()> {
    for object in going.iter().rev().filter(|object| object["kind"] != "Namespace") {
        delete(cluster, object).await?;
    }
    for namespace in going.iter().filter(|object| object["kind"] == "Namespace") {
        let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
        delete(cluster, &lease(name)).await?;
        let others = strangers(cluster, name).await?;
        if others.is_empty() {
            delete(cluster, namespace).await?;
        } else {
            tell(&format!("keeping   Namespace {name}, in which there is more than ours: {}", others.join(", ")));
            cluster.disown(namespace).await?;
        }
    }
    Ok(())
}

async fn delete(cluster: &Cluster, object: &Value) -> anyhow::Result<()> {
    tell(&format!("deleting  {}", title(object)));
    cluster.delete(object).await
}

/// The operator made it, and its rights ended before it could take it away.
fn lease(namespace: &str) -> Value {
    let metadata = json!({ "name": OPERATOR, "namespace": namespace });
    json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata })
}

/// What would go with the namespace though we did not bring it, whatever its kind.
async fn strangers(cluster: &Cluster, namespace: &str) -> anyhow::Result<Vec<String>> {
    let discovery = Discovery::new(cluster.client.clone()).run().await.map_err(Answer::from);
    let discovery = discovery.context("cannot ask which kinds the cluster has")?;
    let kinds = discovery.groups().flat_map(kube::discovery::ApiGroup::recommended_resources);
    let mut all = Vec::new();
    for (resource, able) in kinds {
        if able.scope != Scope::Namespaced || !able.supports_operation(verbs::LIST) {
            continue;
        }
        let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), namespace, &resource);
        let list = api.list_metadata(&ListParams::default()).await.map_err(Answer::from);
        let list = list.with_context(|| format!("cannot look for {} in {namespace}", resource.plural))?;
        let others = list.items.iter().filter(|object| !is_the_clusters(&resource.kind, object) && !is_ours(object));
        all.extend(others.map(|object| format!("{} {}", resource.kind, object.name_any())));
    }
    Ok(all)
}

fn is_ours(object: &PartialObjectMeta<DynamicObject>) -> bool {
    let (label, value) = INSTALLED;
    object.labels().get(label).is_some_and(|found| found == value)
}

/// What a cluster makes by itself in every namespace, or of other objects there. The accounts `builder` and `deployer` are OpenShift's.
fn is_the_clusters(kind: &str, object: &PartialObjectMeta<DynamicObject>) -> bool {
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
        _ => !object.owner_references().is_empty(),
    }
}

fn is_definition(object: &Value) -> bool {
    object["kind"] == "CustomResourceDefinition"
}

async fn prove(cluster: &Cluster, keep_objects: bool) -> anyhow::Result<Ended> {
    let left: Vec<String> = cluster
        .installed()
        .await?
        .iter()
        .filter(|object| !(keep_objects && is_definition(object)))
        .map(title)
        .collect();
    if !left.is_empty() {
        bail!("these are still there: {}; run `underpass uninstall` again", left.join(", "));
    }
    tell(&if keep_objects {
        format!("the operator is gone from {}; your objects and their definitions are kept", cluster.url)
    } else {
        format!("nothing of underpass is left on {}", cluster.url)
    });
    Ok(Ended::Well)
}
