//! API server and controllers as two processes: the same, except that objects outlive both.

use underpass_testbed::{Launch, PATIENCE, Process, Signal, Underpass, wait_until};

use super::{assert_contains, launch, network};
use crate::BINARY;

#[test]
fn two_processes_do_what_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let server = Launch::apiserver(BINARY).data_dir(folder.path()).start();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &network("net"));
    let (mut controllers, _home) = launch("controllers").arg("--kubeconfig").arg(server.kubeconfig()).spawn();
    kubectl.ok("wait --for=condition=Ready=False ctrnet/net --timeout=60s");
    kubectl.ok("wait --for=create events --all --timeout=60s");
    assert_contains(&kubectl.ok("get ctrnet net"), &["NoContainerEngine"]);
    assert!(controllers.is_running());
    controllers.signal(Signal::TERM);
    assert_eq!(controllers.wait().code, Some(0));
    assert_eq!(
        kubectl.ok("get ctrnet -o name"),
        "containernetwork.underpass.dev/net\n",
        "objects stay without their controllers"
    );
    assert_eq!(server.end(Signal::TERM).code, Some(0));
    let next = Launch::apiserver(BINARY).data_dir(folder.path()).start();
    assert_eq!(
        next.kubectl().ok("get ctrnet -o name"),
        "containernetwork.underpass.dev/net\n",
        "and without their server"
    );
}

#[test]
fn controllers_wait_for_a_server_that_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let server = Launch::apiserver(BINARY).data_dir(folder.path()).start();
    let address = server.ready().api.trim_start_matches("https://").to_owned();
    let kubeconfig = folder.path().join("copy");
    std::fs::copy(server.kubeconfig(), &kubeconfig).unwrap();
    let (mut controllers, _home) = launch("controllers").arg("--kubeconfig").arg(&kubeconfig).spawn();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &network("before"));
    kubectl.ok("wait --for=condition=Ready=False ctrnet/before --timeout=60s");
    server.kill();
    let next = Launch::apiserver(BINARY).data_dir(folder.path()).arg("--listen").arg(&address).start();
    let kubectl = next.kubectl();
    kubectl.ok_with("apply -f -", &network("after"));
    kubectl.ok("wait --for=condition=Ready=False ctrnet/after --timeout=60s");
    assert!(controllers.is_running(), "{}", controllers.stderr());
}

fn controllers(server: &Underpass) -> (Process, tempfile::TempDir) {
    launch("controllers").arg("--kubeconfig").arg(server.kubeconfig()).spawn()
}

/// The new server listens on another port, which only its kubeconfig says.
#[test]
fn controllers_follow_a_server_that_moves() {
    let folder = tempfile::tempdir().unwrap();
    let server = Launch::apiserver(BINARY).data_dir(folder.path()).start();
    let (mut controllers, _home) = controllers(&server);
    let before = server.ready().api.clone();
    server.kubectl().ok_with("apply -f -", &network("before"));
    server.kubectl().ok("wait --for=condition=Ready=False ctrnet/before --timeout=60s");
    assert_eq!(server.end(Signal::TERM).code, Some(0));
    controllers.wait_for_stderr("what happened", |text| text.contains("the API server cannot be asked").then_some(()));
    let next = Launch::apiserver(BINARY).data_dir(folder.path()).start();
    let after = next.ready().api.clone();
    assert_ne!(before, after);
    next.kubectl().ok_with("apply -f -", &network("after"));
    next.kubectl().ok("wait --for=condition=Ready=False ctrnet/after --timeout=60s");
    controllers.wait_until_told(&[
        &format!("the API server has moved from {before} to {after}, says "),
        &format!("{before} does not answer: "),
    ]);
    controllers.signal(Signal::TERM);
    let ended = controllers.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(ended.stderr.lines().count() < 12, "a few lines that a person reads: {ended}");
}

/// The holder of the lease, as kubectl shows it.
fn holder(server: &Underpass) -> String {
    server.kubectl().ok("get lease underpass-controllers -n kube-system -o jsonpath='{.spec.holderIdentity}'")
}

/// The first works, the second has said that it waits.
fn one_and_a_second(server: &Underpass) -> [(Process, tempfile::TempDir); 2] {
    let mut first = controllers(server);
    first.0.wait_for_stderr("the first", |text| text.contains("controllers started").then_some(()));
    let mut second = controllers(server);
    second.0.wait_for_stderr("the second", |text| text.contains("this one waits").then_some(()));
    [first, second]
}

#[test]
fn of_two_controllers_one_works_and_the_other_follows_it() {
    let server = crate::server::embedded_apiserver();
    let [(first, _first_home), (mut second, _second_home)] = one_and_a_second(&server);
    let waits = second.stderr();
    assert_contains(&waits, &[&holder(&server), &format!("_{}_", first.pid())]);
    assert!(!waits.contains("controllers started"), "{waits}");
    first.signal(Signal::TERM);
    assert_eq!(first.wait().code, Some(0));
    second.wait_for_stderr("the second at work", |text| text.contains("controllers started").then_some(()));
    server.kubectl().ok_with("apply -f -", &network("net"));
    server.kubectl().ok("wait --for=condition=Ready=False ctrnet/net --timeout=60s");
    second.signal(Signal::TERM);
    assert_eq!(second.wait().code, Some(0));
    assert_eq!(holder(&server), "", "given back");
}

#[test]
fn a_killed_controllers_process_is_followed_when_its_lease_is_over() {
    let server = crate::server::embedded_apiserver();
    let [(first, _first_home), (mut second, _second_home)] = one_and_a_second(&server);
    first.signal(Signal::KILL);
    first.wait();
    server.kubectl().ok_with("apply -f -", &network("net"));
    server.kubectl().ok("wait --for=condition=Ready=False ctrnet/net --timeout=60s");
    second.wait_until_told(&["controllers started"]);
    assert_contains(&holder(&server), &[&format!("_{}_", second.pid())]);
}

/// Its predecessor's lease is its own: the data directory has one process.
#[test]
fn up_after_a_crash_does_not_wait_for_itself() {
    let folder = tempfile::tempdir().unwrap();
    let launch = || Launch::up(BINARY).data_dir(folder.path());
    let server = launch().start();
    wait_until("the lease", PATIENCE, || {
        (server.kubectl().ok("get leases -n kube-system -o name").lines().count() == 1).then_some(())
    });
    assert_eq!(holder(&server), "underpass-up");
    server.kill();
    let mut next = launch().start();
    let (mut rival, _home) = controllers(&next);
    next.process().wait_for_stderr("its controllers", |text| text.contains("controllers started").then_some(()));
    rival.wait_for_stderr("the other", |text| text.contains("this one waits").then_some(()));
    assert!(!next.process().stderr().contains("this one waits"));
    assert_eq!(next.stop().code, Some(0));
}
