//! The life of `underpass up`, from the ready line to the last object, and the commands around it.

mod apart;
mod commands;
mod ending;
mod files;
mod log;
mod quiet;
mod starting;
mod status;
mod watchdog;

use std::path::{Path, PathBuf};

use underpass_testbed::{Ended, Launch};

use crate::{BINARY, assert_contains, network};

fn launch(command: &str) -> Launch {
    Launch::command(BINARY, command)
}

/// Runs a whole command line of underpass to its end.
#[track_caller]
fn run(line: &str) -> Ended {
    let mut words = line.split_whitespace();
    let command = launch(words.next().unwrap());
    words.fold(command, Launch::arg).run()
}

/// Writes a file into `folder` and gives its path.
fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}
