//! The operator on a real Kubernetes: `make test-lab`, or `make lab-up` and then `cargo test -p underpass --test lab`.
//!
//! - `install`: onto the cluster, newer over older, and off it without a trace.
//! - `operator`: replicas that follow each other.
//! - `proxies`: what a ProxyServer becomes.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod install;
mod operator;
mod proxies;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use underpass_testbed::Process;

const BINARY: &str = env!("CARGO_BIN_EXE_underpass");

/// A cluster has one set of our definitions: who brings them and takes them away does so alone.
fn alone_with_definitions() -> MutexGuard<'static, ()> {
    static DEFINITIONS: Mutex<()> = Mutex::new(());
    DEFINITIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An archive of this very program as an image of that name.
fn image(name: &str) -> tempfile::NamedTempFile {
    let archive = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new(BINARY);
    command.args(["image", "--name", name, "--output"]).arg(archive.path());
    Process::start(&mut command).wait().ok();
    archive
}

/// The folder of the whole project.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}
