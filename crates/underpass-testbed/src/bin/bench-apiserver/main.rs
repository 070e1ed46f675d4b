//! `make bench-apiserver`: the embedded API server beside kube-apiserver and etcd, measured one after the other by the same client.
//!
//! Times on a shared machine are noise; so CPU time of the server's processes stands beside them, and no result is a verdict: the exit
//! code says whether it could be measured, never how it went.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

mod client;
mod measure;
mod process;
mod report;
mod servers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, ValueEnum};

use crate::measure::Measured;
use crate::servers::{Kubernetes, Server, Underpass};

/// How often each server is started; the median counts.
const STARTS: usize = 5;
const START_PATIENCE: Duration = Duration::from_secs(60);

/// Measures the embedded API server, and kube-apiserver with etcd when both are given.
#[derive(Debug, Parser)]
struct Args {
    #[arg(long)]
    underpass: PathBuf,
    #[arg(long, requires = "etcd")]
    kube_apiserver: Option<PathBuf>,
    #[arg(long, requires = "kube_apiserver")]
    etcd: Option<PathBuf>,
    /// Where the servers keep their data: a folder on the disk that is to be measured
    #[arg(long)]
    scratch: PathBuf,
    #[arg(short, long, default_value = "table")]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let crds = servers::definitions(&args.underpass)?;
    let folder = scratch(&args.scratch)?;
    let ours = run(&Underpass::new(&args.underpass, folder.path())?, &crds).await?;
    let theirs = match (&args.kube_apiserver, &args.etcd) {
        (Some(api), Some(etcd)) => {
            let folder = scratch(&args.scratch)?;
            Some(run(&Kubernetes::new(api, etcd, folder.path())?, &crds).await?)
        }
        _ => None,
    };
    match args.output {
        Format::Table => print!("{}", report::table(&ours, theirs.as_ref())),
        Format::Json => println!("{:#}", report::json(&ours, theirs.as_ref())),
    }
    Ok(())
}

fn scratch(parent: &Path) -> anyhow::Result<tempfile::TempDir> {
    std::fs::create_dir_all(parent)?;
    tempfile::tempdir_in(parent).with_context(|| format!("cannot make a folder in {}", parent.display()))
}

/// All measures of one server, each with a sentence of progress.
async fn run(server: &impl Server, crds: &[serde_json::Value]) -> anyhow::Result<Measured> {
    let say = |what: &str| eprintln!("{}: {what}", server.name());
    say("first start, definitions");
    let running = servers::start(server, START_PATIENCE).await?;
    servers::install(&running.client, crds).await?;
    drop(running);
    say("start to ready");
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        starts.push(servers::start(server, START_PATIENCE).await?.took);
    }
    let running = servers::start(server, START_PATIENCE).await?;
    say("idle");
    let idle_rss_mib = measure::idle_rss_mib(&running).await?;
    say("creates, one client");
    let alone = measure::creates(&running, "bench-alone", 1, measure::CREATES_ALONE).await?;
    say("creates, sixteen clients");
    let crowd = measure::creates(&running, "bench-crowd", 16, measure::CREATES_CROWD).await?;
    say("lists");
    let list = measure::lists(&running, "bench-crowd", measure::CREATES_CROWD).await?;
    say("watchers");
    let watch = measure::watch_latency(&running).await?;
    say("a watcher that never reads");
    let stalled_percent = measure::beside_a_stalled_watcher(&running).await?;
    Ok(Measured {
        ready_ms: measure::median(starts).as_secs_f64() * 1e3,
        idle_rss_mib,
        creates_per_s_alone: alone.per_second,
        creates_per_s_crowd: crowd.per_second,
        list_ms: list.took.as_secs_f64() * 1e3,
        list_cpu_ms: list.cpu.as_secs_f64() * 1e3,
        watch_p50_ms: watch.p50.as_secs_f64() * 1e3,
        watch_p99_ms: watch.p99.as_secs_f64() * 1e3,
        cpu_s_per_10k_writes: crowd.cpu_s_per_10k,
        writes_beside_stalled_watcher_percent: stalled_percent,
    })
}
