//! `make bench-relay`: our proxy beside Envoy, HAProxy, nginx and sniproxy, with the same backend, the same load and two workers each.
//!
//! What counts is the processor time of the proxy's own processes: on a machine that others use too, times are noise and processor time
//! is nearly not. Proxies take turns, so that a slow minute of the machine meets all of them. No result is a verdict: the exit code says
//! whether it could be measured, never how it went.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

mod measure;
mod report;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use underpass_testbed::interrupt;
use underpass_testbed::load::Backend;
use underpass_testbed::proxies::Choice;
use underpass_testbed::report::{Contender, Format, Settings};

use crate::measure::{Amounts, Bench, Measure};
use crate::report::Results;

/// Measures proxies side by side.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    choice: Choice,
    /// Only these parts
    #[arg(long, value_delimiter = ',')]
    part: Vec<Part>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Carrying,
    Idling,
    Routing,
    Changing,
    Losing,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    interrupt::listen()?;
    let mut amounts = if args.settings.quick { Amounts::QUICK } else { Amounts::FULL };
    amounts.repeats = args.settings.repeats.unwrap_or(amounts.repeats);
    let backend = Backend::start(amounts.bulk_bytes)?;
    let programs = args.choice.programs()?;
    let benches: Vec<Bench<'_>> =
        programs.iter().map(|(proxy, program)| Bench { proxy: *proxy, program, backend: &backend, amounts }).collect();
    let versions = programs.iter().map(|(proxy, program)| (*proxy, proxy.version(program))).collect();
    let mut results = Results::new(versions, report::rows(&amounts));
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
        report::write(&results, &amounts, folder)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One part of the measures: all proxies in turn, and again.
fn run(part: Part, benches: &[Bench<'_>], results: &mut Results) {
    // Its result is a count over many changes; once is enough.
    let repeats = if part == Part::Losing { 1 } else { benches.first().map_or(1, |bench| bench.amounts.repeats) };
    for (repeat, bench) in (1..=repeats).flat_map(|repeat| benches.iter().map(move |bench| (repeat, bench))) {
        if interrupt::came() {
            return;
        }
        eprintln!("{part:?} {repeat}/{repeats}: {}", bench.proxy.name());
        match samples(part, bench) {
            Ok(samples) => results.add(bench.proxy, samples),
            Err(error) => {
                eprintln!("{}: {error:#}", bench.proxy.name());
                results.note(bench.proxy, &format!("{part:?}: {error:#}"));
            }
        }
    }
}

fn samples(part: Part, bench: &Bench<'_>) -> anyhow::Result<measure::Samples> {
    let amounts = bench.amounts;
    Ok(match part {
        Part::Carrying => bench.carrying()?,
        Part::Idling => bench.idling()?,
        Part::Routing => vec![
            (Measure::RoutingFew, bench.routing(10)?),
            (Measure::RoutingVeryMany, bench.routing(amounts.very_many)?),
        ],
        Part::Changing => {
            let many = bench.changing(amounts.many)?.into_iter().map(|time| (Measure::ChangeMany, time));
            let very_many = bench.changing(amounts.very_many)?.into_iter().map(|time| (Measure::ChangeVeryMany, time));
            many.chain(very_many).collect()
        }
        Part::Losing => vec![(Measure::Lost, bench.losing()? as f64)],
    })
}
