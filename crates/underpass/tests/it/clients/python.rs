//! Python's Kubernetes client: `tests/python`, with the interpreter that `make setup` prepared.

use std::path::PathBuf;
use std::process::Command;

use underpass_testbed::Process;

/// Ends without an orderly end: the client's election threads never end, and Python may crash when it tidies up beside them.
const RUN: &str = "
import os, sys, unittest
ran = unittest.main(module=None, argv=['tests', 'discover', '--verbose', '-s', sys.argv[1]], exit=False)
sys.stderr.flush()
os._exit(not ran.result.wasSuccessful())
";

#[test]
fn pythons_client_works() {
    let server = crate::up();
    let python = interpreter();
    let scratch = tempfile::tempdir().unwrap();
    let mut command = Command::new(&python);
    command.args(["-B", "-c", RUN]).arg(crate::root().join("tests/python"));
    // The dynamic client caches what it discovers in the temporary folder, by address.
    command.env("KUBECONFIG", server.kubeconfig()).env("TMPDIR", scratch.path()).env("HOME", scratch.path());
    let ended = Process::start(&mut command).wait();
    assert!(ended.code == Some(0) && tests_run(&ended.stderr) > 0, "{ended}");
}

fn interpreter() -> PathBuf {
    let cache = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/underpass/python/bin/python"));
    let python = std::env::var_os("PYTHON").map(PathBuf::from).or(cache).unwrap_or_default();
    assert!(python.exists(), "Python with its Kubernetes client is missing at {}: run make setup", python.display());
    python
}

/// From the line `Ran 36 tests in 7.6s`, when the last line says that all of them are fine.
fn tests_run(report: &str) -> u32 {
    let fine = report.trim_end().lines().last().is_some_and(|line| line == "OK");
    let ran = report.lines().find_map(|line| line.strip_prefix("Ran ")).and_then(|line| line.split(' ').next());
    if fine { ran.and_then(|count| count.parse().ok()).unwrap_or(0) } else { 0 }
}

#[test]
fn a_report_counts_only_when_all_tests_are_fine() {
    assert_eq!(tests_run("ok\n\nRan 36 tests in 7.6s\n\nOK\n"), 36);
    assert_eq!(tests_run("\nRan 36 tests in 7.6s\n\nFAILED (errors=1)\n"), 0);
    assert_eq!(tests_run("\nRan 0 tests in 0.0s\n\nOK\n"), 0);
    assert_eq!(tests_run("\nRan 2 tests in 0.0s\n\nOK (skipped=2)\n"), 0);
    assert_eq!(tests_run(""), 0);
}
