//! `underpass completion`: the script that teaches a shell our words.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::exit::Ended;
use crate::output;

pub(crate) fn run(shell: Shell) -> anyhow::Result<Ended> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "underpass", &mut script);
    output::print(&String::from_utf8(script)?)?;
    Ok(Ended::Well)
}
