//! `underpass down`: the way out of an instance that runs elsewhere, from here.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use underpass_operator::{Process, start_of, teardown};

use crate::args::Down;
use crate::data_dir;
use crate::exit::Ended;
use crate::output::tell;
use crate::{server, settings, way_out};

/// How long objects may take to go; as long as for `underpass up` itself.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the process may take to end, when its objects are gone.
const ENDING: Duration = Duration::from_secs(30);

pub(crate) async fn run(args: Down) -> anyhow::Result<Ended> {
    let folder = match args.data_dir {
        Some(folder) => std::path::absolute(folder)?,
        None => settings::default_data_dir()?,
    };
    let Some(pid) = data_dir::owner(&folder)? else {
        tell(&format!("no underpass runs on the data directory {}", folder.display()));
        return Ok(Ended::Well);
    };
    let process = start_of(pid).map(|start| Process::find(pid, start)).transpose()?.flatten();
    let kubeconfig = args.kubeconfig.unwrap_or_else(|| settings::kubeconfig_in(&folder));
    delete_objects(&kubeconfig).await?;
    if let Some(process) = process {
        tell(&format!("ending underpass (pid {pid})"));
        process.ask_to_end().context("cannot signal it")?;
        let ended = tokio::time::timeout(ENDING, process.ended()).await;
        ended.map_err(|_| anyhow::anyhow!("underpass (pid {pid}) does not end; its log says why"))?;
    }
    Ok(Ended::Well)
}

async fn delete_objects(kubeconfig: &Path) -> anyhow::Result<()> {
    let client = server::from_file(kubeconfig).await?.client;
    let left = teardown(&client, PATIENCE, way_out::report).await?;
    if !left.is_empty() {
        bail!(
            "after {} seconds these objects are still there, and underpass still runs:\n  {}",
            PATIENCE.as_secs(),
            way_out::lines(&left).join("\n  ")
        );
    }
    Ok(())
}
