//! `underpass monitor`: waits for the end of the controllers, and cleans up when they were killed.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::Instant;
use tracing::{info, warn};
use underpass_operator::turn::{self, Turn};
use underpass_operator::watchdog::WORD;
use underpass_operator::{Backoff, Process, Sweep, abandon, host};

use crate::args::Monitor;
use crate::exit::Ended;
use crate::server;
use crate::workplace::Workplace;

/// How long what fails is tried again: an engine may be busy with what the dead had begun, or be on its way back.
const PATIENCE: Duration = Duration::from_secs(120);
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), longest: Duration::from_secs(5) };
/// An engine goes on with what it was asked for by the dead, and nobody is told when that is there: so nothing is looked for until it was
/// not there twice, at looks so far apart.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
const EMPTY_LOOKS: u32 = 2;
/// Somebody who makes more all the time is none of the dead.
const MOST_LOOKS: u32 = 30;
/// How often the API server is told the same, and how long it may take: others wait for their turn meanwhile.
const ATTEMPTS: u32 = 5;
const TELLING: Duration = Duration::from_secs(60);

/// What has become of what the dead had made. It is told before others have their turn.
enum Cleaned {
    Everything(Turn),
    Partly(Turn, String),
    /// Somebody came while nothing could be done, and has it all.
    LeftToOthers,
}

pub(crate) async fn run(args: Monitor) -> anyhow::Result<Ended> {
    let watched = Process::find(args.pid, args.start).context("cannot watch the process")?;
    if said_done().await {
        return Ok(Ended::Well);
    }
    if let Some(process) = watched {
        process.ended().await;
    }
    let Monitor { pid, start, instance, folder, kubeconfig, engine } = args;
    let Some(turn) = turn::after(&folder, pid, start).await? else {
        info!(pid, "the controllers were killed, and what they had made is in the hands of others already");
        return Ok(Ended::Well);
    };
    warn!(pid, "the controllers were killed: their containers, networks and processes are removed");
    let workplace = Workplace { folder, instance: instance.clone(), engine: engine.kind(), kubeconfig: None };
    let sweep = Sweep { engine: workplace.engine()?, folders: workplace.tunnels(), instance };
    let tell = |what: &str| {
        let why = format!("the controllers (process {pid} on {}) were killed, and {what}", host());
        tell_objects(kubeconfig.as_deref(), why)
    };
    let mut cleaning = std::pin::pin!(clean_up(&sweep, &workplace, turn));
    let cleaned = tokio::select! {
        // Who has not been told by then is told how it ended.
        cleaned = &mut cleaning => cleaned,
        () = tell("their watchdog removes what they had made; `underpass controllers` starts it anew") => cleaning.await,
    };
    match cleaned? {
        Cleaned::Everything(_turn) => {
            tell("what they had made is removed; `underpass controllers` starts it anew").await;
        }
        Cleaned::Partly(_turn, why) => {
            tell("not everything that they had made could be removed; `underpass controllers` finds what is left")
                .await;
            bail!("not everything of the instance {} could be removed; the next start finds it: {why}", sweep.instance)
        }
        Cleaned::LeftToOthers => info!("what is left of it is in the hands of others"),
    }
    Ok(Ended::Well)
}

/// Whether the work ended in order. The pipe ends with the process at the latest.
async fn said_done() -> bool {
    let said = tokio::task::spawn_blocking(|| std::io::read_to_string(std::io::stdin())).await;
    // What cannot be read was not said.
    said.is_ok_and(|said| said.is_ok_and(|said| said.contains(WORD)))
}

/// What needs no engine goes first, whether or not there is one. Where the dead never made anything in one, none is waited for.
async fn clean_up(sweep: &Sweep, workplace: &Workplace, mut turn: Turn) -> anyhow::Result<Cleaned> {
    underpass_engines::remove_stale_locks();
    let (began, mut troubles) = (Instant::now(), 0);
    loop {
        let cleaned = async {
            sweep.remove_outside_of_the_engine().await?;
            if workplace.home().is_nowhere() {
                return Ok(());
            }
            remove_until_nothing_comes(sweep).await
        };
        let Err(error) = cleaned.await else {
            workplace.clear()?;
            return Ok(Cleaned::Everything(turn));
        };
        troubles += 1;
        warn!(error, attempt = troubles, "not everything could be removed");
        if began.elapsed() > PATIENCE {
            return Ok(Cleaned::Partly(turn, error));
        }
        // Who wants to start meanwhile need not wait for this.
        drop(turn);
        tokio::time::sleep(BACKOFF.wait(troubles)).await;
        turn = match turn::again(&workplace.folder).await? {
            Some(turn) => turn,
            None => return Ok(Cleaned::LeftToOthers),
        };
    }
}

async fn remove_until_nothing_comes(sweep: &Sweep) -> Result<(), String> {
    let mut empty = 0;
    for _ in 0..MOST_LOOKS {
        let mut found = false;
        sweep.remove_all(|_| found = true).await?;
        empty = if found { 0 } else { empty + 1 };
        if empty == EMPTY_LOOKS {
            return Ok(());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Err("more comes all the time".to_owned())
}

/// Sees to it that no object says any longer what nobody proves. Should others work already, they look at what is written, and write
/// what they see.
async fn tell_objects(kubeconfig: Option<&Path>, why: String) {
    let Some(kubeconfig) = kubeconfig else { return };
    let telling = async {
        for attempt in 1..=ATTEMPTS {
            match tell_once(kubeconfig, &why).await {
                Ok(()) => return,
                Err(error) => {
                    warn!(error = format!("{error:#}"), attempt, "the objects still say what the dead have seen");
                }
            }
            tokio::time::sleep(BACKOFF.wait(attempt)).await;
        }
    };
    if tokio::time::timeout(TELLING, telling).await.is_err() {
        warn!("the objects still say what the dead have seen: the API server does not answer");
    }
}

async fn tell_once(kubeconfig: &Path, why: &str) -> anyhow::Result<()> {
    let client = server::from_file(kubeconfig).await?.client;
    abandon(&client, why).await.context("cannot write what has happened")
}
