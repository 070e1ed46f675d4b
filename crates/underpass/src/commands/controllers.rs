//! `underpass controllers`: the controllers alone, against a server that somebody else runs.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use tokio_util::sync::CancellationToken;
use underpass_operator::engine::Unavailable;
use underpass_operator::{Metrics, Pace, Settings};

use crate::exit::Ended;
use crate::server;
use crate::signals::Signals;

pub(crate) async fn run(kubeconfig: PathBuf) -> anyhow::Result<Ended> {
    let mut signals = Signals::listen()?;
    let client = server::from_file(&kubeconfig).await?;
    let stop = CancellationToken::new();
    let mut controllers = tokio::spawn(underpass_operator::run(client, settings(Metrics::default()), stop.clone()));
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

/// What the controllers work with on this machine.
pub(crate) fn settings(metrics: Metrics) -> Settings {
    Settings { engine: Arc::new(Unavailable::from_environment()), pace: Pace::default(), metrics }
}
