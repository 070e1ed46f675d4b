//! `underpass install` and `underpass uninstall`: the operator on a cluster, from nothing to proven, and back.

mod cluster;
mod home;
mod missing_rights;
mod remove;
mod rollout;

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use underpass_deploy::{OPERATOR, Platform, Settings, objects};

use crate::args::{Install, PlatformName, Uninstall, YamlOrJson};
use crate::exit::Ended;
use crate::output::{self, tell};
use crate::signals::Signals;

use cluster::{Cluster, Conflicts};

const UNCHANGED: &str = "nothing was changed";
/// At least, however long the new version took.
const TO_PRUNE: Duration = Duration::from_secs(30);

pub(crate) async fn run(args: Install) -> anyhow::Result<Ended> {
    if args.dry_run {
        print(&to_print(&args).await?, args.output)?;
        return Ok(Ended::Well);
    }
    let cluster = Cluster::connect(args.cluster.clone()).await?;
    let mut signals = Signals::listen()?;
    tokio::select! {
        ended = install(&cluster, &args) => ended,
        () = signals.next() => {
            tell("interrupted: what is not applied yet is missing; run `underpass install` again, or `underpass uninstall`");
            Ok(Ended::Forced)
        }
    }
}

/// What would be applied to the cluster that is named; nobody is asked where none is.
async fn to_print(args: &Install) -> anyhow::Result<Vec<Value>> {
    if args.cluster.kubeconfig.is_none() && args.cluster.context.is_none() {
        return Ok(objects(&settings(args)));
    }
    let cluster = Cluster::connect(args.cluster.clone()).await?;
    let settings = settings_on(&cluster, args).await?;
    refuse_elsewhere(&cluster.installed().await?, &settings.namespace)?;
    objects_on(&cluster, &settings).await
}

async fn install(cluster: &Cluster, args: &Install) -> anyhow::Result<Ended> {
    let conflicts = if args.force_conflicts { Conflicts::Force } else { Conflicts::Refuse };
    let (settings, all) = match prepare(cluster, args, conflicts).await {
        Ok(prepared) => prepared,
        Err(error) => {
            return Err(missing_rights::name(cluster, &settings(args), asks_for_port(args), error)
                .await
                .context(UNCHANGED));
        }
    };
    for object in &all {
        let done = cluster.apply(object, conflicts).await?;
        tell(&format!("{done} {}", cluster::title(object)));
    }
    let (begun, patience) = (Instant::now(), Duration::from_secs(args.timeout));
    let leader = prove(cluster, &settings.namespace, patience).await?;
    let left = patience.saturating_sub(begun.elapsed()).max(TO_PRUNE);
    let pruned = tokio::time::timeout(left, prune(cluster, &all)).await;
    pruned
        .context("the new version works, but what the one before had does not go: run `underpass install` again")??;
    tell(&format!("the operator works on {}: {leader} leads", cluster.url));
    Ok(Ended::Well)
}

/// What only the version before had, once nobody needs it any more: until the new one works, that one does.
async fn prune(cluster: &Cluster, all: &[Value]) -> anyhow::Result<()> {
    for stale in cluster.installed().await?.into_iter().filter(|object| !cluster::among(object, all)) {
        if remove::is_prunable(&stale) {
            tell(&format!("deleting  {}, which this version does not have", cluster::title(&stale)));
            cluster.delete(&stale).await?;
        }
    }
    Ok(())
}

/// All that can be known and refused before anything is written: what will be applied.
async fn prepare(cluster: &Cluster, args: &Install, conflicts: Conflicts) -> anyhow::Result<(Settings, Vec<Value>)> {
    let settings = settings_on(cluster, args).await?;
    refuse_elsewhere(&cluster.installed().await?, &settings.namespace)?;
    let on_openshift = if settings.platform == Platform::OpenShift { " (OpenShift)" } else { "" };
    tell(&format!(
        "installing {} as {OPERATOR} in the namespace {} of {}{on_openshift}",
        settings.image, settings.namespace, cluster.url
    ));
    let all = objects_on(cluster, &settings).await?;
    if !cluster.rehearse(&all, conflicts).await? {
        missing_rights::refuse(cluster, &settings, asks_for_port(args)).await?;
    }
    Ok((settings, all))
}

async fn objects_on(cluster: &Cluster, settings: &Settings) -> anyhow::Result<Vec<Value>> {
    let mut all = objects(settings);
    home::settle(cluster, &mut all).await?;
    Ok(all)
}

/// Two operators would be of two minds about the same objects, and there is one set of definitions.
fn refuse_elsewhere(installed: &[Value], here: &str) -> anyhow::Result<()> {
    let deployments = installed.iter().filter(|object| object["kind"] == "Deployment");
    let Some(elsewhere) = deployments.filter_map(cluster::namespace).find(|namespace| *namespace != here) else {
        return Ok(());
    };
    bail!("the operator is installed in {elsewhere} already: say -n {elsewhere} to upgrade it, or uninstall it first")
}

pub(crate) async fn uninstall(args: Uninstall) -> anyhow::Result<Ended> {
    let cluster = Cluster::connect(args.cluster.clone()).await?;
    remove::run(&cluster, &args).await
}

/// Everything is there; now it has to work. Says who leads.
async fn prove(cluster: &Cluster, namespace: &str, patience: Duration) -> anyhow::Result<String> {
    let waited = tokio::time::timeout(patience, rollout::works(&cluster.client, namespace)).await;
    let Ok(leader) = waited else {
        let why = rollout::troubles(&cluster.client, namespace).await?;
        let what = match rollout::of_the_version_before(&cluster.client, namespace).await? {
            0 => "the operator does not work".to_owned(),
            old => format!("the new version does not work, and the one before still does (pods that are ready: {old})"),
        };
        bail!("after {} seconds {what}:\n{}", patience.as_secs(), rollout::to_repair(&why));
    };
    leader
}

fn asks_for_port(args: &Install) -> bool {
    args.api_server_port.is_none()
}

/// What is known without asking anybody.
fn settings(args: &Install) -> Settings {
    let defaults = Settings::default();
    Settings {
        namespace: args.namespace.clone(),
        image: args.image.clone().unwrap_or(defaults.image),
        replicas: args.replicas,
        platform: args.platform.map_or(defaults.platform, platform),
        api_server_port: args.api_server_port.unwrap_or(defaults.api_server_port),
    }
}

/// What was not said is asked of the cluster.
async fn settings_on(cluster: &Cluster, args: &Install) -> anyhow::Result<Settings> {
    let mut settings = settings(args);
    if args.platform.is_none() && cluster.is_openshift().await? {
        settings.platform = Platform::OpenShift;
    }
    if args.api_server_port.is_none() {
        settings.api_server_port = cluster.api_server_port().await?.unwrap_or(settings.api_server_port);
    }
    Ok(settings)
}

fn platform(name: PlatformName) -> Platform {
    match name {
        PlatformName::Kubernetes => Platform::Kubernetes,
        PlatformName::Openshift => Platform::OpenShift,
    }
}

fn print(all: &[Value], format: YamlOrJson) -> anyhow::Result<()> {
    output::print(&match format {
        YamlOrJson::Json => output::json(&json!({ "apiVersion": "v1", "kind": "List", "items": all }))?,
        YamlOrJson::Yaml => output::yaml_documents(all)?,
    })
}
