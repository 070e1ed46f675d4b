//! All controllers, started from one list.

use std::sync::Arc;

use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;
use underpass_resources::{KINDS, Kind};

use crate::apply::Applier;
use crate::drive::{Pace, drive};
use crate::kinds;
use crate::leadership::{Seat, lead};
use crate::metrics::Metrics;
use crate::observe::{ContainerNetworks, Unbuilt};
use crate::reach::{Unreachable, check};
use crate::reconcile::Reconcile;
use crate::triggers::changes;
use underpass_engines::ContainerEngine;

#[derive(Clone)]
pub struct Settings {
    pub engine: Arc<dyn ContainerEngine>,
    pub pace: Pace,
    pub metrics: Metrics,
    /// The lease that says whose controllers work, where several processes could.
    pub seat: Seat,
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("the controllers cannot start")]
    Start(#[from] Unreachable),
    #[error("the controllers ended by themselves, which is a defect of underpass")]
    Ended,
}

/// Runs the controllers of all kinds until `stop`, whenever this process holds the lease for it. A server that cannot be worked with
/// is an error at the start; one that goes away later is waited for.
pub async fn run(client: Client, settings: Settings, stop: CancellationToken) -> Result<(), RunError> {
    tokio::select! {
        checked = check(&client) => checked?,
        () = stop.cancelled() => return Ok(()),
    }
    lead(&client, settings.seat.clone(), &stop, || control(client.clone(), settings.clone(), stop.clone())).await;
    if stop.is_cancelled() { Ok(()) } else { Err(RunError::Ended) }
}

async fn control(client: Client, settings: Settings, stop: CancellationToken) {
    let mut controllers = Controllers::new(client, settings, stop);
    for kind in KINDS {
        controllers.start_kind(kind);
    }
    info!(kinds = KINDS.len(), "controllers started");
    controllers.loops.join_all().await;
}

struct Controllers {
    client: Client,
    settings: Settings,
    applier: Arc<Applier>,
    stop: CancellationToken,
    loops: JoinSet<()>,
}

impl Controllers {
    fn new(client: Client, settings: Settings, stop: CancellationToken) -> Self {
        let applier = Applier::new(client.clone(), Arc::clone(&settings.engine), settings.metrics.clone());
        Self { client, settings, applier: Arc::new(applier), stop, loops: JoinSet::new() }
    }

    /// The one place that says which kind is built by what.
    fn start_kind(&mut self, kind: &'static Kind) {
        let client = self.client.clone();
        match kind.kind {
            "ContainerNetwork" => {
                let engine = Arc::clone(&self.settings.engine);
                self.start(kind, ContainerNetworks::new(client, engine));
            }
            _ => self.start(kind, Unbuilt::new(client, kind)),
        }
    }

    fn start<R: Reconcile>(&mut self, kind: &'static Kind, reconciler: R) {
        let triggers = changes(kind.kind, kinds::api(&self.client, kind, None));
        let applier = Arc::clone(&self.applier);
        self.loops.spawn(drive(Arc::new(reconciler), triggers, applier, self.settings.pace, self.stop.clone()));
    }
}
