//! `underpass up`: API server and controllers in one process, and an orderly way out.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{anyhow, bail};
use kube::Client;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use underpass_engines::EngineKind;
use underpass_operator::{FirstLook, Health, Left, Progress, RunError, Settings, teardown};

use super::controllers;
use crate::check::Checker;
use crate::embedded::Embedded;
use crate::exit::Ended;
use crate::first_look;
use crate::manifests::{self, Document};
use crate::output::{self, tell};
use crate::settings::{Place, ServerSettings};
use crate::signals::Signals;
use crate::way_out;
use crate::workplace::Workplace;

/// How long the way out may take. An engine needs seconds for a stubborn container; a minute means that something is stuck.
const TEARDOWN_PATIENCE: Duration = Duration::from_secs(60);

/// Who holds the lease of the controllers. Always the same name: the data directory has one process, so that whoever finds the name of
/// its predecessor there knows that it is gone.
const CANDIDATE: &str = "underpass-up";

pub(crate) async fn run(
    settings: ServerSettings,
    engine: Option<EngineKind>,
    files: Vec<PathBuf>,
) -> anyhow::Result<Ended> {
    // A file that cannot be read, or that a server would refuse, is known before anything is started.
    let documents = manifests::read_all(&files)?;
    Checker::new()?.check_all(&documents)?;
    let mut signals = Signals::listen()?;
    let mut running = Running::start(&settings, engine).await?;
    let (work, stop) = (running.work(&settings), CancellationToken::new());
    let mut work = std::pin::pin!(work.run(documents, &stop));
    let refused = tokio::select! {
        result = &mut work => result.err(),
        () = signals.next() => None,
        error = running.failed() => return Err(error),
    };
    stop.cancel();
    let end = async {
        if let Some(refused) = refused {
            return running.give_up(refused, &settings).await;
        }
        // What is on its way to the server arrives first: it could outlive the deletion otherwise.
        if let Err(Refused { why, .. }) = work.await {
            tell(&format!("underpass: {why:#}"));
        }
        running.shut_down(way_out::report_to_who_interrupted).await
    };
    tokio::select! {
        ended = end => ended,
        () = signals.next() => {
            tell("underpass: ended by a second signal; the next `underpass up` finds what is left");
            Ok(Ended::Forced)
        }
    }
}

/// A document that was not taken, and those before it that were.
struct Refused {
    why: anyhow::Error,
    applied: Vec<String>,
}

/// What is done while server and controllers run.
struct Work {
    client: Client,
    announcement: String,
    first_look: FirstLook,
    health: Health,
}

impl Work {
    /// Says that all is ready when nothing is left that only an earlier run has seen, and applies the files; then there is nothing to do
    /// but to be stopped.
    async fn run(self, documents: Vec<Document>, stop: &CancellationToken) -> Result<(), Refused> {
        let mut applied = Vec::new();
        tokio::select! {
            () = first_look::wait(&self.first_look, &self.health) => {}
            () = stop.cancelled() => return Ok(()),
        }
        if let Err(why) = output::print(&self.announcement) {
            return Err(Refused { why, applied });
        }
        let note = |document: &Document| {
            tell(&format!("applied {document}"));
            applied.push(document.subject());
        };
        match manifests::apply_all(&self.client, documents, stop, note).await {
            Ok(()) => stop.cancelled().await,
            Err(why) => return Err(Refused { why, applied }),
        }
        Ok(())
    }
}

struct Running {
    server: Embedded,
    workplace: Workplace,
    controllers: JoinHandle<Result<(), RunError>>,
    stop_controllers: CancellationToken,
    first_look: FirstLook,
    health: Health,
}

impl Running {
    async fn start(settings: &ServerSettings, engine: Option<EngineKind>) -> anyhow::Result<Self> {
        let server = Embedded::start(settings).await?;
        let instance = underpass_operator::identity(&server.client()).await?;
        let workplace = Workplace { folder: server.folder().to_owned(), instance, engine, kubeconfig: None };
        if let Err(elsewhere) = workplace.refuse_another_engine().await {
            server.stop().await?;
            return Err(elsewhere);
        }
        let (stop_controllers, first_look) = (CancellationToken::new(), FirstLook::default());
        let settings = controllers::settings(server.controllers_metrics(), CANDIDATE.to_owned(), workplace.clone())?;
        let settings = Settings { first_look: Some(first_look.clone()), ..settings };
        let health = settings.health.clone();
        let controllers = underpass_operator::run(server.client(), settings, stop_controllers.clone());
        Ok(Self { server, workplace, controllers: tokio::spawn(controllers), stop_controllers, first_look, health })
    }

    fn work(&self, settings: &ServerSettings) -> Work {
        Work {
            client: self.server.client(),
            announcement: self.server.announcement(settings.output),
            first_look: self.first_look.clone(),
            health: self.health.clone(),
        }
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
    async fn shut_down(self, report: fn(Progress)) -> anyhow::Result<Ended> {
        let left = teardown(&self.server.client(), TEARDOWN_PATIENCE, report).await;
        let workplace = self.workplace.clone();
        self.stop().await?;
        match left?.as_slice() {
            [] => {
                workplace.clear()?;
                Ok(Ended::Well)
            }
            left => bail!("{}", describe(left)),
        }
    }

    /// Objects of earlier runs are not to blame for a file: all stay, and the next `up` goes on with them. Where nothing is kept they go
    /// as at every end, with what was made for them.
    async fn give_up(self, Refused { why, applied }: Refused, settings: &ServerSettings) -> anyhow::Result<Ended> {
        if settings.durable {
            self.stop().await?;
            return Err(if applied.is_empty() { why } else { anyhow!("{why:#}\n{}", kept(&applied, settings)) });
        }
        tell(&format!("underpass: {why:#}"));
        if !applied.is_empty() {
            tell(&format!(
                "with --ephemeral nothing is kept: what was applied before goes now ({})",
                applied.join(", ")
            ));
        }
        Ok(self.shut_down(way_out::report).await?.but_badly())
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.stop_controllers.cancel();
        self.controllers.await??;
        self.server.stop().await
    }
}

fn kept(applied: &[String], settings: &ServerSettings) -> String {
    let (what, up) = (applied.join(", "), "underpass up");
    let again = match &settings.place {
        Place::Folder(folder) => format!("`{up} --data-dir {}`", folder.display()),
        Place::Temporary => format!("`{up}`"),
    };
    format!(
        "applied before that, and kept: {what}\n\
         to go on, mend the file and start again; to remove them, start {again} and end it with Ctrl-C, which deletes all objects of \
         underpass's kinds (those of other kinds: `kubectl delete` while it runs)"
    )
}

fn describe(left: &[Left]) -> String {
    let seconds = TEARDOWN_PATIENCE.as_secs();
    let mut text = format!(
        "after {seconds} seconds these objects are still there; the next `underpass up` on this data directory goes on with them:"
    );
    text.extend(way_out::lines(left).into_iter().map(|line| format!("\n  {line}")));
    text
}
