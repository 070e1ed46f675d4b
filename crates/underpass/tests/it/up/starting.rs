//! Ready means ready: the line, the kubeconfig, the lock.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use underpass_testbed::{Kubectl, Launch, PATIENCE, Process, wait_until};

use serde_json::{Value, json};

use super::{assert_contains, network};
use crate::BINARY;
use crate::server::embedded_up;

#[test]
fn the_ready_line_is_json_for_programs() {
    let mut server = embedded_up();
    let (api, pid) = (server.ready().api.clone(), server.ready().pid);
    assert!(api.starts_with("https://127.0.0.1:"), "{api}");
    assert_eq!(pid, server.process().pid());
    assert_eq!(server.kubeconfig(), server.data_dir().join("kubeconfig"));
    assert_eq!(server.process().stdout().lines().count(), 1, "the rest is said on stderr");
}

#[test]
fn the_ready_block_is_text_for_people() {
    let (mut process, _home) = Launch::up(BINARY).spawn_server();
    let pid = process.pid();
    let text =
        process.wait_for_stdout("the block", |text| text.contains("kubectl get underpass").then(|| text.to_owned()));
    assert_contains(
        &text,
        &[
            "underpass is ready\n",
            "api         https://127.0.0.1:",
            &format!("pid         {pid}\n"),
            "export KUBECONFIG=",
        ],
    );
}

#[test]
fn the_kubeconfig_is_private_and_gone_at_the_end() {
    let server = embedded_up();
    let path = server.kubeconfig().to_owned();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(server.stop().code, Some(0));
    assert!(!path.exists());
}

#[test]
fn a_kubeconfig_that_somebody_else_wrote_since_stays() {
    let server = embedded_up();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let told = Launch::up(BINARY).arg("--kubeconfig").arg(&path).start();
    assert_eq!(told.kubeconfig(), path);
    std::fs::copy(server.kubeconfig(), &path).unwrap();
    assert_eq!(told.stop().code, Some(0));
    assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(server.kubeconfig()).unwrap());
}

/// Looked for from the very start: whoever sees the file may use it at once.
#[test]
fn when_the_kubeconfig_is_there_the_server_answers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let (process, _home) = Launch::up(BINARY).arg("--kubeconfig").arg(&path).spawn_server();
    wait_until("the kubeconfig", PATIENCE, || path.exists().then_some(()));
    let kubectl = Kubectl::new(&path);
    assert_eq!(kubectl.ok("get --raw /readyz"), "ok");
    kubectl.ok_with("apply -f -", &network("net"));
    drop(process);
}

#[test]
fn a_second_up_is_refused_and_told_who_is_first() {
    let folder = tempfile::tempdir().unwrap();
    let first = Launch::up(BINARY).data_dir(folder.path()).start();
    let (second, _home) = Launch::up(BINARY).data_dir(folder.path()).spawn_server();
    let refused = second.wait().failed();
    let who = format!(
        "another underpass (pid {}) is using the data directory {}",
        first.ready().pid,
        folder.path().display()
    );
    assert_contains(&refused, &[&who, "--data-dir"]);
    assert_eq!(refused.lines().count(), 1, "{refused}");
    assert_eq!(first.kubectl().ok("get --raw /readyz"), "ok", "the first is not disturbed");
}

#[test]
fn by_default_everything_is_in_the_users_state_folder() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(BINARY);
    command
        .args(["up", "--output", "json"])
        .env("HOME", home.path())
        .env_remove("XDG_STATE_HOME")
        .env_remove("RUST_LOG");
    let mut process = Process::start(&mut command);
    let folder = home.path().join(".local/state/underpass");
    let expected = format!("\"kubeconfig\":\"{}\"", folder.join("kubeconfig").display());
    process.wait_for_stdout("the ready line", |text| text.contains(&expected).then_some(()));
    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let status =
        Command::new(BINARY).arg("status").env("HOME", home.path()).env_remove("XDG_STATE_HOME").output().unwrap();
    assert_contains(&String::from_utf8_lossy(&status.stdout), &["there are no objects of ours"]);
}

/// What is stored was said by a process that is gone: whoever reads on after the ready line reads what this one has seen.
#[test]
fn after_a_crash_every_object_was_looked_at_before_it_is_ready() {
    let folder = tempfile::tempdir().unwrap();
    let server = Launch::apiserver(BINARY).data_dir(folder.path()).start();
    let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
    server.kubectl().ok_with("apply -f -", &names.iter().map(|name| network(name) + "---\n").collect::<String>());
    let stored: Vec<Value> = names.iter().map(|name| running(name)).collect();
    let stored = json!({"apiVersion": "v1", "kind": "List", "items": stored}).to_string();
    server.kubectl().ok_with("apply --server-side --subresource=status -f -", &stored);
    server.kill();
    let next = Launch::up(BINARY).data_dir(folder.path()).start();
    let listed = next.kubectl().json("get ctrnet");
    let ready = |object: &&Value| object["status"]["conditions"][0]["status"] != "False";
    let items = listed["items"].as_array().unwrap();
    let unproven: Vec<_> = items.iter().filter(ready).map(|object| &object["metadata"]["name"]).collect();
    assert_eq!((items.len(), unproven), (100, vec![]), "there is no engine, so none of them can work");
}

/// A network that once was proven to work.
fn running(name: &str) -> Value {
    json!({
        "apiVersion": "underpass.dev/v1alpha1", "kind": "ContainerNetwork", "metadata": {"name": name}, "spec": {},
        "status": {"state": "Running", "id": "1", "networkName": name, "conditions": [{
            "type": "Ready", "status": "True", "reason": "NetworkExists", "message": "the engine has the network",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
        }]},
    })
}
