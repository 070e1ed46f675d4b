//! `underpass tunnel-server`: the half of a tunnel that dials servers.

use std::io::Read;

use anyhow::Context;
use serde_json::json;
use tracing::info;
use underpass_tunnel::ServerSecrets;
use underpass_tunnel::server::{Server, Settings};

use crate::args::TunnelServer;
use crate::descriptors;
use crate::exit::Ended;
use crate::output;
use crate::signals::Signals;
use crate::watched::Watched;

/// More than secrets ever have.
const MOST_SECRETS: u64 = 64 * 1024;

pub(crate) async fn run(args: TunnelServer) -> anyhow::Result<Ended> {
    let mut signals = Signals::listen()?;
    descriptors::raise_limit();
    let parent = match (args.monitor, args.monitor_start) {
        (Some(pid), Some(start)) => Watched::process(pid, start)?,
        _ => Watched::nobody(),
    };
    let mut json = Vec::new();
    std::io::stdin().take(MOST_SECRETS).read_to_end(&mut json).context("cannot read the secrets from stdin")?;
    let secrets = ServerSecrets::parse(&json).context("cannot use what stdin has")?;
    let server = Server::start(&secrets, Settings::new(args.control, args.data)).await?;
    let ready = json!({ "controlPort": server.control_address().port(), "pid": std::process::id() });
    output::print(&format!("{ready}\n"))?;
    tokio::select! {
        () = signals.next() => info!("ended by a signal"),
        () = server.told_to_stop() => info!("ended by an order"),
        () = parent.ended() => info!("the process that was watched has ended"),
    }
    tokio::select! {
        () = server.stop() => Ok(Ended::Well),
        () = signals.next() => Ok(Ended::Forced),
    }
}
