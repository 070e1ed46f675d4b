//! What cannot be made or started: it is told why, as often tried as it should be, and nothing of it stays.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use underpass_engines::labels::{IMAGE, KIND};
use underpass_engines::{ContainerEngine, EngineKind};
use underpass_testbed::{PATIENCE, Process, TestEngine, wait_until, write_program};

use super::rig::{condition, tunnel, tunnel_status};
use super::{Rig, on_both, servers};
use crate::BINARY;

on_both!(
    a_pair_runs_on_its_base_image,
    what_a_failed_build_has_said_is_told,
    a_server_proxy_that_cannot_be_started_fails_everything,
    a_client_proxy_that_cannot_be_started_fails_everything,
);

fn a_pair_runs_on_its_base_image(kind: EngineKind) {
    let rig = Rig::start(kind);
    let base = rig.wait_for(rig.engine.image_with("LABEL made-for=a-pair"));
    let server = servers::echo();
    rig.apply_proxy("p", &format!("aliases: [h]\nbaseImage: {base}\ntunnels:\n{}", tunnel("t", server)));
    let status = rig.until_ready("p");
    let container = &rig.containers("p")[0];
    let image = rig.wait_for(rig.engine.engine.find_image(&container.image_id)).unwrap().unwrap();
    assert_eq!(image.labels["made-for"], "a-pair", "it has what its base has");
    assert_eq!((&*image.labels[IMAGE], &*container.labels[KIND]), ("tunnel-client", "ContainerNetworkTunnelProxy"));
    let port = &tunnel_status(&status, "t")["clientProxyPort"];
    assert_eq!(rig.guest("p").echo("h", port, "based"), "based");
    rig.kubectl().ok("delete cntp p --timeout=60s");
    rig.wait_for(rig.engine.remove_image_and_its_children(&base));
    rig.end();
}

/// Of a build that says much, the end. The words are not those of the command, which engines repeat.
fn what_a_failed_build_has_said_is_told(kind: EngineKind) {
    let rig = Rig::start(kind);
    for (name, says) in [("short", "echo beginning"), ("long", "echo beginning; /busybox seq 20000")] {
        let script = format!("{says}; echo why-$((6 * 7)); exit 3");
        let lines = format!("ONBUILD RUN [\"/busybox\", \"sh\", \"-c\", \"{script}\"]");
        let base = rig.wait_for(rig.engine.image_with(&lines));
        rig.apply_proxy(name, &format!("baseImage: {base}\ntunnels:\n{}", tunnel("t", servers::dead())));
        let failed = rig.until_state(name, "Failed");
        assert_eq!(condition(&failed, "ImageReady")["reason"], "ImageFailed");
        let of_tunnel = &tunnel_status(&failed, "t")["errorMessage"];
        for message in
            [&condition(&failed, "ImageReady")["message"], &condition(&failed, "Ready")["message"], of_tunnel]
        {
            let message = message.as_str().unwrap();
            assert!(message.contains("beginning") && message.contains("why-42"), "{message}");
            assert!(message.len() < 5000, "{} bytes", message.len());
        }
        let events =
            format!("get events --field-selector involvedObject.name={name} -o jsonpath={{.items[*].message}}");
        wait_until("an event that says why", PATIENCE, || rig.kubectl().ok(&events).contains("why-42").then_some(()));
        rig.wait_for(rig.engine.remove_image_and_its_children(&base));
    }
    rig.end();
}

/// As with a file system that is mounted anew and forbids it.
fn a_server_proxy_that_cannot_be_started_fails_everything(kind: EngineKind) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("underpass");
    write_program(&program, &[&std::fs::read(BINARY).unwrap()]);
    let rig = Rig::of(program.to_str().unwrap(), TestEngine::shared(kind));
    rig.apply(&crate::network("p"));
    rig.kubectl().ok("wait --for=condition=Ready ctrnet/p --timeout=60s");
    std::fs::set_permissions(&program, Permissions::from_mode(0o600)).unwrap();
    let events = rig.events();
    rig.apply_proxy("p", &format!("tunnels:\n{}", tunnel("t", servers::dead())));
    assert_failed_and_gone(&rig, &["the server proxy cannot be started", "Permission denied"]);
    assert_eq!(until_destroyed(&events), (1, 1));
    rig.end();
}

/// The engine makes the container and then cannot start it, so that what was half done has to be undone.
fn a_client_proxy_that_cannot_be_started_fails_everything(kind: EngineKind) {
    let rig = Rig::start(kind);
    // No engine mounts anything there.
    let base = rig.wait_for(rig.engine.image_with("VOLUME /proc/taken"));
    let events = rig.events();
    rig.apply_proxy("p", &format!("baseImage: {base}\ntunnels:\n{}", tunnel("t", servers::dead())));
    assert_failed_and_gone(&rig, &["the client proxy cannot be started", "/proc/taken"]);
    assert_eq!(until_destroyed(&events), (0, 1));
    rig.wait_for(rig.engine.remove_image_and_its_children(&base));
    rig.end();
}

fn assert_failed_and_gone(rig: &Rig, why: &[&str]) {
    let failed =
        rig.until("p", "Failed and clean", |status| status["state"] == "Failed" && rig.containers("p").is_empty());
    crate::assert_contains(failed["message"].as_str().unwrap(), why);
    let t = tunnel_status(&failed, "t");
    assert_eq!(t["state"], "Failed");
    crate::assert_contains(t["errorMessage"].as_str().unwrap(), why);
    wait_until("what was made to go", PATIENCE, || {
        let folders = std::fs::read_dir(rig.data_dir().join("tunnels")).into_iter().flatten().count();
        (rig.volumes().is_empty() && folders == 0).then_some(())
    });
}

/// How many containers were started and taken away, when the first of the latter is told.
fn until_destroyed(events: &Process) -> (usize, usize) {
    let count = |actions: &[&str]| {
        let told = events.stdout();
        let all = told.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        all.filter(|event| actions.iter().any(|action| event["Action"] == *action)).count()
    };
    wait_until("the end of a container", PATIENCE, || (count(&["destroy", "remove"]) > 0).then_some(()));
    (count(&["start"]), count(&["destroy", "remove"]))
}
