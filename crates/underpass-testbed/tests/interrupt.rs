//! A benchmark that is interrupted leaves nothing: what it measures is ended by it, not by chance.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, kill_process_group};
use underpass_testbed::{PATIENCE, Process, Signal, wait_until};

const BENCH: &str = env!("CARGO_BIN_EXE_bench-relay");

/// Processes that have this folder for their temporary files, or were told of a file in it.
fn processes_below(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| {
        let read = |file: &str| std::fs::read_to_string(entry.path().join(file));
        let (line, environment) = (read("cmdline").ok()?, read("environ").ok()?);
        let folder = folder.to_str()?;
        (line.contains(folder) || environment.contains(folder)).then(|| line.replace('\0', " "))
    });
    lines.filter(|line| !line.is_empty()).collect()
}

#[test]
fn an_interrupted_bench_relay_takes_its_proxy_along() {
    let underpass = Path::new(BENCH).with_file_name("underpass");
    assert!(underpass.exists(), "{} is not built: `cargo build`, or all tests with `make test`", underpass.display());
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Command::new(BENCH);
    bench.args(["--quick", "--repeats", "1000", "--only", "underpass", "--part", "idling"]);
    bench.arg("--underpass").arg(underpass).env("TMPDIR", folder.path()).process_group(0);
    let bench = Process::start(&mut bench);
    let is_measuring = || processes_below(folder.path()).iter().any(|line| line.contains(" proxy -f ")).then_some(());
    wait_until("a proxy that is measured", PATIENCE, is_measuring);
    kill_process_group(Pid::from_raw(bench.pid().try_into().unwrap()).unwrap(), Signal::INT).unwrap();
    let ended = bench.wait();
    assert_eq!(ended.code, Some(130), "{ended}");
    assert_eq!(processes_below(folder.path()), Vec::<String>::new(), "{ended}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{ended}");
}
