//! What an engine can be and do: rootless, away for a while, full.

use std::time::{Duration, Instant};

use underpass_engines::{ContainerEngine, EngineKind};
use underpass_testbed::{Forwarder, PrivateEngine, TestEngine};

use super::rig::{condition, is_ready, tunnel, tunnel_status};
use super::{Rig, on_both, servers};

on_both!(
    an_engine_that_ends_and_comes_back_has_its_pair_again,
    a_container_that_goes_while_events_are_cut_off_is_missed,
    a_full_engine_is_told_and_waited_for,
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
