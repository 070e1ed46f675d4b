//! `underpass down`: the way out of an instance that runs elsewhere, from here. Of one that was killed it removes what is left.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use underpass_apiserver::Dormant;
use underpass_engines::{EngineKind, Home};
use underpass_operator::{Process, Sweep, start_of, teardown, turn};
use underpass_resources::KINDS;

use crate::args::Down;
use crate::data_dir::{self, DataDir};
use crate::exit::Ended;
use crate::output::tell;
use crate::workplace::Workplace;
use crate::{server, settings, way_out};

/// How long the process may take to end, when its objects are gone.
const ENDING: Duration = Duration::from_secs(30);

pub(crate) async fn run(args: Down) -> anyhow::Result<Ended> {
    let folder = match args.data_dir {
        Some(folder) => std::path::absolute(folder)?,
        None => settings::default_data_dir()?,
    };
    let Some(pid) = data_dir::owner(&folder)? else {
        tell(&format!("no underpass runs on the data directory {}", folder.display()));
        return clean_up(&folder, args.engine.kind()).await.map(|()| Ended::Well);
    };
    let process = start_of(pid).map(|start| Process::find(pid, start)).transpose()?.flatten();
    let kubeconfig = args.kubeconfig.unwrap_or_else(|| settings::kubeconfig_in(&folder));
    delete_objects(&kubeconfig, Duration::from_secs(args.timeout)).await?;
    if let Some(process) = process {
        tell(&format!("ending underpass (pid {pid})"));
        process.ask_to_end().context("cannot signal it")?;
        let ended = tokio::time::timeout(ENDING, process.ended()).await;
        ended.map_err(|_| anyhow::anyhow!("underpass (pid {pid}) does not end; its log says why"))?;
    }
    Ok(Ended::Well)
}

async fn delete_objects(kubeconfig: &Path, patience: Duration) -> anyhow::Result<()> {
    let client = server::from_file(kubeconfig).await?.client;
    let left = teardown(&client, patience, way_out::report).await?;
    if !left.is_empty() {
        bail!(
            "after {} seconds these objects are still there, and underpass still runs:\n  {}",
            patience.as_secs(),
            way_out::lines(&left).join("\n  ")
        );
    }
    Ok(())
}

/// What one that was killed may have left, and its watchdog with it. Objects stay, as they do for the watchdog: what somebody declared is
/// no leftover.
async fn clean_up(folder: &Path, engine: Option<EngineKind>) -> anyhow::Result<()> {
    // A folder that was never anybody's stays as it is.
    if !Dormant::is_in(folder) {
        return Ok(());
    }
    let data_dir = DataDir::take(folder)?;
    let dormant = Dormant::open(data_dir.path())?;
    let objects: usize = KINDS.iter().map(|kind| dormant.count(kind.plural, kind.group)).sum();
    if let Some(instance) = dormant.identity() {
        let place = folder.to_owned();
        let workplace = Workplace { folder: place, instance: instance.clone(), engine, kubeconfig: None };
        turn::take(folder).await?;
        workplace.refuse_another_engine().await?;
        let (engine, folders) = (workplace.engine()?, workplace.tunnels());
        sweep(Sweep { engine, folders, instance }, &workplace.home(), objects).await?;
        workplace.clear()?;
    }
    remove_kubeconfig(folder)?;
    if objects > 0 {
        let (are, up) = (if objects == 1 { "object is" } else { "objects are" }, "underpass up --data-dir");
        tell(&format!(
            "{objects} {are} kept: `{up} {}` goes on with them, and deletes them at its end",
            folder.display()
        ));
    }
    Ok(())
}

async fn sweep(sweep: Sweep, home: &Home, objects: usize) -> anyhow::Result<()> {
    underpass_engines::remove_stale_locks();
    let Err(why) = sweep.remove_all(|what| tell(&format!("removed  {what}"))).await else { return Ok(()) };
    let mut left: Vec<String> = sweep.outside_of_the_engine().iter().map(ToString::to_string).collect();
    left.extend(home.place().map(|place| format!("whatever was made in {place}")));
    match left.as_slice() {
        [] if objects == 0 => Ok(()),
        [] => {
            tell(&format!("what a killed one may have left in a container engine cannot be looked for: {why}"));
            Ok(())
        }
        left => bail!(
            "not everything that a killed one has left could be removed: {why}\n\
             these are there, and what belongs to them in the engine: {}\n\
             see to it that the engine answers, and call `underpass down` again",
            left.join(", ")
        ),
    }
}

/// Of a server that is gone. One that was written elsewhere is not known here.
fn remove_kubeconfig(folder: &Path) -> anyhow::Result<()> {
    let path = settings::kubeconfig_in(folder);
    match std::fs::remove_file(&path) {
        Ok(()) => tell("removed  kubeconfig"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot remove {}", path.display())),
    }
    Ok(())
}
