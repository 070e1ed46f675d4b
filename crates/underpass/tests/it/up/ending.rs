//! The way out: orderly, forced, and none at all.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
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

/// Far more objects than there may be connections.
#[test]
fn many_objects_go_with_few_descriptors() {
    const OBJECTS: usize = 300;
    let folder = tempfile::tempdir().unwrap();
    let many: Vec<String> = (0..OBJECTS).map(|number| network(&format!("net-{number}"))).collect();
    let file = write(folder.path(), "many.yaml", &many.join("---\n"));
    let mut server = Launch::up(BINARY).data_dir(&folder.path().join("data")).file(&file).start();
    let applied = |text: &str| (text.matches("applied ").count() == OBJECTS).then_some(());
    server.process().wait_for_stderr("all to be applied", applied);
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let pid = Pid::from_raw(server.process().pid().try_into().unwrap());
    prlimit(pid, Resource::Nofile, Rlimit { current: Some(160), maximum }).unwrap();
    let ended = server.end(Signal::TERM);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_eq!(ended.stderr.matches("deleted  ContainerNetwork ").count(), OBJECTS, "{ended}");
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
    kubectl.ok_with("apply -f -", &network("stuck").replace("{name: stuck", HELD));
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

const HELD: &str = "{finalizers: [example.com/hold], name: stuck";

/// An Infra that cannot go, a ProxyServer that goes after it, and a network that has nothing to do with either.
#[test]
fn one_that_is_held_holds_up_only_those_behind_it_and_the_reason_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Launch::up(BINARY).data_dir(folder.path()).start();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &network("free"));
    kubectl.ok(&format!("apply -f {}", root().join("examples/hosted-cluster.yaml").display()));
    kubectl.ok(&format!("apply -f {}", root().join("examples/proxy-server.yaml").display()));
    let infra = kubectl.ok("get infra -A -o jsonpath='{.items[0].metadata.namespace}/{.items[0].metadata.name}'");
    let (namespace, name) = infra.split_once('/').unwrap();
    let hold = r#"{"metadata":{"finalizers":["example.com/hold"]}}"#;
    kubectl.ok(&format!("patch infra {name} -n {namespace} --type=merge --field-manager=somebody -p '{hold}'"));
    let asked = Instant::now();
    server.process().signal(Signal::INT);
    let process = server.process();
    process.wait_for_stderr("the reason", |text| text.contains("waiting for ").then_some(()));
    assert!(asked.elapsed() < Duration::from_secs(10), "two seconds, on a busy machine more: {:?}", asked.elapsed());
    let said = process.wait_for_stderr("what to do", |text| text.contains("Ctrl-C again").then(|| text.to_owned()));
    let held = format!(
        "waiting for Infra {infra}: held by the finalizer example.com/hold of somebody, who has to remove it\n"
    );
    assert_contains(&said, &[&held, "deleted  ContainerNetwork free\n"]);
    let behind =
        said.lines().find(|line| line.starts_with("waiting for ProxyServer ")).unwrap_or_else(|| panic!("{said}"));
    assert!(behind.ends_with(": not yet asked to go, because it goes after Infra"), "{behind}");
    kubectl
        .ok(&format!("patch infra {name} -n {namespace} --type=merge -p '{}'", r#"{"metadata":{"finalizers":null}}"#));
    assert_eq!(server.wait().code, Some(0));
}

/// Killing `script` takes the terminal away from what runs in it, as closing a window does: SIGHUP, and a stderr that fails.
#[test]
fn a_terminal_that_goes_away_asks_for_an_orderly_end() {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), write(folder.path(), "net.yaml", &network("net")));
    let line = format!("{BINARY} up --data-dir {} -f {}", data.display(), file.display());
    // Whoever runs the tests may do so under nohup.
    let mut command = Command::new("env");
    command
        .args(["--default-signal=HUP", "script", "--quiet", "--command", &line, "/dev/null"])
        .env("HOME", folder.path())
        .env_remove("RUST_LOG");
    let mut terminal = Process::start(&mut command);
    terminal.wait_for_stdout("the file to be applied", |text| text.contains("applied ").then_some(()));
    let pid = std::fs::read_to_string(data.join("lock")).unwrap().trim().to_owned();
    terminal.signal(Signal::KILL);
    wait_until("the end", PATIENCE, || (!Path::new(&format!("/proc/{pid}")).exists()).then_some(()));
    assert!(!data.join("kubeconfig").exists(), "it ended in order");
    assert_eq!(Launch::up(BINARY).data_dir(&data).start().kubectl().ok("get underpass -A -o name"), "");
}

#[test]
fn under_nohup_a_hangup_is_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("nohup");
    command.args([BINARY, "up", "--output", "json", "--data-dir"]).arg(folder.path()).env_remove("RUST_LOG");
    let mut process = Process::start(&mut command);
    process.wait_for_stdout("the ready line", |text| text.contains('\n').then_some(()));
    process.signal(Signal::HUP);
    let kubectl = underpass_testbed::Kubectl::new(&folder.path().join("kubeconfig"));
    kubectl.ok_with("apply -f -", &network("net"));
    kubectl.ok("wait --for=condition=Ready=False ctrnet/net --timeout=60s");
    assert!(process.is_running());
    process.signal(Signal::TERM);
    assert_eq!(process.wait().code, Some(0));
}

/// Three in one temporary folder: killed, running, and the one that cleans up.
#[test]
fn the_next_ephemeral_one_removes_what_a_killed_one_left() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let launch = Launch::command(BINARY, "apiserver").arg("--ephemeral").arg("--output").arg("json");
        let (mut process, home) = launch.env("TMPDIR", folder.path()).spawn();
        let line = process.wait_for_stdout("the ready line", |text| text.lines().next().map(str::to_owned));
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        let place = Path::new(ready["kubeconfig"].as_str().unwrap()).parent().unwrap().to_owned();
        (process, place, home)
    };
    let (killed, left, _home) = start();
    killed.signal(Signal::KILL);
    killed.wait();
    assert!(left.exists(), "a killed process cannot clean up");
    let (running, place, _home) = start();
    assert!(!left.exists() && place.exists());
    let (third, _, _home) = start();
    assert!(place.join("kubeconfig").exists(), "the folder of one that runs stays");
    for process in [running, third] {
        process.signal(Signal::TERM);
        assert_eq!(process.wait().code, Some(0));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
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
    let mut left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["lock", "turn"], "neither objects nor keys");
}
