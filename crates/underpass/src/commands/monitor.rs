//! `underpass monitor`: waits for the end of the controllers, and cleans up when they were killed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use tracing::{info, warn};
use underpass_operator::watchdog::WORD;
use underpass_operator::{Backoff, Process, Sweep, abandon, host, turn};

use crate::args::Monitor;
use crate::exit::Ended;
use crate::server;
use crate::workplace::Workplace;

/// How often something is tried that fails: an engine may be busy with what the dead had begun.
const ATTEMPTS: u32 = 5;
/// An engine goes on with what it was asked for by the dead, and nobody is told when that is there: so nothing is looked for until it was
/// not there twice, at looks so far apart.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
const EMPTY_LOOKS: u32 = 2;
/// Somebody who makes more all the time is none of the dead.
const MOST_LOOKS: u32 = 30;
/// How long the API server may take for all objects.
const TELLING: Duration = Duration::from_secs(60);

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
    let workplace = Workplace { folder, instance: instance.clone(), engine: engine.kind(), kubeconfig: None };
    let sweep = Sweep { engine: workplace.engine()?, folders: workplace.tunnels(), instance };
    let cleaning = async {
        let _until_all_is_removed = turn;
        clean_up(&sweep, &workplace, pid).await
    };
    let (ended, ()) = tokio::join!(cleaning, tell_objects(kubeconfig, pid));
    ended
}

/// Whether the work ended in order. The pipe ends with the process at the latest.
async fn said_done() -> bool {
    let said = tokio::task::spawn_blocking(|| std::io::read_to_string(std::io::stdin())).await;
    // What cannot be read was not said.
    said.is_ok_and(|said| said.is_ok_and(|said| said.contains(WORD)))
}

async fn clean_up(sweep: &Sweep, workplace: &Workplace, pid: u32) -> anyhow::Result<Ended> {
    warn!(pid, "the controllers were killed: their containers, networks and processes are removed");
    underpass_engines::remove_stale_locks();
    let (backoff, mut troubles, mut empty) = (Backoff::default(), 0, 0);
    for _ in 0..MOST_LOOKS {
        let mut found = false;
        let pause = match sweep.remove_all(|_| found = true).await {
            Ok(()) => {
                empty = if found { 0 } else { empty + 1 };
                LOOK_AGAIN
            }
            Err(error) => {
                (troubles, empty) = (troubles + 1, 0);
                warn!(error, attempt = troubles, "not everything could be removed");
                backoff.wait(troubles)
            }
        };
        if empty == EMPTY_LOOKS {
            workplace.clear()?;
            return Ok(Ended::Well);
        }
        if troubles == ATTEMPTS {
            break;
        }
        tokio::time::sleep(pause).await;
    }
    bail!("not everything of the instance {} could be removed; the next start finds it", sweep.instance)
}

/// Sees to it that no object says any longer what nobody proves. Should others work already, they look at what is written, and write
/// what they see.
async fn tell_objects(kubeconfig: Option<PathBuf>, pid: u32) {
    let Some(kubeconfig) = kubeconfig else { return };
    let why = format!(
        "the controllers (process {pid} on {}) were killed, and what they had made is removed; `underpass controllers` starts it anew",
        host()
    );
    let backoff = Backoff::default();
    for attempt in 1..=ATTEMPTS {
        match tell_once(&kubeconfig, &why).await {
            Ok(()) => return,
            Err(error) => warn!(error = format!("{error:#}"), attempt, "the objects still say what the dead have seen"),
        }
        tokio::time::sleep(backoff.wait(attempt)).await;
    }
}

async fn tell_once(kubeconfig: &Path, why: &str) -> anyhow::Result<()> {
    let client = server::from_file(kubeconfig).await?.client;
    let told = tokio::time::timeout(TELLING, abandon(&client, why)).await;
    told.context("the API server does not answer")?.context("cannot write what has happened")
}
