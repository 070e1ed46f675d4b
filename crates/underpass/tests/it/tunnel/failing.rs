//! What dies, and what becomes of the rest.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use underpass_engines::{ContainerEngine, EngineKind};

use super::rig::{client_process, condition, tunnel, tunnel_status, until_dead};
use super::{Rig, on_both, servers};
use underpass_testbed::{PATIENCE, wait_until};

on_both!(
    a_dead_server_proxy_fails_everything,
    a_dead_container_fails_everything,
    a_container_that_somebody_removed_fails_everything,
    a_lost_alias_heals,
    a_paused_container_is_not_ready_and_counts_as_dead,
    a_container_that_was_paused_for_a_moment_goes_on,
    what_somebody_leaves_of_a_container_goes_too,
    a_failed_proxy_starts_again_when_it_is_changed,
    a_pair_that_may_restart_heals_on_the_same_port,
    a_network_removed_behind_our_back_comes_back,
    a_base_image_that_cannot_be_had_is_told,
);

fn started(kind: EngineKind, policy: &str) -> (Rig, Value) {
    let rig = Rig::start(kind);
    let server = servers::echo();
    let tunnels = format!("{}\n{}", tunnel("a", server), tunnel("b", server));
    rig.apply_proxy("p", &format!("aliases: [h]\nrestartPolicy: {policy}\ntunnels:\n{tunnels}"));
    let status = rig.until_ready("p");
    (rig, status)
}

fn kill_server_proxy(status: &Value) {
    let pid = status["serverProxyProcessId"].as_i64().unwrap();
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
}

/// Failed, with the cause; no half of the pair is left, and every tunnel says why.
fn assert_failed(rig: &Rig, before: &Value, cause: &str) {
    let failed =
        rig.until("p", "Failed and clean", |status| status["state"] == "Failed" && rig.containers("p").is_empty());
    assert!(failed["message"].as_str().unwrap().contains(cause), "{failed:#}");
    for name in ["a", "b"] {
        assert_eq!(tunnel_status(&failed, name)["state"], "Failed");
        assert!(tunnel_status(&failed, name)["errorMessage"].as_str().unwrap().contains(cause), "{failed:#}");
    }
    until_dead(&before["serverProxyProcessId"]);
    assert_eq!(failed["serverProxyProcessId"], Value::Null);
    assert_eq!(condition(&failed, "Ready")["reason"], "Failed");
    let events = rig.kubectl().ok("get events -o jsonpath={.items[*].message}");
    assert!(events.contains(cause), "{events}");
}

fn a_dead_server_proxy_fails_everything(kind: EngineKind) {
    let (rig, before) = started(kind, "Never");
    kill_server_proxy(&before);
    assert_failed(&rig, &before, "signal 9");
    rig.end();
}

fn a_dead_container_fails_everything(kind: EngineKind) {
    let (rig, before) = started(kind, "Never");
    let pid = client_process(&rig.containers("p")[0].id);
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    assert_failed(&rig, &before, "exit code 137");
    rig.end();
}

fn a_container_that_somebody_removed_fails_everything(kind: EngineKind) {
    let (rig, before) = started(kind, "Never");
    let id = before["clientProxyContainerId"].as_str().unwrap();
    unseen(&rig, || rig.wait_for(rig.engine.engine.remove_container(id)).unwrap());
    assert_failed(&rig, &before, "somebody else removed it");
    rig.end();
}

/// An engine kills a container before it removes it. Who looks in between tells of an exit code, and is right too.
fn unseen(rig: &Rig, action: impl FnOnce()) {
    let up = rig.up.as_ref().unwrap();
    up.signal(Signal::STOP);
    action();
    up.signal(Signal::CONT);
}

/// As `network disconnect` and `network connect` do: the container has its place again, but not its name.
fn a_lost_alias_heals(kind: EngineKind) {
    let (rig, before) = started(kind, "Always");
    let (id, network) = (before["clientProxyContainerId"].as_str().unwrap(), rig.network_id("p"));
    for call in ["disconnect", "connect"] {
        let body = format!(r#"{{"Container":"{id}"}}"#);
        rig.ask_engine("POST", &format!("networks/{network}/{call}"), &body);
    }
    let healed = rig.until("p", "healed", |status| {
        status["restartCount"] == 1 && status["state"] == "Running" && super::rig::is_ready(status)
    });
    let port = &tunnel_status(&healed, "a")["clientProxyPort"];
    assert_eq!(rig.guest("p").echo("h", port, "named"), "named");
    rig.end();
}

fn a_paused_container_is_not_ready_and_counts_as_dead(kind: EngineKind) {
    let (rig, before) = started(kind, "Never");
    let id = before["clientProxyContainerId"].as_str().unwrap();
    rig.ask_engine("POST", &format!("containers/{id}/pause"), "");
    let paused = std::time::Instant::now();
    let hung = rig.until("p", "not Ready", |status| !super::rig::is_ready(status));
    let seen = paused.elapsed();
    assert!(seen < std::time::Duration::from_secs(20), "a few seconds, on a busy machine more: {seen:?}");
    assert_ne!(hung["state"], "Failed", "it may go on: {hung:#}");
    assert_failed(&rig, &before, "the client proxy's container");
    let message = rig.status("p")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("has not answered for 30 seconds"), "{message}");
    rig.end();
}

fn a_container_that_was_paused_for_a_moment_goes_on(kind: EngineKind) {
    let (rig, before) = started(kind, "Never");
    let id = before["clientProxyContainerId"].as_str().unwrap();
    rig.ask_engine("POST", &format!("containers/{id}/pause"), "");
    rig.until("p", "not Ready", |status| !super::rig::is_ready(status));
    rig.ask_engine("POST", &format!("containers/{id}/unpause"), "");
    let after = rig.until_ready("p");
    assert_eq!(after["serverProxyProcessId"], before["serverProxyProcessId"], "the same pair");
    let port = &tunnel_status(&after, "a")["clientProxyPort"];
    assert_eq!(rig.guest("p").echo("h", port, "awake"), "awake");
    rig.end();
}

#[test]
fn a_server_proxy_that_hangs_is_replaced() {
    let (rig, before) = started(EngineKind::Docker, "Always");
    let pid = i32::try_from(before["serverProxyProcessId"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
    let hung = std::time::Instant::now();
    rig.until("p", "not Ready", |status| !super::rig::is_ready(status));
    let seen = hung.elapsed();
    assert!(seen < std::time::Duration::from_secs(20), "a few seconds, on a busy machine more: {seen:?}");
    let healed = rig.until("p", "healed", |status| status["restartCount"] == 1 && super::rig::is_ready(status));
    assert_ne!(healed["serverProxyProcessId"], before["serverProxyProcessId"]);
    until_dead(&before["serverProxyProcessId"]);
    rig.end();
}

/// The client proxy's secrets are in a volume, which engines keep when a container is removed without it.
fn what_somebody_leaves_of_a_container_goes_too(kind: EngineKind) {
    let (rig, before) = started(kind, "Never");
    let id = before["clientProxyContainerId"].as_str().unwrap();
    assert_eq!(rig.volumes().len(), 1);
    unseen(&rig, || drop(rig.ask_engine("DELETE", &format!("containers/{id}?force=true"), "")));
    assert_failed(&rig, &before, "somebody else removed it");
    wait_until("the volume to go", PATIENCE, || rig.volumes().is_empty().then_some(()));
    rig.end();
}

fn a_failed_proxy_starts_again_when_it_is_changed(kind: EngineKind) {
    let (rig, before) = started(kind, "Never");
    kill_server_proxy(&before);
    rig.until("p", "Failed", |status| status["state"] == "Failed" && rig.containers("p").is_empty());
    rig.kubectl().ok("patch cntp p --type=merge -p {\"spec\":{\"restartPolicy\":\"Always\"}}");
    let after = rig.until_ready("p");
    assert_eq!(tunnel_status(&after, "a")["clientProxyPort"], tunnel_status(&before, "a")["clientProxyPort"]);
    rig.end();
}

fn a_pair_that_may_restart_heals_on_the_same_port(kind: EngineKind) {
    let (rig, before) = started(kind, "Always");
    kill_server_proxy(&before);
    let healed = |count: i64| {
        rig.until("p", "healed", move |status| {
            status["restartCount"] == count && status["state"] == "Running" && super::rig::is_ready(status)
        })
    };
    let after = healed(1);
    for name in ["a", "b"] {
        assert_eq!(tunnel_status(&after, name)["clientProxyPort"], tunnel_status(&before, name)["clientProxyPort"]);
    }
    let port = &tunnel_status(&after, "a")["clientProxyPort"];
    assert_eq!(rig.guest("p").echo("h", port, "healed"), "healed");
    let id = after["clientProxyContainerId"].as_str().unwrap();
    rig.wait_for(rig.engine.engine.remove_container(id)).unwrap();
    healed(2);
    assert_eq!(rig.guest("p").echo("h", port, "twice"), "twice");
    rig.end();
}

fn a_network_removed_behind_our_back_comes_back(kind: EngineKind) {
    let (rig, before) = started(kind, "Always");
    let network = rig.network_id("p");
    // An engine removes no network with a container on it.
    let id = before["clientProxyContainerId"].as_str().unwrap();
    rig.wait_for(async {
        rig.engine.engine.remove_container(id).await.unwrap();
        rig.engine.engine.remove_network(&network).await
    })
    .unwrap();
    let after = rig.until("p", "the pair on a new network", |status| {
        status["restartCount"].as_i64() >= Some(1) && super::rig::is_ready(status) && rig.network_id("p") != network
    });
    let port = &tunnel_status(&after, "a")["clientProxyPort"];
    assert_eq!(rig.guest("p").echo("h", port, "new"), "new");
    let events = rig.kubectl().json("get events");
    let silent = |event: &&Value| event["message"].as_str().unwrap_or_default().is_empty();
    assert_eq!(events["items"].as_array().unwrap().iter().find(silent), None, "every event says something");
    rig.end();
}

fn a_base_image_that_cannot_be_had_is_told(kind: EngineKind) {
    let rig = Rig::start(kind);
    rig.apply_proxy("p", "baseImage: localhost/underpass-no-such-image:1");
    let failed = rig.until_state("p", "Failed");
    assert_eq!(condition(&failed, "ImageReady")["reason"], "ImageFailed");
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("localhost/underpass-no-such-image:1") && message.contains("no local copy"), "{message}");
    assert_eq!(failed["clientProxyContainerId"], json!(null));
    rig.end();
}
