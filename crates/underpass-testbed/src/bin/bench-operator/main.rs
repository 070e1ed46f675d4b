//! `make bench-operator`: the memory that the operator takes with many objects of every kind, and how long it needs to see to them all.
//!
//! The objects are there before it starts, because that is the hardest moment: it has to see all of them, write a status and an event for
//! each, and be told of every one of its own writes.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Parser;
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::discovery::pinned_kind;
use kube::{Api, Client};
use serde_json::Value;
use underpass_testbed::{Launch, Replica, Underpass, look_until};

/// Writers at a time: enough to keep a server busy.
const WRITERS: usize = 64;
/// For all objects; a machine that others use too may be slow.
const PATIENCE: Duration = Duration::from_secs(1800);

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
    let server = Launch::apiserver(binary).env("RUST_LOG", "warn").start();
    let runtime = tokio::runtime::Runtime::new()?;
    let started = Instant::now();
    let total = runtime.block_on(fill(&server, &args))?;
    println!("{total} objects made in {} s", started.elapsed().as_secs());
    let started = Instant::now();
    let launch = Launch::command(binary, "operator").arg("--kubeconfig").arg(server.kubeconfig());
    let operator =
        Replica::launch(launch.env("POD_NAMESPACE", "default").env("RUST_LOG", "error,underpass::commands=info"));
    let done = look_until(PATIENCE, || (operator.number(STATUSES)? >= total as f64).then_some(()));
    if done.is_none() {
        bail!("after {} s not all objects have a status\n{}", PATIENCE.as_secs(), operator.process.stderr());
    }
    let (peak, now) = memory(operator.process.pid())?;
    println!("all seen to after {} s; memory: {peak} MiB at most, {now} MiB at the end", started.elapsed().as_secs());
    Ok(if peak > args.most { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// As many objects of each kind as are asked for; how many there are in all.
async fn fill(server: &Underpass, args: &Args) -> anyhow::Result<usize> {
    let kubectl = server.kubectl();
    kubectl.ok(&format!("apply -f {}", args.examples.canonicalize()?.display()));
    let examples = kubectl.json("get underpass -A");
    let examples = examples["items"].as_array().context("there are no examples")?;
    let by_kind: BTreeMap<&str, &Value> =
        examples.iter().filter_map(|object| Some((object["kind"].as_str()?, object))).collect();
    let client = server.client().await;
    for (kind, example) in &by_kind {
        let made = multiply(&client, example, args.objects).await;
        made.with_context(|| format!("the objects of kind {kind} cannot be made"))?;
        eprintln!("{} {kind}", args.objects);
    }
    Ok(examples.len() + by_kind.len() * args.objects)
}

async fn multiply(client: &Client, example: &Value, count: usize) -> anyhow::Result<()> {
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
        let api = api.clone();
        async move { api.create(&PostParams::default(), &copy).await.map(drop) }
    });
    stream::iter(copies).buffer_unordered(WRITERS).try_collect::<()>().await?;
    Ok(())
}

/// The most that it ever had, and what it has, in MiB.
fn memory(pid: u32) -> anyhow::Result<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    let kib = |name| number(name).with_context(|| format!("/proc does not say {name}"));
    Ok((kib("VmHWM:")? / 1024, kib("VmRSS:")? / 1024))
}
