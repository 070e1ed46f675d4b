//! How the program ends. The chain of causes is printed here and nowhere else.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Ended by a second signal: what shells report for a program that SIGINT ended.
const FORCED: u8 = 130;

/// How a command ended when it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Well,
    /// It did its work, and the result is bad news that is already printed.
    Badly,
    Forced,
}

impl Ended {
    /// The same end, with news that are bad.
    pub(crate) fn but_badly(self) -> Self {
        if self == Self::Well { Self::Badly } else { self }
    }
}

pub(crate) fn code(result: anyhow::Result<Ended>) -> ExitCode {
    match result {
        Ok(Ended::Well) => ExitCode::SUCCESS,
        Ok(Ended::Badly) => ExitCode::FAILURE,
        Ok(Ended::Forced) => ExitCode::from(FORCED),
        // The reader of our output went away: it has what it wanted.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell when stderr is closed.
            let _ = writeln!(std::io::stderr(), "underpass: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}
