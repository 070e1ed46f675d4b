//! `underpass tunnel-server`: the half of a tunnel that dials servers.

use std::io::Read;

use anyhow::Context;
use serde_json::json;
use tracing::info;
use underpass_operator::Process;
use underpass_tunnel::ServerSecrets;
use underpass_tunnel::server::{Server, Settings};

use crate::args::TunnelServer;
use crate::descriptors;
use crate::exit::Ended;
use crate::output;
use crate::signals::Signals;

/// More than secrets ever have.
const MOST_SECRETS: u64 = 64 * 1024;

pub(crate) async fn run(args: TunnelServer) -> anyhow::Result<Ended> {
    let mut signals = Signals::listen()?;
    descriptors::raise_limit();
    let parent = args.monitor.zip(args.monitor_start).map(|(pid, start)| Process::find(pid, start)).transpose()?;
    let mut json = Vec::new();
    std::io::stdin().take(MOST_SECRETS).read_to_end(&mut json).context("cannot read the secrets from stdin")?;
    let secrets = ServerSecrets::parse(&json).context("cannot use what stdin has")?;
    let server = Server::start(&secrets, Settings::new(args.control, args.data)).await?;
    let ready = json!({ "controlPort": server.control_address().port(), "pid": std::process::id() });
    output::print(&format!("{ready}\n"))?;
    tokio::select! {
        () = signals.next() => info!("ended by a signal"),
        () = server.told_to_stop() => info!("ended by an order"),
        () = end_of(parent) => info!("the process that was watched has ended"),
    }
    tokio::select! {
        () = server.stop() => Ok(Ended::Well),
        () = signals.next() => Ok(Ended::Forced),
    }
}

/// Of the process that was named, if one was. One that is gone has ended, whoever has its number now.
async fn end_of(parent: Option<Option<Process>>) {
    match parent {
        None => std::future::pending().await,
        Some(None) => {}
        Some(Some(process)) => process.ended().await,
    }
}
