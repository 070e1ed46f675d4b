//! The process beside `up` that cleans up after it: there for as long as it is needed, and with nothing of `up` in its hands.

use std::collections::BTreeSet;

use rustix::process::{Pid, kill_process};
use underpass_testbed::{Launch, PATIENCE, Signal, Underpass, wait_until};

use crate::{BINARY, descriptors_of, process_where};

fn watchdog_of(up: &Underpass) -> Option<i32> {
    let watches = format!("monitor\0--pid\0{}\0", up.ready().pid);
    process_where(|file| file("cmdline").contains(&watches))
}

#[track_caller]
fn until_watched(up: &Underpass) -> i32 {
    wait_until("a watchdog", PATIENCE, || watchdog_of(up))
}

#[test]
fn a_watchdog_that_dies_is_told_and_replaced() {
    let mut up = crate::server::embedded_up();
    for _ in 0..2 {
        let pid = until_watched(&up);
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        wait_until("another watchdog", PATIENCE, || watchdog_of(&up).filter(|other| *other != pid));
        let told = format!(
            "the watchdog has ended: until there is another, nobody cleans up when this process is killed pid={pid}"
        );
        up.process().wait_for_stderr(&told, |text| text.contains(&told).then_some(()));
    }
    let last = until_watched(&up);
    let ended = up.stop();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(ended.stderr.contains("signal: 9 (SIGKILL)"), "{ended}");
    assert!(!std::path::Path::new(&format!("/proc/{last}")).exists(), "it ends with what it watches");
}

/// Descriptor 9 is what a script holds its lock with, and 8 a pipe that somebody reads to its end.
#[test]
fn a_watchdog_holds_nothing_of_whoever_started_us() {
    let folder = tempfile::tempdir().unwrap();
    let held = folder.path().join("held");
    std::fs::write(&held, "").unwrap();
    let script = format!("exec 9<'{}' 8>&1; exec \"$0\" \"$@\"", held.display());
    let up = Launch::command("/bin/sh", "-c").arg(script).arg(BINARY).arg("up").start();
    let pid = until_watched(&up);
    let ours = descriptors_of(up.ready().pid);
    assert!(ours.contains(&held.display().to_string()), "{ours:?}");
    let shared: BTreeSet<_> = descriptors_of(pid.try_into().unwrap()).intersection(&ours).cloned().collect();
    assert_eq!(shared, BTreeSet::new());
}

/// Nobody waits for an engine in which nothing was made: neither its watchdog, nor whoever comes next.
#[test]
fn of_an_up_that_never_used_an_engine_nothing_is_looked_for_in_one() {
    let up = crate::server::embedded_up();
    until_watched(&up);
    let ended = up.end(Signal::KILL);
    assert!(ended.stderr.contains("the controllers were killed"), "{ended}");
    assert!(!ended.stderr.contains("not everything could be removed"), "{ended}");
}
