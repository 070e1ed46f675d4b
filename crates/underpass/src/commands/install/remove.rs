//! The way out: our objects while the operator can still clean up behind them, then the operator, then the definitions, at last the
//! namespace; and a look at whether anything is left.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, IsTerminal};
use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::coordination::v1::LeaseSpec;
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams};
use kube::core::PartialObjectMeta;
use serde_json::Value;
use tokio::time::{sleep, timeout};
use underpass_deploy::{COMPONENT, MANAGED_BY, OPERATOR, PROXY};
use underpass_operator::{Answer, is_not_served, is_our_finalizer, kinds, leadership, teardown};
use underpass_plan::OWNER_LABEL;
use underpass_resources::KINDS;

use crate::args::Uninstall;
use crate::commands::controllers;
use crate::exit::Ended;
use crate::output::tell;
use crate::signals::Signals;
use crate::way_out;

use super::cluster::{Cluster, resource, title};
use super::home::{self, Fates};

/// Whoever holds one of these removes what was built for objects.
const LEASES: [&str; 2] = [OPERATOR, controllers::LEASE];
const LOOK: Duration = Duration::from_millis(500);

/// Things that hold other things: never taken away because a newer version does not name them.
pub(crate) fn is_prunable(object: &Value) -> bool {
    !matches!(object["kind"].as_str(), Some("Namespace" | "CustomResourceDefinition"))
}

pub(crate) async fn run(cluster: &Cluster, args: &Uninstall) -> anyhow::Result<Ended> {
    let installed = found(cluster).await?;
    if installed.is_empty() {
        if !args.keep_objects {
            refuse_what_was_built(cluster, Duration::from_secs(args.timeout)).await?;
        }
        tell(&format!("nothing of underpass is installed on {}", cluster.url));
        return Ok(Ended::Well);
    }
    refuse_helm(&installed)?;
    let going: Vec<Value> =
        installed.into_iter().filter(|object| !(args.keep_objects && is_for_objects(object))).collect();
    let objects = if args.keep_objects { Objects::default() } else { count_objects(cluster).await? };
    let fates = home::fates(cluster, &going, !args.keep_objects).await?;
    tell(&summary(cluster, &going, &objects, &fates));
    refuse_to_wait_in_vain(cluster, &objects).await?;
    if !args.yes && !confirmed()? {
        tell("nothing was changed");
        return Ok(Ended::Badly);
    }
    let mut signals = Signals::listen()?;
    tokio::select! {
        ended = carry_out(cluster, args, &going) => ended,
        () = signals.next() => {
            tell("interrupted: the rest is still there; run `underpass uninstall` again to remove it");
            Ok(Ended::Forced)
        }
    }
}

/// Everything that carries our mark, the leases and the definitions, in an order whose reverse is that of deleting.
async fn found(cluster: &Cluster) -> anyhow::Result<Vec<Value>> {
    Ok([cluster.leases().await?, cluster.loose_definitions().await?, cluster.installed().await?].concat())
}

async fn carry_out(cluster: &Cluster, args: &Uninstall, going: &[Value]) -> anyhow::Result<Ended> {
    let patience = Duration::from_secs(args.timeout);
    if !args.keep_objects {
        remove_objects(cluster, patience).await?;
        // While their definitions stand: of owners whose kind is gone the cluster does not know that they are.
        refuse_what_was_built(cluster, patience).await?;
    }
    let removal = remove(cluster, going, !args.keep_objects);
    let kept = timeout(patience, removal).await;
    let kept = kept.context("it takes too long: run `underpass uninstall` again")??;
    prove(cluster, args, &kept).await
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

/// Our objects, by kind.
#[derive(Default)]
struct Objects {
    counts: BTreeMap<&'static str, usize>,
    /// How many of them cannot go before an operator has removed something for them. What others hold is told while it is waited for.
    held: usize,
}

/// What was built for them is removed by an operator, and by nobody else.
async fn refuse_to_wait_in_vain(cluster: &Cluster, objects: &Objects) -> anyhow::Result<()> {
    if objects.held == 0 {
        return Ok(());
    }
    if works(cluster).await.context("cannot look for an operator that works")? {
        return Ok(());
    }
    bail!(
        "no operator works on {}, and for {} of these objects one has to remove what was built: run `underpass install`, and then this again",
        cluster.url,
        objects.held
    )
}

/// By the clock at once; by what is written meanwhile, where clocks differ.
async fn works(cluster: &Cluster) -> Result<bool, Answer> {
    for lease in LEASES {
        if leadership::holder_anywhere(&cluster.client, lease).await?.is_some() {
            return Ok(true);
        }
    }
    let before = leases(cluster).await?;
    if !before.iter().any(|lease| lease.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty())) {
        return Ok(false);
    }
    tell("waiting   for a sign of the operator");
    let renewed = async {
        while leases(cluster).await? == before {
            sleep(LOOK).await;
        }
        Ok(true)
    };
    timeout(leadership::TERM, renewed).await.unwrap_or(Ok(false))
}

async fn leases(cluster: &Cluster) -> Result<Vec<LeaseSpec>, Answer> {
    let mut all = Vec::new();
    for lease in LEASES {
        all.extend(leadership::written_anywhere(&cluster.client, lease).await?);
    }
    Ok(all)
}

async fn count_objects(cluster: &Cluster) -> anyhow::Result<Objects> {
    let mut objects = Objects::default();
    for kind in KINDS {
        match kinds::api(&cluster.client, kind, None).list_metadata(&ListParams::default()).await {
            Ok(list) if list.items.is_empty() => {}
            Ok(list) => {
                objects.counts.insert(kind.kind, list.items.len());
                let is_held = |object: &&PartialObjectMeta<DynamicObject>| {
                    object.finalizers().iter().any(|name| is_our_finalizer(name))
                };
                objects.held += list.items.iter().filter(is_held).count();
            }
            Err(error) if is_not_served(&error) => {}
            Err(error) => {
                return Err(anyhow::Error::new(Answer::from(error)).context(format!("cannot list {}", kind.plural)));
            }
        }
    }
    Ok(objects)
}

fn summary(cluster: &Cluster, going: &[Value], objects: &Objects, fates: &Fates) -> String {
    let mut lines = vec![format!("This removes from {}:", cluster.url)];
    lines.extend(objects.counts.iter().map(|(kind, count)| format!("  {}", with_what_was_built(kind, *count))));
    let others = going.iter().filter(|object| object["kind"] != "Namespace");
    lines.extend(fates.go.iter().chain(others).map(|object| format!("  {}", title(object))));
    if !fates.stay.is_empty() {
        lines.push("This stays:".to_owned());
        lines.extend(fates.stay.iter().map(|namespace| format!("  {namespace}")));
    }
    lines.join("\n")
}

fn with_what_was_built(kind: &str, count: usize) -> String {
    format!("{count} {kind}, and what was built for {}", if count == 1 { "it" } else { "them" })
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

/// Whoever takes a finalizer off an object by hand leaves what was built for it elsewhere, which no operator knows of any more.
async fn refuse_what_was_built(cluster: &Cluster, patience: Duration) -> anyhow::Result<()> {
    let left = left_of_what_was_built(cluster, patience).await?;
    if left.is_empty() {
        return Ok(());
    }
    let kinds: BTreeSet<String> = left.iter().map(|object| resource(object).plural).collect();
    bail!(
        "this was built for objects that are gone, and nobody removes it by itself:\n  {}\nLook at it, delete it (kubectl delete {} -A -l {}), \
         and run `underpass uninstall` again",
        left.iter().map(title).collect::<Vec<_>>().join("\n  "),
        Vec::from_iter(kinds).join(","),
        OWNER_LABEL
    )
}

/// Once all is gone that goes by itself: the cluster collects what its owner has left in the same namespace.
async fn left_of_what_was_built(cluster: &Cluster, patience: Duration) -> anyhow::Result<Vec<Value>> {
    let goes = |object: &Value| {
        let metadata = &object["metadata"];
        metadata["deletionTimestamp"].is_string() || metadata["ownerReferences"].is_array()
    };
    let collected = async {
        loop {
            let left = cluster.built().await?;
            if !left.iter().any(goes) {
                return Ok(left);
            }
            sleep(LOOK).await;
        }
    };
    match timeout(patience, collected).await {
        Ok(left) => left,
        Err(_) => cluster.built().await,
    }
}

/// Says which namespaces stay.
async fn remove(cluster: &Cluster, going: &[Value], with_objects: bool) -> anyhow::Result<Vec<String>> {
    for object in going.iter().rev().filter(|object| !["Namespace", "Lease"].contains(&kind(object))) {
        delete(cluster, object).await?;
    }
    // Pods that were starting may have made one meanwhile; their rights ended before they could take it away.
    for lease in cluster.leases().await? {
        delete(cluster, &lease).await?;
    }
    // And somebody may have begun to use a namespace.
    let Fates { go, stay } = home::fates(cluster, going, with_objects).await?;
    for namespace in &go {
        delete(cluster, namespace).await?;
    }
    for namespace in &stay {
        tell(&format!("keeping   {namespace}"));
        if let Some(marked) = &namespace.marked {
            cluster.disown(marked).await?;
        }
    }
    Ok(stay.into_iter().map(|namespace| namespace.name).collect())
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

async fn delete(cluster: &Cluster, object: &Value) -> anyhow::Result<()> {
    tell(&format!("deleting  {}", title(object)));
    cluster.delete(object).await
}

/// What objects live on, and what was made for them.
fn is_for_objects(object: &Value) -> bool {
    object["kind"] == "CustomResourceDefinition" || object["metadata"]["labels"][COMPONENT] == PROXY
}

async fn prove(cluster: &Cluster, args: &Uninstall, kept: &[String]) -> anyhow::Result<Ended> {
    let left = found(cluster).await?;
    let left: Vec<String> =
        left.iter().filter(|object| !(args.keep_objects && is_for_objects(object))).map(title).collect();
    if !left.is_empty() {
        bail!("these are still there: {}; run `underpass uninstall` again", left.join(", "));
    }
    if !args.keep_objects {
        refuse_what_was_built(cluster, Duration::from_secs(args.timeout)).await?;
    }
    let stays = if kept.is_empty() { String::new() } else { format!("; the namespace {} stays", kept.join(", ")) };
    tell(&if args.keep_objects {
        format!(
            "the operator is gone from {}; your objects, their definitions and what proxies need are kept{stays}",
            cluster.url
        )
    } else {
        format!("nothing of underpass is left on {}{stays}", cluster.url)
    });
    Ok(Ended::Well)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_it_and_two_are_them() {
        assert_eq!(with_what_was_built("Infra", 1), "1 Infra, and what was built for it");
        assert_eq!(with_what_was_built("Infra", 2), "2 Infra, and what was built for them");
    }
}
