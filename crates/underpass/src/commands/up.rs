//! `underpass up`: API server and controllers in one process, and an orderly way out.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use kube::Client;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use underpass_operator::{Left, Progress, RunError, teardown};

use super::controllers;
use crate::check::Checker;
use crate::embedded::Embedded;
use crate::exit::Ended;
use crate::manifests::{self, Document};
use crate::output::tell;
use crate::settings::ServerSettings;
use crate::signals::Signals;

/// How long the way out may take. An engine needs seconds for a stubborn container; a minute means that something is stuck.
const TEARDOWN_PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn run(settings: ServerSettings, files: Vec<PathBuf>) -> anyhow::Result<Ended> {
    // A file that cannot be read, or that a server would refuse, is known before anything is started.
    let documents = manifests::read_all(&files)?;
    Checker::new()?.check_all(&documents)?;
    let mut signals = Signals::listen()?;
    let mut running = Running::start(&settings).await?;
    running.server.announce(settings.output)?;
    let (client, stop) = (running.server.client(), CancellationToken::new());
    let mut work = std::pin::pin!(work(&client, documents, &stop));
    let refused = tokio::select! {
        result = &mut work => result.err(),
        () = signals.next() => None,
        error = running.failed() => return Err(error),
    };
    if let Some(refused) = refused {
        // Objects of earlier runs are not to blame: they stay, and the next `up` goes on with them.
        running.stop().await?;
        return Err(refused);
    }
    stop.cancel();
    let end = async {
        // What is on its way to the server arrives first: it could outlive the deletion otherwise.
        if let Err(refused) = work.await {
            tell(&format!("underpass: {refused:#}"));
        }
        running.shut_down().await
    };
    tokio::select! {
        ended = end => ended,
        () = signals.next() => {
            tell("underpass: ended by a second signal; the next `underpass up` finds what is left");
            Ok(Ended::Forced)
        }
    }
}

/// Applies the files, then has nothing to do but to be stopped.
async fn work(client: &Client, documents: Vec<Document>, stop: &CancellationToken) -> anyhow::Result<()> {
    manifests::apply_all(client, documents, stop, |document| tell(&format!("applied {document}"))).await?;
    stop.cancelled().await;
    Ok(())
}

struct Running {
    server: Embedded,
    controllers: JoinHandle<Result<(), RunError>>,
    stop_controllers: CancellationToken,
}

impl Running {
    async fn start(settings: &ServerSettings) -> anyhow::Result<Self> {
        let server = Embedded::start(settings).await?;
        let stop_controllers = CancellationToken::new();
        let controllers = underpass_operator::run(
            server.client(),
            controllers::settings(server.controllers_metrics()),
            stop_controllers.clone(),
        );
        Ok(Self { server, controllers: tokio::spawn(controllers), stop_controllers })
    }

    /// Resolves only when something ends that should not.
    async fn failed(&mut self) -> anyhow::Error {
        tokio::select! {
            error = self.server.failed() => error,
            ended = &mut self.controllers => match ended {
                Ok(Ok(())) => anyhow::anyhow!("the controllers ended by themselves"),
                Ok(Err(error)) => anyhow::Error::new(error),
                Err(error) => anyhow::Error::new(error).context("the controllers broke down, which is a defect of underpass"),
            },
        }
    }

    /// Our objects first, while the controllers can still take away what stands behind them; then controllers and server.
    async fn shut_down(self) -> anyhow::Result<Ended> {
        let left = teardown(&self.server.client(), TEARDOWN_PATIENCE, report).await;
        self.stop().await?;
        match left?.as_slice() {
            [] => Ok(Ended::Well),
            left => bail!("{}", describe(left)),
        }
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.stop_controllers.cancel();
        self.controllers.await??;
        self.server.stop().await
    }
}

fn report(progress: Progress) {
    match progress {
        Progress::Deleting { kind, key } => tell(&format!("deleting {kind} {key}")),
        Progress::Deleted { kind, key } => tell(&format!("deleted  {kind} {key}")),
    }
}

fn describe(left: &[Left]) -> String {
    let mut text = format!(
        "after {} seconds these objects are still there; the next `underpass up` on this data directory goes on with them:",
        TEARDOWN_PATIENCE.as_secs()
    );
    for Left { kind, key, finalizers, message } in left {
        text.push_str(&format!("\n  {kind} {key}"));
        if !finalizers.is_empty() {
            text.push_str(&format!(", held by {}", finalizers.join(", ")));
        }
        if !message.is_empty() {
            text.push_str(&format!(": {message}"));
        }
    }
    text
}
