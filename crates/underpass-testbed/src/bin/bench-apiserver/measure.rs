//! What is measured, and how.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use futures::io::AsyncBufReadExt;
use futures::{AsyncBufRead, StreamExt};
use serde::Serialize;
use tokio::sync::Barrier;

use crate::client;
use crate::process::Spawned;
use crate::servers::Running;

pub(crate) const CREATES_ALONE: usize = 1_000;
pub(crate) const CREATES_CROWD: usize = 10_000;
const LISTS: usize = 5;
const WATCHERS: usize = 100;
/// Paced, so that it is latency that is measured and not how fast a full machine drains.
const WATCHED_WRITES: usize = 300;
const PACE: Duration = Duration::from_millis(20);
/// Writes of one round beside a watcher that does not read, or without one.
const STALLED_WRITES: usize = 2_000;
const STALLED_PAIRS: usize = 11;
/// A server is idle when it has used hardly any processor time for so long.
const QUIET: Duration = Duration::from_secs(2);
/// A connection is filled when the server has rested for so long.
const FILLED: Duration = Duration::from_millis(200);
const REST_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Measured {
    pub(crate) ready_ms: f64,
    pub(crate) idle_rss_mib: f64,
    pub(crate) creates_per_s_alone: f64,
    pub(crate) creates_per_s_crowd: f64,
    pub(crate) list_ms: f64,
    pub(crate) list_cpu_ms: f64,
    pub(crate) watch_p50_ms: f64,
    pub(crate) watch_p99_ms: f64,
    pub(crate) cpu_s_per_10k_writes: f64,
    pub(crate) writes_beside_stalled_watcher_percent: f64,
}

pub(crate) struct Creates {
    pub(crate) per_second: f64,
    pub(crate) cpu_s_per_10k: f64,
}

pub(crate) struct Lists {
    pub(crate) took: Duration,
    pub(crate) cpu: Duration,
}

pub(crate) struct Latency {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

/// Resident memory of all its processes, once it has come to rest.
pub(crate) async fn idle_rss_mib(running: &Running) -> anyhow::Result<f64> {
    rest(running, QUIET).await?;
    let kib = running.processes.iter().map(Spawned::rss_kib).sum::<anyhow::Result<u64>>()?;
    Ok(kib as f64 / 1024.0)
}

/// `count` durable creates by `clients` clients, each with a connection of its own, in a new namespace.
pub(crate) async fn creates(
    running: &Running,
    namespace: &str,
    clients: usize,
    count: usize,
) -> anyhow::Result<Creates> {
    client::make_namespace(&running.client, namespace).await?;
    let before = cpu(running)?;
    let took = write(running, namespace, "c", clients, count).await?;
    let used = cpu(running)? - before;
    let count = count as f64;
    Ok(Creates { per_second: count / took.as_secs_f64(), cpu_s_per_10k: used.as_secs_f64() * 10_000.0 / count })
}

async fn write(
    running: &Running,
    namespace: &str,
    prefix: &str,
    clients: usize,
    count: usize,
) -> anyhow::Result<Duration> {
    let next = Arc::new(AtomicUsize::new(0));
    let begin = Arc::new(Barrier::new(clients + 1));
    let mut workers = Vec::new();
    for _ in 0..clients {
        let client = client::connect(&running.kubeconfig).await?;
        ensure!(client::is_ready(&client).await, "the server is not ready");
        let (next, begin) = (Arc::clone(&next), Arc::clone(&begin));
        let (namespace, prefix) = (namespace.to_owned(), prefix.to_owned());
        workers.push(tokio::spawn(async move {
            begin.wait().await;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return anyhow::Ok(());
                }
                client::create(&client, &namespace, &format!("{prefix}{number}"), 0).await?;
            }
        }));
    }
    begin.wait().await;
    let started = Instant::now();
    for worker in workers {
        worker.await??;
    }
    Ok(started.elapsed())
}

/// The whole namespace in one answer, several times.
pub(crate) async fn lists(running: &Running, namespace: &str, expected: usize) -> anyhow::Result<Lists> {
    let mut times = Vec::new();
    let before = cpu(running)?;
    for _ in 0..LISTS {
        let started = Instant::now();
        let text = client::list(&running.client, namespace).await?;
        times.push(started.elapsed());
        let found = text.matches(r#""v":""#).count();
        // A namespace holds kube-root-ca.crt as well, which has no such value.
        ensure!(found == expected, "the list has {found} objects instead of {expected}");
    }
    let used = cpu(running)? - before;
    Ok(Lists { took: median(times), cpu: used / u32::try_from(LISTS)? })
}

/// From the beginning of a write to its receipt, at every watcher.
pub(crate) async fn watch_latency(running: &Running) -> anyhow::Result<Latency> {
    const NAMESPACE: &str = "bench-watch";
    client::make_namespace(&running.client, NAMESPACE).await?;
    let epoch = Instant::now();
    let watches = (0..WATCHERS).map(|_| client::watch(&running.client, NAMESPACE));
    let mut watchers = Vec::new();
    for watch in try_join_all(watches).await? {
        watchers.push(tokio::spawn(receive(watch, epoch)));
    }
    let writer = client::connect(&running.kubeconfig).await?;
    let mut pace = tokio::time::interval(PACE);
    for number in 0..WATCHED_WRITES {
        pace.tick().await;
        client::create(&writer, NAMESPACE, &format!("w{number}"), epoch.elapsed().as_nanos()).await?;
    }
    let mut delays = Vec::new();
    for watcher in watchers {
        delays.extend(watcher.await??);
    }
    delays.sort_unstable();
    let at = |percent: usize| delays[(delays.len() - 1) * percent / 100];
    Ok(Latency { p50: at(50), p99: at(99) })
}

async fn receive(watch: impl AsyncBufRead, epoch: Instant) -> anyhow::Result<Vec<Duration>> {
    let mut lines = Box::pin(watch.lines());
    let mut delays = Vec::with_capacity(WATCHED_WRITES);
    while delays.len() < WATCHED_WRITES {
        let line = lines.next().await.context("a watch ended early")??;
        // The namespace's own objects have no mark.
        if let Some(begun) = client::mark(&line) {
            let now = epoch.elapsed().as_nanos();
            delays.push(Duration::from_nanos(u64::try_from(now.saturating_sub(begun))?));
        }
    }
    Ok(delays)
}

/// The rate of writes beside one watcher that never reads, as a percentage of the rate without it. Its connection is filled first, with
/// all that exists: before that it is a watcher like any other, for as long as buffers last. The median over pairs of rounds that follow each other, so that what else happens on the machine hits both, and with either one first in turns.
pub(crate) async fn beside_a_stalled_watcher(running: &Running) -> anyhow::Result<f64> {
    const NAMESPACE: &str = "bench-stalled";
    client::make_namespace(&running.client, NAMESPACE).await?;
    write(running, NAMESPACE, "warm", 16, STALLED_WRITES).await?;
    let mut ratios = Vec::new();
    for pair in 0..STALLED_PAIRS {
        let (mut without, mut beside) = (Duration::ZERO, Duration::ZERO);
        for stalled in [pair % 2 == 0, pair % 2 != 0] {
            let watch = if stalled { Some(client::watch_all_that_exists(&running.client).await?) } else { None };
            rest(running, FILLED).await?;
            let took = write(running, NAMESPACE, &format!("p{pair}-{stalled}-"), 16, STALLED_WRITES).await?;
            *(if stalled { &mut beside } else { &mut without }) = took;
            drop(watch);
        }
        ratios.push(without.as_secs_f64() / beside.as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    Ok(ratios[ratios.len() / 2] * 100.0)
}

/// Waits until the server has used hardly any processor time for a while. kube-apiserver and etcd never rest entirely: a twentieth of a
/// core is rest enough.
async fn rest(running: &Running, quiet: Duration) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut before = cpu(running)?;
    while started.elapsed() < REST_PATIENCE {
        tokio::time::sleep(quiet).await;
        let now = cpu(running)?;
        if now - before <= quiet / 20 {
            return Ok(());
        }
        before = now;
    }
    Ok(())
}

pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn cpu(running: &Running) -> anyhow::Result<Duration> {
    running.processes.iter().map(Spawned::cpu).sum()
}
