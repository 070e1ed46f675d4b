//! What an engine can be and do: rootless, away for a while, full.

use std::time::{Duration, Instant};

use underpass_engines::labels::INSTANCE;
use underpass_engines::{ContainerEngine, EngineKind};
use underpass_testbed::{Forwarder, Launch, PATIENCE, PrivateEngine, TestEngine, engines, wait_until};

use super::rig::{condition, identity, is_ready, tunnel, tunnel_status};
use super::{Rig, on_both, servers};
use crate::{BINARY, process_where};

on_both!(
    an_engine_that_ends_and_comes_back_has_its_pair_again,
    an_engine_that_ends_during_a_build_is_waited_for,
    a_container_that_goes_while_events_are_cut_off_is_missed,
    a_full_engine_is_told_and_waited_for,
    the_one_that_is_asked_for_is_taken,
);

#[test]
fn rootless_podman_carries_too() {
    let engine = match TestEngine::rootless() {
        Ok(engine) => engine,
        Err(why) => return eprintln!("SKIPPED: there is no rootless Podman here: {why}"),
    };
    let rig = Rig::on(engine);
    let server = servers::echo();
    rig.apply_proxy("p", &format!("aliases: [h]\ntunnels:\n{}", tunnel("t", server)));
    let status = rig.until_ready("p");
    let port = &tunnel_status(&status, "t")["clientProxyPort"];
    assert_eq!(rig.guest("p").echo("h", port, "rootless"), "rootless");
    rig.end();
}

/// Containers of Podman live on without it, those of Docker end with it.
fn an_engine_that_ends_and_comes_back_has_its_pair_again(kind: EngineKind) {
    let mut private = PrivateEngine::start(kind);
    private.enter();
    let rig = Rig::on(private.view());
    let server = servers::echo();
    rig.apply_proxy("p", &format!("aliases: [h]\nrestartPolicy: Always\ntunnels:\n{}", tunnel("t", server)));
    let before = rig.until_ready("p");
    private.stop();
    let away = rig.until("p", "a word about the engine", |status| {
        condition(status, "ClientProxyReady")["reason"] == "NoContainerEngine"
    });
    assert!(!is_ready(&away), "what cannot be seen is not proven");
    assert_eq!(away["clientProxyContainerId"], before["clientProxyContainerId"], "it may still live");
    private.start_again();
    let after = rig.until("p", "the pair", |status| is_ready(status) && status["state"] == "Running");
    let stayed = after["clientProxyContainerId"] == before["clientProxyContainerId"];
    assert_eq!(stayed, kind == EngineKind::Podman);
    let port = &tunnel_status(&after, "t")["clientProxyPort"];
    assert_eq!(port, &tunnel_status(&before, "t")["clientProxyPort"]);
    assert_eq!(rig.guest("p").echo("h", port, "again"), "again");
    rig.end();
}

/// The build takes as long as it takes to see it and to end the engine below it.
fn an_engine_that_ends_during_a_build_is_waited_for(kind: EngineKind) {
    let mut private = PrivateEngine::start(kind);
    private.enter();
    let rig = Rig::on(private.view());
    let step = rig.engine.name("a-step");
    let lines = format!(r#"ONBUILD RUN ["/busybox", "sh", "-c", "/busybox sleep 5; echo {step}"]"#);
    let base = rig.wait_for(rig.engine.image_with(&lines));
    rig.apply_proxy("p", &format!("aliases: [h]\nbaseImage: {base}"));
    let is_step = |command: &str| command.starts_with("/busybox") && command.contains(&step);
    wait_until("the build", PATIENCE, || process_where(|file| is_step(&file("cmdline"))));
    assert_eq!(rig.status("p")["state"], "BuildingImage");
    private.stop();
    rig.until("p", "a word about the engine", |status| {
        let why = condition(status, "Ready")["message"].as_str().unwrap_or_default();
        status["state"] == "Pending" && why.contains("cannot be reached")
    });
    private.start_again();
    rig.until_ready("p");
    rig.end();
}

/// A pair that runs is looked at every 30 seconds, whatever is heard: its end has to be told long before the first such look.
fn a_container_that_goes_while_events_are_cut_off_is_missed(kind: EngineKind) {
    const WITHOUT_A_LOOK: Duration = Duration::from_secs(15);
    let direct = TestEngine::shared(kind);
    let between = Forwarder::to(&direct.address);
    let rig = Rig::on(TestEngine::at(kind, &between.address()));
    rig.apply_proxy("p", "aliases: [h]");
    rig.until_ready("p");
    let looked_at = Instant::now();
    let id = rig.containers("p")[0].id.clone();
    between.cut();
    rig.wait_for(direct.engine.remove_container(&id)).unwrap();
    let failed = rig.until_state("p", "Failed");
    let told = looked_at.elapsed();
    assert!(told < WITHOUT_A_LOOK, "only a look has found it, after {told:?}");
    // Whoever looks while the engine removes it sees that it ended, later that it is gone.
    assert!(failed["message"].as_str().unwrap().contains("the client proxy's container"), "{failed}");
    rig.end();
}

/// Where both are named.
fn the_one_that_is_asked_for_is_taken(kind: EngineKind) {
    let engines = engines();
    let word = kind.to_string().to_lowercase();
    let launch = Launch::up(BINARY).args(["--container-runtime", &word]);
    let variables = engines.iter().map(TestEngine::variable);
    let up = variables.fold(launch, |launch, (name, address)| launch.env(name, address)).start();
    up.kubectl().ok_with("apply -f -", &crate::network("p"));
    up.kubectl().ok("wait --for=condition=Ready ctrnet/p --timeout=60s");
    let instance = identity(&up.kubectl());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for one in &engines {
        let made = runtime.block_on(one.engine.list_networks(&[(INSTANCE, &instance)])).unwrap();
        assert_eq!(made.len(), usize::from(one.kind == kind), "in {}", one.kind);
    }
    let ended = up.stop();
    assert_eq!(ended.code, Some(0), "{ended}");
}

/// The engine has room for two networks.
fn a_full_engine_is_told_and_waited_for(kind: EngineKind) {
    let private = PrivateEngine::start(kind);
    private.enter();
    let rig = Rig::on(private.view());
    for name in ["a", "b"] {
        rig.apply(&crate::network(name));
        rig.kubectl().ok(&format!("wait --for=condition=Ready ctrnet/{name} --timeout=60s"));
    }
    rig.apply_proxy("c", "aliases: [h]");
    rig.kubectl().ok("wait --for=jsonpath={.status.conditions[0].reason}=AddressesExhausted ctrnet/c --timeout=60s");
    let waiting = rig.until_state("c", "Pending");
    assert_eq!(condition(&waiting, "Ready")["reason"], "WaitingForNetwork");
    rig.kubectl().ok("delete ctrnet a --timeout=60s");
    rig.until_ready("c");
    rig.end();
}
