//! `underpass monitor`: waits for the end of the controllers, and cleans up when they were killed.

use anyhow::{Context, bail};
use tracing::warn;
use underpass_operator::watchdog::WORD;
use underpass_operator::{Process, Sweep};

use crate::args::Monitor;
use crate::exit::Ended;
use crate::workplace::Workplace;

/// How often a clean-up is tried: an engine may be busy with what the dead had begun.
const ATTEMPTS: u32 = 5;

pub(crate) async fn run(args: Monitor) -> anyhow::Result<Ended> {
    let watched = Process::find(args.pid, args.start).context("cannot watch the process")?;
    if said_done().await {
        return Ok(Ended::Well);
    }
    if let Some(process) = watched {
        process.ended().await;
    }
    let workplace =
        Workplace { folder: args.folder.clone(), instance: args.instance.clone(), engine: args.engine.kind() };
    let sweep = Sweep { engine: workplace.engine()?, folders: args.folder.join("tunnels"), instance: args.instance };
    clean_up(&sweep, args.pid).await
}

/// Whether the work ended in order. The pipe ends with the process at the latest.
async fn said_done() -> bool {
    let said = tokio::task::spawn_blocking(|| std::io::read_to_string(std::io::stdin())).await;
    // What cannot be read was not said.
    said.is_ok_and(|said| said.is_ok_and(|said| said.contains(WORD)))
}

async fn clean_up(sweep: &Sweep, pid: u32) -> anyhow::Result<Ended> {
    warn!(pid, "the controllers were killed: their containers, networks and processes are removed");
    underpass_engines::remove_stale_locks();
    let backoff = underpass_operator::Backoff::default();
    for attempt in 1..=ATTEMPTS {
        match sweep.remove_all().await {
            Ok(()) => return Ok(Ended::Well),
            Err(error) => warn!(error, attempt, "not everything could be removed"),
        }
        tokio::time::sleep(backoff.wait(attempt)).await;
    }
    bail!("not everything of the instance {} could be removed; the next start finds it", sweep.instance)
}
