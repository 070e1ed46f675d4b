//! The shape of the workspace, checked: who may know whom, and which crates stay free of I/O.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Every crate of ours and the crates of ours that it may use. A new crate has to be placed here.
const MAY_USE: &[(&str, &[&str])] = &[
    ("underpass-schema", &[]),
    ("underpass-merge", &["underpass-schema"]),
    ("underpass-builtins", &["underpass-schema"]),
    ("underpass-protocols", &[]),
    ("underpass-store", &[]),
    ("underpass-resources", &[]),
    ("underpass-tables", &[]),
    ("underpass-plan", &["underpass-resources", "underpass-tables"]),
    ("underpass-relay", &["underpass-protocols", "underpass-tables"]),
    ("underpass-tunnel", &["underpass-protocols", "underpass-relay", "underpass-tables"]),
    ("underpass-xds", &["underpass-tables"]),
    ("underpass-apiserver", &["underpass-builtins", "underpass-merge", "underpass-schema", "underpass-store"]),
    ("underpass-address", &[]),
    ("underpass-deploy", &["underpass-resources"]),
    ("underpass-engines", &["underpass-plan"]),
    ("underpass-operator", &["underpass-engines", "underpass-plan", "underpass-resources", "underpass-tunnel"]),
    (
        "underpass",
        &[
            "underpass-address",
            "underpass-apiserver",
            "underpass-deploy",
            "underpass-engines",
            "underpass-operator",
            "underpass-plan",
            "underpass-protocols",
            "underpass-relay",
            "underpass-resources",
            "underpass-schema",
            "underpass-tables",
            "underpass-tunnel",
            "underpass-xds",
        ],
    ),
    ("underpass-testbed", &["underpass-engines", "underpass-tables", "underpass-xds"]),
];

/// Decisions are made here, so nothing here may wait, connect or look at a clock of its own.
const PURE: &[&str] = &[
    "underpass-schema",
    "underpass-merge",
    "underpass-builtins",
    "underpass-deploy",
    "underpass-resources",
    "underpass-plan",
    "underpass-protocols",
    "underpass-tables",
];

/// What would let a pure crate do I/O.
const IMPURE: &[&str] = &["tokio", "hyper", "socket2", "mio", "kube-client", "kube-runtime", "rustls"];

const LONGEST_MAIN: usize = 60;

/// The only files that may ask the compiler to look away, each with a decision that says why.
const UNSAFE: &[&str] = &["crates/underpass-relay/src/outbox.rs", "crates/underpass/src/descriptors.rs"];

#[test]
fn crates_use_only_what_is_below_them() {
    let may_use: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let packages = packages();
    let mut placed: BTreeSet<&str> = may_use.keys().copied().collect();
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        assert!(placed.remove(name), "{name} has no place in the architecture: put it into MAY_USE");
        for used in own_dependencies(package) {
            assert!(may_use[name].contains(&used), "{name} must not use {used}");
        }
    }
    assert_eq!(placed, BTreeSet::new(), "crates in MAY_USE that do not exist");
}

#[test]
fn pure_crates_cannot_do_io() {
    for name in PURE {
        let closure = closure(name);
        assert!(closure.contains(*name), "cargo tree did not list {name} itself");
        let impure: Vec<_> = IMPURE.iter().filter(|crate_| closure.contains(**crate_)).collect();
        assert!(impure.is_empty(), "{name} is pure and must not depend on {impure:?}; see `cargo tree -p {name} -i`");
    }
}

#[test]
fn main_only_wires() {
    let main = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/main.rs")).unwrap();
    assert!(main.lines().count() <= LONGEST_MAIN, "main.rs has more than {LONGEST_MAIN} lines");
}

#[test]
fn unsafe_code_is_where_it_is_expected() {
    let listed = Command::new("grep")
        .args(["-rlE", r"\bunsafe_code\b", "crates", "--include=*.rs"])
        .current_dir(root())
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let itself = "crates/underpass/tests/architecture.rs";
    let files: BTreeSet<&str> = listed.lines().filter(|file| *file != itself).collect();
    assert_eq!(files, UNSAFE.iter().copied().collect(), "files that allow unsafe code");
}

fn packages() -> Vec<Value> {
    let text = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&text).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Crates of ours that a package is built from; tests may use more.
fn own_dependencies(package: &Value) -> Vec<&str> {
    let dependencies = package["dependencies"].as_array().unwrap().iter();
    dependencies
        .filter(|dependency| dependency["kind"].is_null())
        .map(|dependency| dependency["name"].as_str().unwrap())
        .filter(|name| name.starts_with("underpass"))
        .collect()
}

/// All that a crate is built from when it is built alone: in the whole workspace, features that others ask for would be added.
fn closure(name: &str) -> BTreeSet<String> {
    let text = cargo(&["tree", "--package", name, "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}
