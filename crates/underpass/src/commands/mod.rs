//! One file per command.

mod apiserver;
mod completion;
pub(crate) mod controllers;
mod crds;
mod down;
mod explain;
mod floating_address;
mod image;
mod install;
mod monitor;
mod operator;
mod plan;
mod proxy;
mod proxy_manager;
mod status;
mod tunnel_client;
mod tunnel_server;
mod up;
mod version;

use anyhow::Context;
use tokio::runtime::Builder;

use crate::args::{Command, Explain, ExplainWhat};
use crate::exit::Ended;
use crate::settings::ServerSettings;

pub(crate) fn run(command: Command) -> anyhow::Result<Ended> {
    match command {
        Command::Up(args) => on_runtime(up::run(ServerSettings::resolve(args.server)?, args.engine.kind(), args.files)),
        Command::Apiserver(args) => on_runtime(apiserver::run(ServerSettings::resolve(args.server)?)),
        Command::Controllers(args) => on_runtime(controllers::run(args)),
        Command::Operator(args) => on_runtime(operator::run(args)),
        Command::Down(args) => on_runtime(down::run(args)),
        Command::Monitor(args) => on_runtime(monitor::run(args)),
        Command::Proxy(args) => proxy::run(args),
        Command::TunnelServer(args) => on_one_thread(tunnel_server::run(args)),
        Command::TunnelClient(args) => on_one_thread(tunnel_client::run(args)),
        Command::FloatingAddress(args) => on_one_thread(floating_address::run(args)),
        Command::Plan(args) => plan::run(&args.files, args.output),
        Command::Explain(Explain { what: ExplainWhat::Route(args) }) => explain::run(&args),
        Command::Status(args) => on_runtime(status::run(args)),
        Command::Image(args) => image::run(&args),
        Command::Install(args) => on_runtime(install::run(args)),
        Command::Uninstall(args) => on_runtime(install::uninstall(args)),
        Command::Crds(args) => crds::run(args.output),
        Command::Completion { shell } => completion::run(shell),
        Command::Version { output } => version::run(output),
    }
}

fn on_runtime(command: impl Future<Output = anyhow::Result<Ended>>) -> anyhow::Result<Ended> {
    run_on(Builder::new_multi_thread(), command)
}

/// For what only stands beside a relay, whose threads do the work: several would mostly wake each other up.
fn on_one_thread(command: impl Future<Output = anyhow::Result<Ended>>) -> anyhow::Result<Ended> {
    run_on(Builder::new_current_thread(), command)
}

fn run_on(mut threads: Builder, command: impl Future<Output = anyhow::Result<Ended>>) -> anyhow::Result<Ended> {
    // An error means that somebody has chosen a provider already, and any will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = threads.enable_all().build().context("cannot start the threads")?;
    let result = runtime.block_on(command);
    // A forced end does not wait for what is stuck.
    runtime.shutdown_background();
    result
}
