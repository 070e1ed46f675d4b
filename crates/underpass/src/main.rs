//! The program: reads the words, calls the command, turns its end into an exit code.

mod args;
mod check;
mod commands;
mod data_dir;
mod descriptors;
mod embedded;
mod exit;
mod first_look;
mod floating;
mod following;
mod leftovers;
mod logging;
mod manager_pages;
mod manifests;
mod output;
mod own_pages;
mod proxy;
mod server;
mod settings;
mod signals;
mod way_out;
mod workplace;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    descriptors::keep_from_children();
    let args = args::Args::parse();
    logging::start(&args.logging, args.command.log_format());
    exit::code(commands::run(args.command))
}
