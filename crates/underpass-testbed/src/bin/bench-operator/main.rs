//! `make bench-operator`: the memory that the operator takes with many objects of every kind, and how long it needs to see to them all.
//!
//! The objects are there before it starts, because that is the hardest moment: it has to see all of them, write a status and an event for
//! each, and be told of every one of its own writes. They are in a kube-apiserver, where a ProxyServer becomes a dozen objects more. All
//! ProxyServers come of Infras; there are no nodes, so that none of them becomes a pod. With 10,000 of each kube-apiserver alone takes more than
//! 20 GiB; so how much the operator has taken is told all the time, and not at the end alone.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Parser;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::discovery::pinned_kind;
use kube::{Api, Client};
use serde_json::Value;
use underpass_testbed::{ControlPlane, Launch, Replica, look_until};

/// Writers at a time: enough to keep a server busy.
const WRITERS: usize = 64;
/// For all objects; a machine that others use too may be slow.
const PATIENCE: Duration = Duration::from_secs(3600);
const BETWEEN_PROGRESS: Duration = Duration::from_secs(15);
/// Of a list, in one answer.
const PAGE: u32 = 1000;
/// Of which there are as many as of Infras.
const MADE_OF_INFRAS: &str = "ProxyServer";

/// What the examples take for granted: a network for the proxies, and the namespace that they lead to.
const SURROUNDINGS: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: clusters-mycluster}
---
apiVersion: v1
kind: Namespace
metadata: {name: hosted-clusters}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: tenant-vlan-100, namespace: hosted-clusters}
spec:
  config: '{\"cniVersion\": \"0.3.1\", \"type\": \"macvlan\", \"master\": \"eth1\", \"ipam\": {\"type\": \"static\"}}'
";

const STATUSES: &str = "underpass_writes_total{target=\"Status\",result=\"Ok\"}";

/// Measures the operator with many objects.
#[derive(Debug, Parser)]
struct Args {
    /// The program to measure
    #[arg(long, value_name = "PATH")]
    underpass: PathBuf,
    /// The folder with an object of every kind
    #[arg(long, value_name = "FOLDER", default_value = "examples")]
    examples: PathBuf,
    /// The folder with the definitions of all kinds
    #[arg(long, value_name = "FOLDER", default_value = "deploy/crds")]
    definitions: PathBuf,
    /// The definition of the networks that proxies are on
    #[arg(long, value_name = "FILE", default_value = "lab/manifests/networks.yaml")]
    networks: PathBuf,
    /// How many objects of each kind
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    objects: usize,
    /// More than so many MiB at any moment is a failure
    #[arg(long, value_name = "MIB", default_value_t = 200)]
    most: u64,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let binary = args.underpass.to_str().context("the path of the program is no text")?;
    let scratch = tempfile::tempdir()?;
    let server = ControlPlane::start(&args.definitions.canonicalize()?, scratch.path());
    let runtime = tokio::runtime::Runtime::new()?;
    let client = runtime.block_on(server.client());
    let started = Instant::now();
    let filled = runtime.block_on(fill(&server, &client, &args))?;
    println!("{} objects made in {} s", filled.objects, started.elapsed().as_secs());
    let started = Instant::now();
    let launch = Launch::command(binary, "operator").arg("--kubeconfig").arg(server.kubeconfig());
    let operator =
        Replica::launch(launch.env("POD_NAMESPACE", "default").env("RUST_LOG", "error,underpass::commands=info"));
    // A status may be written twice, so that their number alone proves nothing; but to look at all objects is dear.
    let mut told = Instant::now();
    let done = look_until(PATIENCE, || {
        let written = operator.number(STATUSES)?;
        if told.elapsed() > BETWEEN_PROGRESS {
            told = Instant::now();
            let (peak, _) = memory(operator.process.pid()).ok()?;
            eprintln!("{} s: {written} statuses written, {peak} MiB at most", started.elapsed().as_secs());
        }
        (written >= filled.objects as f64).then_some(())?;
        runtime.block_on(all_have_a_status(&client, &filled)).ok()?.then_some(())
    });
    if done.is_none() {
        bail!("after {} s not all objects have a status\n{}", PATIENCE.as_secs(), operator.process.stderr());
    }
    let built = runtime.block_on(Api::<Deployment>::all(client).list_metadata(&ListParams::default()))?.items.len();
    let (peak, now) = memory(operator.process.pid())?;
    println!("all seen to after {} s, {built} Deployments made of ProxyServers", started.elapsed().as_secs());
    println!("memory: {peak} MiB at most, {now} MiB at the end");
    Ok(if peak > args.most { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What was made.
struct Filled {
    kinds: Vec<ApiResource>,
    objects: usize,
}

/// As many objects of each kind as are asked for.
async fn fill(server: &ControlPlane, client: &Client, args: &Args) -> anyhow::Result<Filled> {
    let kubectl = server.kubectl();
    kubectl.ok(&format!("apply -f {}", args.networks.canonicalize()?.display()));
    kubectl.ok("wait --for=condition=Established crd/network-attachment-definitions.k8s.cni.cncf.io --timeout=60s");
    kubectl.ok_with("apply -f -", SURROUNDINGS);
    kubectl.ok(&format!("apply -f {}", args.examples.canonicalize()?.display()));
    let examples = kubectl.json("get underpass -A");
    let examples = examples["items"].as_array().context("there are no examples")?;
    let by_kind: BTreeMap<&str, &Value> =
        examples.iter().filter_map(|object| Some((object["kind"].as_str()?, object))).collect();
    let mut kinds = Vec::new();
    for (kind, example) in &by_kind {
        let to_make = if *kind == MADE_OF_INFRAS { 0 } else { args.objects };
        let made = multiply(client, example, to_make).await;
        kinds.push(made.with_context(|| format!("the objects of kind {kind} cannot be made"))?);
        eprintln!("{to_make} {kind}");
    }
    Ok(Filled { kinds, objects: examples.len() + by_kind.len() * args.objects })
}

async fn all_have_a_status(client: &Client, filled: &Filled) -> anyhow::Result<bool> {
    for kind in &filled.kinds {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), kind);
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = api.list(&page).await?;
            if list.items.iter().any(|object| object.data["status"]["conditions"].as_array().is_none_or(Vec::is_empty))
            {
                return Ok(false);
            }
            let Some(next) = list.metadata.continue_.filter(|next| !next.is_empty()) else { break };
            page = page.continue_token(&next);
        }
    }
    Ok(true)
}

async fn multiply(client: &Client, example: &Value, count: usize) -> anyhow::Result<ApiResource> {
    let example: DynamicObject = serde_json::from_value(example.clone())?;
    let types = example.types.clone().context("an object has a kind")?;
    let (resource, _): (ApiResource, _) = pinned_kind(client, &types.try_into()?).await?;
    let api: Api<DynamicObject> = match &example.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let copies = (0..count).map(|number| {
        let mut copy = DynamicObject::new(&format!("many-{number}"), &resource);
        copy.data = example.data.clone();
        stand_apart(&resource.kind, number, &mut copy.data["spec"]);
        let api = api.clone();
        async move { api.create(&PostParams::default(), &copy).await.map(drop) }
    });
    stream::iter(copies).buffer_unordered(WRITERS).try_collect::<()>().await?;
    Ok(resource)
}

/// Two proxies of one address would not both be built.
fn stand_apart(kind: &str, number: usize, spec: &mut Value) {
    if kind != "Infra" {
        return;
    }
    let [.., b, c] = u32::try_from(number + 4).unwrap_or_default().to_be_bytes();
    let components = &mut spec["infraComponents"];
    components["dhcp"] = serde_json::json!({ "enabled": false });
    components["dns"]["enabled"] = false.into();
    components["dns"]["serverIP"] = "10.0.0.2".into();
    components["proxy"]["serverIP"] = format!("10.8.{b}.{c}").into();
    spec["networkConfig"]["cidr"] = "10.0.0.0/8".into();
    spec["networkConfig"]["gateway"] = "10.0.0.1".into();
}

/// The most that it ever had, and what it has, in MiB.
fn memory(pid: u32) -> anyhow::Result<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    let kib = |name| number(name).with_context(|| format!("/proc does not say {name}"));
    Ok((kib("VmHWM:")?.div_ceil(1024), kib("VmRSS:")?.div_ceil(1024)))
}
