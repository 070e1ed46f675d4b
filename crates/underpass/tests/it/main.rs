//! The binary from outside: everything here starts the real `underpass` and talks to it as its users do.
//!
//! - `answers`: small answers that clients rely on, as kube-apiserver gives them.
//! - `clients`: kube-rs and Python's client, as programs use them.
//! - `crash`: `kill -9` during concurrent writes; a recorded history is checked.
//! - `damage`: a random walk of damaged bodies breaks nothing.
//! - `failures`: what goes wrong around underpass is said in one sentence, and destroys nothing.
//! - `floating_address`: an address that one of several pods has, in namespaces on one switch.
//! - `hostile`: requests that mean harm, or amount to it, are refused or survived.
//! - `image`: the program as an image, and the list of what is in it.
//! - `infra`: an Infra and the objects that it consists of.
//! - `install`: what is put onto a cluster, as far as no cluster is needed for it.
//! - `kubectl`: every way in which people use kubectl, against the embedded API server.
//! - `lists`: pages while others write, and selectors, against a model.
//! - `manifests`: every good manifest is accepted, every bad one is refused where and because it says.
//! - `odd_writes`: what they come to, as kube-apiserver answers them.
//! - `operator`: replicas of the operator, on one API server.
//! - `pair`: the two halves of a tunnel as processes, without the controllers that start them.
//! - `project`: what the README, the Makefile and CI promise is one and the same, and true.
//! - `proxy`: `underpass proxy` with a file, real clients and real backends; `explain route`.
//! - `tunnel`: containers reach servers on the host, on real Podman and real Docker.
//! - `two_servers`: the embedded server and a kube-apiserver get the same requests, and their answers are compared whole.
//! - `up`: the life of `underpass up`, from the ready line to the last object.
//! - `watches`: watches at the end of history, and beside one that does not read.
//!
//! What is about Kubernetes' API and not about us runs against a kube-apiserver too, unchanged: `server` says how, `scripts/test-lab` does it.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod answers;
mod clients;
mod crash;
mod damage;
mod failures;
mod floating_address;
mod hostile;
mod image;
mod infra;
mod install;
mod kubectl;
mod lists;
mod manifests;
mod odd_writes;
mod operator;
mod pair;
mod project;
mod proxy;
mod server;
mod tunnel;
mod two_servers;
mod up;
mod watches;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use server::Server;

const BINARY: &str = env!("CARGO_BIN_EXE_underpass");

/// The folder of the whole project.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// An API server with our controllers.
fn up() -> Server {
    Server::with_controllers()
}

/// An API server, for tests in which no controller of ours may meddle.
fn apiserver() -> Server {
    Server::alone()
}

/// A ContainerNetwork with all defaults, as YAML.
fn network(name: &str) -> String {
    format!("apiVersion: underpass.dev/v1alpha1\nkind: ContainerNetwork\nmetadata: {{name: {name}}}\nspec: {{}}\n")
}

/// A process whose files below `/proc/PID` say so.
fn process_where(is_it: impl Fn(&dyn Fn(&str) -> String) -> bool) -> Option<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.find(|pid| is_it(&|file| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()))
}

/// What a process has open beside the three that everybody has. What has no name of its own, and what all may share, is left out.
fn descriptors_of(pid: u32) -> BTreeSet<String> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let beside = entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.len() > 1 || name > "2"));
    // One may have been closed meanwhile.
    let open = beside.filter_map(|entry| Some(std::fs::read_link(entry.path()).ok()?.display().to_string()));
    open.filter(|open| !open.starts_with("anon_inode:") && !open.starts_with("/dev/")).collect()
}

#[track_caller]
fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}
