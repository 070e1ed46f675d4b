//! `underpass controllers`: the controllers alone, against a server that somebody else runs.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use tokio_util::sync::CancellationToken;
use underpass_engines::LocalEngine;
use underpass_engines::labels::Maker;
use underpass_operator::leadership::{self, Seat};
use underpass_operator::{Metrics, Pace, Settings};

use crate::exit::Ended;
use crate::following;
use crate::signals::Signals;

/// Where a lease of the controllers is, on every server: this namespace cannot be deleted.
pub(crate) const LEASE_NAMESPACE: &str = "kube-system";
pub(crate) const LEASE: &str = "underpass-controllers";

pub(crate) async fn run(kubeconfig: PathBuf) -> anyhow::Result<Ended> {
    let mut signals = Signals::listen()?;
    let client = following::client(&kubeconfig).await?;
    let stop = CancellationToken::new();
    let settings = settings(Metrics::default(), leadership::candidate(&host()))?;
    let mut controllers = tokio::spawn(underpass_operator::run(client, settings, stop.clone()));
    tokio::select! {
        () = signals.next() => stop.cancel(),
        ended = &mut controllers => {
            ended?.with_context(|| format!("cannot use {}", kubeconfig.display()))?;
            return Ok(Ended::Well);
        }
    }
    tokio::select! {
        ended = controllers => Ok(ended?.map(|()| Ended::Well)?),
        () = signals.next() => Ok(Ended::Forced),
    }
}

/// Whose networks and containers they are on the engine.
const INSTANCE: &str = "local";

/// What the controllers work with on this machine, under the name that others are told.
pub(crate) fn settings(metrics: Metrics, candidate: String) -> anyhow::Result<Settings> {
    let seat =
        Seat { namespace: LEASE_NAMESPACE.to_owned(), name: LEASE.to_owned(), candidate, term: leadership::TERM };
    let maker = Maker::this_process(INSTANCE).context("cannot read from /proc when this process began")?;
    let engine = Arc::new(LocalEngine::from_environment(None, maker));
    Ok(Settings { engine, pace: Pace::default(), metrics, seat })
}

/// The name of this machine, as its own tools say it.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "localhost".to_owned() } else { name.trim().to_owned() }
}
