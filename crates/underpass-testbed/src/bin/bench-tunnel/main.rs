//! `make bench-tunnel`: our tunnel beside rathole, bore, frp and chisel, on the same engine, with the same servers and the same load.
//!
//! What counts is the processor time of both halves: on a machine that others use too, times are noise and processor time is nearly
//! not. Tunnels take turns, so that a slow minute of the machine meets all of them. No result is a verdict: the exit code says whether
//! it could be measured, never how it went.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

mod measure;
mod report;
mod site;
mod tunnels;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use underpass_engines::EngineKind;
use underpass_testbed::interrupt;
use underpass_testbed::load::Backend;
use underpass_testbed::report::{Contender, Format, Settings};

use crate::measure::{Amounts, Bench, Samples};
use crate::report::Results;
use crate::site::Site;
use crate::tunnels::{Bed, Programs, Services, Tunnel};

/// Measures tunnels side by side.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    programs: Programs,
    /// Only these parts
    #[arg(long, value_delimiter = ',')]
    part: Vec<Part>,
    /// The engine of the containers, as `scripts/engines up` has started it
    #[arg(long, default_value = "docker")]
    engine: Engine,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Carrying,
    Idling,
    Starting,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Engine {
    Docker,
    Podman,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    interrupt::listen()?;
    let mut amounts = if args.settings.quick { Amounts::QUICK } else { Amounts::FULL };
    amounts.repeats = args.settings.repeats.unwrap_or(amounts.repeats);
    let backend = Backend::start(amounts.bulk_bytes)?;
    let programs = args.programs.found()?;
    let site = Site::on(args.engine.into())?;
    let bench = |(tunnel, program)| {
        let bed = Bed { site: &site, program, servers: Services::of(&backend) };
        Bench { tunnel, bed, backend: &backend, amounts }
    };
    let benches: Vec<Bench<'_>> =
        programs.iter().map(|(tunnel, program)| bench((*tunnel, program.as_path()))).collect();
    let versions = programs.iter().map(|(tunnel, program)| (*tunnel, tunnel.version(program))).collect();
    let mut results = Results::new(versions, report::rows());
    for part in Part::value_variants() {
        if args.part.is_empty() || args.part.contains(part) {
            run(*part, &benches, &mut results);
        }
    }
    if interrupt::came() {
        return Ok(ExitCode::from(interrupt::EXIT_CODE));
    }
    match args.settings.output {
        Format::Table => print!("{}", results.table()),
        Format::Json => println!("{:#}", results.json(amounts)),
    }
    if let Some(folder) = &args.settings.docs {
        report::write(&results, &amounts, &site.engine_version()?, folder)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One part of the measures: all tunnels in turn, and again. Only ours is declared, so that only ours has a time from declaration to byte.
fn run(part: Part, benches: &[Bench<'_>], results: &mut Results) {
    let Some(Bench { amounts, .. }) = benches.first() else { return };
    let repeats = if part == Part::Starting { amounts.starts } else { amounts.repeats };
    let asked = |bench: &&Bench<'_>| part != Part::Starting || bench.tunnel == Tunnel::OURS;
    for (repeat, bench) in
        (1..=repeats).flat_map(|repeat| benches.iter().filter(asked).map(move |bench| (repeat, bench)))
    {
        if interrupt::came() {
            return;
        }
        let name = bench.tunnel.name();
        eprintln!("{part:?} {repeat}/{repeats}: {name}");
        match samples(part, bench) {
            Ok(samples) => results.add(bench.tunnel, samples),
            Err(error) => {
                eprintln!("{name}: {error:#}");
                results.note(bench.tunnel, &format!("{part:?}: {error:#}"));
            }
        }
    }
}

fn samples(part: Part, bench: &Bench<'_>) -> anyhow::Result<Samples> {
    match part {
        Part::Carrying => bench.carrying(),
        Part::Idling => bench.idling(),
        Part::Starting => bench.starting(),
    }
}

impl From<Engine> for EngineKind {
    fn from(engine: Engine) -> Self {
        match engine {
            Engine::Docker => Self::Docker,
            Engine::Podman => Self::Podman,
        }
    }
}
