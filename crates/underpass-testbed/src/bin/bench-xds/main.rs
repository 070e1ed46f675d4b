//! `make bench-xds`: our control plane beside go-control-plane's snapshot cache, with the same resources and the same clients.
//!
//! One thing changes, and the time counts until the last client has it. Control planes take turns, so that a slow minute of the machine
//! meets both. No comparison is a verdict; but a change whose bytes grow with what did not change is a mistake of ours, and fails.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

mod backends;
mod client;
mod clients;
mod feeds;
mod measure;
mod ours;
mod planes;
mod report;
mod resources;
mod wire;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::runtime::Runtime;
use underpass_testbed::interrupt;
use underpass_testbed::report::{Contender, Format, Settings, said_version};

use crate::measure::{Amounts, Case, Measure};
use crate::planes::{Plane, Programs};
use crate::report::Results;
use crate::resources::Served;
use crate::wire::Dialect;

/// Measures control planes side by side.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    programs: Programs,
    /// Only with so many backends
    #[arg(long, value_delimiter = ',')]
    backends: Vec<usize>,
    /// Only in this dialect
    #[arg(long)]
    dialect: Option<Dialect>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// What is measured: our control plane with so many backends; each line of its input is a change
    Serve { backends: usize },
}

impl Args {
    fn wants(&self, case: &Case) -> bool {
        (self.backends.is_empty() || self.backends.contains(&case.backends))
            && self.dialect.is_none_or(|dialect| dialect == case.dialect)
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if let Some(Role::Serve { backends }) = args.role {
        return ours::serve(backends).map(|()| ExitCode::SUCCESS);
    }
    interrupt::listen()?;
    let mut amounts = if args.settings.quick { Amounts::QUICK } else { Amounts::FULL };
    amounts.repeats = args.settings.repeats.unwrap_or(amounts.repeats);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let versions = args.programs.planes().map(|plane| (plane, version(plane, &args.programs))).collect();
    let mut results = Results::new(versions, report::rows());
    compare(&args, &runtime, &amounts, &mut results)?;
    if let Some(program) = &args.programs.underpass {
        feeds::measure(&runtime, program, &amounts, &mut results);
    }
    if interrupt::came() {
        return Ok(ExitCode::from(interrupt::EXIT_CODE));
    }
    match args.settings.output {
        Format::Table => print!("{}", report::text(&results)),
        Format::Json => println!("{:#}", results.json(amounts)),
    }
    if let Some(folder) = &args.settings.docs {
        report::write(&results, &amounts, folder)?;
    }
    Ok(verdict(&args, &results))
}

/// Both control planes in turn, in every case, and again.
fn compare(args: &Args, runtime: &Runtime, amounts: &Amounts, results: &mut Results) -> anyhow::Result<()> {
    for case in Case::ALL.into_iter().filter(|case| args.wants(case)) {
        let served = Served::new(case.backends)?;
        for (repeat, plane) in
            (1..=amounts.repeats).flat_map(|repeat| args.programs.planes().map(move |plane| (repeat, plane)))
        {
            if interrupt::came() {
                return Ok(());
            }
            eprintln!("{case} {repeat}/{}: {}", amounts.repeats, plane.name());
            let running = plane.start(args.programs.peer.as_deref(), &served);
            match running.and_then(|running| measure::samples(runtime, case, amounts, running, &served)) {
                Ok(samples) => results.add(plane, samples),
                Err(error) => {
                    eprintln!("{}: {error:#}", plane.name());
                    results.note(plane, &format!("{case}: {error:#}"));
                }
            }
        }
    }
    Ok(())
}

fn version(plane: Plane, programs: &Programs) -> String {
    match (plane, &programs.peer) {
        (Plane::GoControlPlane, Some(program)) => said_version(program, "--version"),
        _ => env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// What is sent for a change in one backend must not depend on how many others there are; what was not measured does not hold.
fn verdict(args: &Args, results: &Results) -> ExitCode {
    let all = Case::ALL.into_iter().filter(|case| case.dialect == Dialect::Delta && args.wants(case));
    let bytes = |case: Case| results.median(Plane::OURS, Measure::Bytes(case, backends::Change::Endpoint));
    let Some(measured) = all.map(bytes).collect::<Option<Vec<f64>>>() else {
        eprintln!("the bytes of a change could not be measured in every case");
        return ExitCode::FAILURE;
    };
    let least = measured.iter().copied().fold(f64::INFINITY, f64::min);
    let most = measured.iter().copied().fold(0.0, f64::max);
    if most > least + report::SPARE_BYTES {
        eprintln!("the bytes of a change grow with the number of backends: from {least:.0} to {most:.0}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
