//! What `underpass up` logs: by default what happens to objects, and who wrote what for whoever asks.

use underpass_testbed::{Ended, Launch};

use super::{assert_contains, network};
use crate::BINARY;

/// All that is said of one object, from its declaration to its end.
fn log_of_a_network(launch: Launch) -> Ended {
    let up = launch.start();
    let kubectl = up.kubectl();
    kubectl.ok_with("apply -f -", &network("web"));
    kubectl.ok("wait --for=condition=Ready=False ctrnet/web --timeout=60s");
    kubectl.ok("wait --for=create events --all --timeout=60s");
    up.stop()
}

#[test]
fn the_log_tells_what_happens_to_objects() {
    let said = log_of_a_network(Launch::up(BINARY)).stderr;
    let line = said.lines().find(|line| line.contains("NoContainerEngine")).unwrap_or_else(|| panic!("{said}"));
    assert_contains(line, &["WARN ", "object=web}: no container engine found"]);
    assert!(!said.contains("audit"), "{said}");
}

#[test]
fn who_wrote_what_is_told_when_it_is_asked_for() {
    let said = log_of_a_network(Launch::up(BINARY).env("RUST_LOG", "info,audit=debug")).stderr;
    assert_contains(
        &said,
        &["DEBUG audit", "verb=\"PATCH\" path=\"/apis/underpass.dev/v1alpha1/containernetworks/web"],
    );
    assert!(!said.contains("verb=\"PUT\" path=\"/apis/coordination.k8s.io"), "a renewed lease is no news: {said}");
}
