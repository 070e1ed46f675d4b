//! One file per command.

mod apiserver;
mod completion;
pub(crate) mod controllers;
mod crds;
mod down;
mod explain;
mod monitor;
mod plan;
mod proxy;
mod status;
mod tunnel_client;
mod tunnel_server;
mod up;
mod version;

use anyhow::Context;

use crate::args::{Command, Explain, ExplainWhat};
use crate::exit::Ended;
use crate::settings::ServerSettings;

pub(crate) fn run(command: Command) -> anyhow::Result<Ended> {
    match command {
        Command::Up(args) => on_runtime(up::run(ServerSettings::resolve(args.server)?, args.engine.kind(), args.files)),
        Command::Apiserver(args) => on_runtime(apiserver::run(ServerSettings::resolve(args.server)?)),
        Command::Controllers(args) => on_runtime(controllers::run(args)),
        Command::Down(args) => on_runtime(down::run(args)),
        Command::Monitor(args) => on_runtime(monitor::run(args)),
        Command::Proxy(args) => proxy::run(args),
        Command::TunnelServer(args) => on_runtime(tunnel_server::run(args)),
        Command::TunnelClient(args) => on_runtime(tunnel_client::run(args)),
        Command::Plan(args) => plan::run(&args.files, args.output),
        Command::Explain(Explain { what: ExplainWhat::Route(args) }) => explain::run(&args),
        Command::Status(args) => on_runtime(status::run(args)),
        Command::Crds(args) => crds::run(args.output),
        Command::Completion { shell } => completion::run(shell),
        Command::Version { output } => version::run(output),
    }
}

fn on_runtime(command: impl Future<Output = anyhow::Result<Ended>>) -> anyhow::Result<Ended> {
    // An error means that somebody has chosen a provider already, and any will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Runtime::new().context("cannot start the threads")?;
    let result = runtime.block_on(command);
    // A forced end does not wait for what is stuck.
    runtime.shutdown_background();
    result
}
