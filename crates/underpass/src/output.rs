//! Words on stdout and stderr that are the program's product, not its log.

use std::io::{IsTerminal, Write};

use anyhow::Context;
use serde::Serialize;

/// Writes to stdout at once: a reader may wait for exactly this line.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("cannot write to stdout")
}

/// A line of progress for the person at the terminal.
pub(crate) fn tell(line: &str) {
    // Progress is a courtesy; a closed stderr must not stop the work.
    let _ = writeln!(std::io::stderr(), "{line}");
}

pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

pub(crate) fn yaml(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_saphyr::to_string(value)?)
}

pub(crate) fn yaml_documents(values: &[impl Serialize]) -> anyhow::Result<String> {
    let documents: anyhow::Result<Vec<String>> = values.iter().map(yaml).collect();
    Ok(documents?.join("---\n"))
}

pub(crate) fn stdout_is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// How many characters fit into a line of the terminal on stdout, if it is one.
pub(crate) fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Colours are for terminals, and for people who did not say no (NO_COLOR, no-color.org).
pub(crate) fn colours(terminal: bool) -> bool {
    terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
