//! `underpass controllers`: the controllers alone, against a server that somebody else runs.

use anyhow::Context;
use tokio_util::sync::CancellationToken;
use underpass_operator::leadership::{self, Seat};
use underpass_operator::{Health, Machine, Metrics, Pace, Settings, host};

use crate::args::Controllers;
use crate::exit::Ended;
use crate::following;
use crate::settings;
use crate::signals::Signals;
use crate::workplace::Workplace;

/// Where a lease of the controllers is, on every server: this namespace cannot be deleted.
pub(crate) const LEASE_NAMESPACE: &str = "kube-system";
pub(crate) const LEASE: &str = "underpass-controllers";

pub(crate) async fn run(args: Controllers) -> anyhow::Result<Ended> {
    let mut signals = Signals::listen()?;
    let (engine, folder) = (args.engine.kind(), settings::controllers_folder(args.data_dir)?);
    let kubeconfig = settings::kubeconfig(args.server)?;
    let client = following::client(&kubeconfig).await?;
    let stop = CancellationToken::new();
    let unusable = || format!("cannot use {}", kubeconfig.display());
    let identity = underpass_operator::identity(&client).await.with_context(unusable)?;
    let folder = folder.join(&identity);
    let workplace = Workplace { folder, instance: identity, engine, kubeconfig: Some(kubeconfig.clone()) };
    let settings = settings(Metrics::default(), leadership::candidate(&host()), workplace)?;
    let controllers = underpass_operator::run(client, settings, stop.clone());
    until_signalled(async { controllers.await.with_context(unusable) }, &stop, &mut signals).await
}

/// Runs controllers until the first signal, and lets them finish what they have begun until the second.
pub(crate) async fn until_signalled(
    controllers: impl Future<Output = anyhow::Result<()>>,
    stop: &CancellationToken,
    signals: &mut Signals,
) -> anyhow::Result<Ended> {
    let mut controllers = std::pin::pin!(controllers);
    tokio::select! {
        () = signals.next() => stop.cancel(),
        ended = &mut controllers => return ended.map(|()| Ended::Well),
    }
    tokio::select! {
        ended = controllers => ended.map(|()| Ended::Well),
        () = signals.next() => Ok(Ended::Forced),
    }
}

/// What the controllers work with on this machine, under the name that others are told.
pub(crate) fn settings(metrics: Metrics, candidate: String, workplace: Workplace) -> anyhow::Result<Settings> {
    let (namespace, name) = (LEASE_NAMESPACE.to_owned(), LEASE.to_owned());
    let seat = Seat { namespace, name, candidate, terms: leadership::CONTROLLERS };
    let machine = Machine {
        engine: workplace.engine()?,
        watchdog: Some(workplace.watchdog()),
        folder: workplace.folder,
        instance: workplace.instance,
        program: "/proc/self/exe".into(),
    };
    let health = Health::default();
    Ok(Settings {
        machine: Some(machine),
        cluster: None,
        pace: Pace::default(),
        metrics,
        health,
        first_look: None,
        seat,
    })
}
