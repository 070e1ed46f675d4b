//! The way out: orderly, forced, and none at all.

use std::process::Command;

use underpass_testbed::{Launch, PATIENCE, Process, Signal, wait_until};

use super::{assert_contains, network, write};
use crate::{BINARY, root};

#[test]
fn sigterm_deletes_our_objects_in_dependency_order() {
    let folder = tempfile::tempdir().unwrap();
    let launch = || Launch::up(BINARY).data_dir(folder.path());
    let examples = ["tunnel", "workstation", "intercept"].map(|name| root().join(format!("examples/{name}.yaml")));
    let mut server = examples.iter().fold(launch(), |launch, file| launch.file(file)).start();
    server
        .process()
        .wait_for_stderr("the files to be applied", |text| (text.matches("applied ").count() == 6).then_some(()));
    let ended = server.end(Signal::TERM);
    assert_eq!(ended.code, Some(0), "{ended}");
    let position =
        |what: &str| ended.stderr.lines().position(|line| line == what).unwrap_or_else(|| panic!("{what}: {ended}"));
    for (first, then) in [
        ("deleted  ContainerNetworkTunnelProxy web-to-host", "deleting ContainerNetwork web"),
        ("deleting ContainerNetwork web", "deleted  ContainerNetwork web"),
    ] {
        assert!(position(first) < position(then), "{ended}");
    }
    let deleted =
        |kind: &str| ended.stderr.lines().position(|line| line.starts_with(&format!("deleted  {kind} "))).unwrap();
    assert!(deleted("InterceptRequest") < deleted("Workstation"), "{ended}");
    let next = launch().start();
    assert_eq!(next.kubectl().ok("get underpass -A -o name"), "");
}

/// The object that is on its way to the server when the signal comes must not arrive after the deletion.
#[test]
fn a_signal_in_the_middle_of_the_files_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let many: Vec<String> = (0..300).map(|number| network(&format!("net-{number}"))).collect();
    let file = write(folder.path(), "many.yaml", &many.join("---\n"));
    let launch = || Launch::up(BINARY).data_dir(&folder.path().join("data"));
    let mut server = launch().file(&file).start();
    let applied = |text: &str| text.matches("applied ").count();
    server.process().wait_for_stderr("some to be applied", |text| (applied(text) >= 3).then_some(()));
    let ended = server.end(Signal::TERM);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(applied(&ended.stderr) < 300, "all were applied before the signal came");
    assert_eq!(ended.stderr.matches("deleted  ").count(), applied(&ended.stderr), "{ended}");
    assert_eq!(launch().start().kubectl().ok("get underpass -A -o name"), "");
}

/// Two different signals, because two equal ones may reach a process as one.
#[test]
fn signals_that_come_together_are_one_wish() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Launch::up(BINARY).data_dir(folder.path()).file(&root().join("examples/tunnel.yaml")).start();
    server
        .process()
        .wait_for_stderr("the files to be applied", |text| (text.matches("applied ").count() == 2).then_some(()));
    server.process().signal(Signal::TERM);
    let ended = server.end(Signal::INT);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_contains(
        &ended.stderr,
        &["deleted  ContainerNetworkTunnelProxy web-to-host", "deleted  ContainerNetwork web"],
    );
}

/// coreutils' `timeout` signals its child and then the whole group. SIGALRM is how it learns that the time is over.
#[test]
fn timeout_ends_it_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("timeout");
    command.args(["--preserve-status", "-s", "TERM", "600", BINARY, "up", "--data-dir"]).arg(folder.path());
    command.arg("-f").arg(root().join("examples/tunnel.yaml")).env_remove("RUST_LOG");
    let mut timeout = Process::start(&mut command);
    timeout.wait_for_stderr("the files to be applied", |text| (text.matches("applied ").count() == 2).then_some(()));
    timeout.signal(Signal::ALARM);
    let ended = timeout.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
    let position = |what: &str| ended.stderr.find(what).unwrap_or_else(|| panic!("{what}: {ended}"));
    assert!(
        position("deleted  ContainerNetworkTunnelProxy web-to-host") < position("deleting ContainerNetwork web"),
        "{ended}"
    );
    assert_contains(&ended.stderr, &["deleted  ContainerNetwork web"]);
}

#[test]
fn objects_that_are_not_ours_stay() {
    let folder = tempfile::tempdir().unwrap();
    let launch = || Launch::up(BINARY).data_dir(folder.path());
    let server = launch().start();
    server.kubectl().ok_with("create -f -", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mine}\n");
    assert_eq!(server.stop().code, Some(0));
    assert_eq!(launch().start().kubectl().ok("get cm mine -o name"), "configmap/mine\n");
}

#[test]
fn a_second_signal_ends_at_once_and_leaves_the_rest_to_the_next_up() {
    let folder = tempfile::tempdir().unwrap();
    let launch = || Launch::up(BINARY).data_dir(folder.path());
    let mut server = launch().start();
    let kubectl = server.kubectl();
    kubectl.ok_with(
        "apply -f -",
        &network("stuck").replace("{name: stuck", "{finalizers: [example.com/hold], name: stuck"),
    );
    server.process().signal(Signal::INT);
    server
        .process()
        .wait_for_stderr("the progress", |text| text.contains("deleting ContainerNetwork stuck").then_some(()));
    // Signals right after the first are its echo, so that whoever is impatient has to say it again.
    let process = server.process();
    wait_until("the end", PATIENCE, || {
        process.signal(Signal::INT);
        (!process.is_running()).then_some(())
    });
    let ended = server.wait();
    assert_eq!(ended.code, Some(130), "{ended}");
    assert_contains(&ended.stderr, &["ended by a second signal"]);
    let next = launch().start();
    let kubectl = next.kubectl();
    assert_eq!(kubectl.ok("get ctrnet -o name"), "containernetwork.underpass.dev/stuck\n");
    kubectl.ok(r#"patch ctrnet stuck --type=json -p '[{"op":"remove","path":"/metadata/finalizers"}]'"#);
    assert_eq!(next.stop().code, Some(0));
}

#[test]
fn after_a_crash_the_objects_are_there_and_the_controllers_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let launch = || Launch::up(BINARY).data_dir(folder.path());
    let server = launch().start();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &network("before"));
    kubectl.ok("wait --for=condition=Ready=False ctrnet/before --timeout=60s");
    let uid = kubectl.ok("get ctrnet before -o jsonpath='{.metadata.uid}'");
    server.kill();
    let next = launch().start();
    let kubectl = next.kubectl();
    assert_eq!(kubectl.ok("get ctrnet before -o jsonpath='{.metadata.uid}'"), uid);
    kubectl.ok_with("apply -f -", &network("after"));
    kubectl.ok("wait --for=condition=Ready=False ctrnet/after --timeout=60s");
    let ended = next.stop();
    assert_contains(&ended.stderr, &["deleted  ContainerNetwork before", "deleted  ContainerNetwork after"]);
    assert_eq!(ended.code, Some(0));
}

#[test]
fn the_identity_survives_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let server = Launch::up(BINARY).data_dir(folder.path()).start();
    let port = server.ready().api.rsplit_once(':').unwrap().1.to_owned();
    let copy = folder.path().join("copy");
    std::fs::copy(server.kubeconfig(), &copy).unwrap();
    server.kill();
    let _next = Launch::up(BINARY).data_dir(folder.path()).arg("--listen").arg(format!("127.0.0.1:{port}")).start();
    assert_eq!(
        underpass_testbed::Kubectl::new(&copy).ok("get --raw /readyz"),
        "ok",
        "the old kubeconfig still opens the door"
    );
}

#[test]
fn an_ephemeral_one_keeps_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let launch =
        || Launch::up(BINARY).arg("--data-dir").arg(folder.path()).arg("--ephemeral").arg("--output").arg("json");
    for _ in 0..2 {
        let (mut process, _home) = launch().spawn();
        process.wait_for_stdout("the ready line", |text| text.contains('\n').then_some(()));
        let kubectl = underpass_testbed::Kubectl::new(&folder.path().join("kubeconfig"));
        assert_eq!(
            kubectl.ok_with("create -f -", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"),
            "configmap/a created\n"
        );
        process.signal(Signal::INT);
        assert_eq!(process.wait().code, Some(0));
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"], "neither objects nor keys");
}
