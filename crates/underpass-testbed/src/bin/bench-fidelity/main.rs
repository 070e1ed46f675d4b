//! `make bench-fidelity`: what a relay owes to both sides, asked of our proxy, Envoy, HAProxy, nginx and sniproxy.
//!
//! The exit code says whether it could be asked, and, of our own proxy alone, whether it holds.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use underpass_testbed::fidelity::{self, Settings, Verdict};
use underpass_testbed::interrupt;
use underpass_testbed::proxies::{Choice, Proxy, Running};
use underpass_testbed::report::{Contender, Format};

use crate::report::Column;

/// Runs all cases against all proxies that are here.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    choice: Choice,
    /// Only cases whose name contains this
    #[arg(long, default_value = "")]
    case: String,
    /// Connections in the case that looks for leaks
    #[arg(long, default_value_t = 100_000)]
    sequential: usize,
    #[arg(short, long, default_value = "table")]
    output: Format,
    /// Write the page into this folder
    #[arg(long)]
    docs: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    interrupt::listen()?;
    let settings = Settings { sequential: args.sequential };
    let mut columns = Vec::new();
    for (proxy, program) in args.choice.programs()? {
        eprintln!("{}", proxy.name());
        let start = |routing: &_| Running::start_apart(proxy, &program, routing);
        let verdicts = fidelity::run(start, proxy, settings, &args.case);
        if interrupt::came() {
            return Ok(ExitCode::from(interrupt::EXIT_CODE));
        }
        columns.push(Column { proxy, version: proxy.version(&program), verdicts });
    }
    match args.output {
        Format::Table => print!("{}", report::table(&columns)),
        Format::Json => println!("{:#}", report::json(&columns)),
    }
    if let Some(folder) = &args.docs {
        std::fs::write(folder.join("fidelity.md"), report::page(&columns, settings))?;
    }
    let ours = columns.iter().find(|column| column.proxy == Proxy::Underpass);
    let broken = ours.is_some_and(|ours| ours.verdicts.iter().any(|(_, verdict)| *verdict != Verdict::Pass));
    Ok(if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
