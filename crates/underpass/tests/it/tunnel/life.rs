//! From nothing to Running and back.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use underpass_engines::labels::{CREATOR_PID, CREATOR_START, OBJECT};
use underpass_engines::{ContainerEngine, ContainerState, EngineKind};
use underpass_plan::tunnel_proxy::FINALIZER;
use underpass_testbed::{PATIENCE, wait_until};

use super::rig::{condition, is_alive, is_ready, proxy, tunnel, tunnel_status, until_dead};
use super::{Rig, on_both, servers};

on_both!(
    a_pair_comes_and_goes,
    an_ordinary_start_is_told_in_order_and_without_a_warning,
    the_network_may_come_later,
    an_object_made_again_under_its_name_starts_anew,
    a_proxy_that_waits_can_go,
    a_persistent_network_stays_and_an_existing_one_is_used,
    a_collection_that_is_deleted_takes_its_pairs_along,
    an_alias_belongs_to_the_first_who_asks_for_it,
    an_alias_belongs_to_the_first_of_two_instances,
    of_two_instances_that_start_at_once_one_has_the_alias,
    an_alias_that_a_container_has_is_left_to_it,
    a_network_that_is_used_goes_when_its_last_container_does,
);

fn a_pair_comes_and_goes(kind: EngineKind) {
    let rig = Rig::start(kind);
    let server = servers::echo();
    let before = Timestamp::now();
    rig.apply_proxy("web", &format!("aliases: [host.internal, other.internal]\ntunnels:\n{}", tunnel("http", server)));
    let status = rig.until_ready("web");

    for part in ["NetworkReady", "ImageReady", "ClientProxyReady", "ServerProxyReady", "TunnelsReady"] {
        assert_eq!(condition(&status, part)["status"], "True", "{part}");
    }
    let image = status["clientProxyContainerImage"].as_str().unwrap();
    assert!(image.starts_with("localhost/underpass-tunnel:"), "{image}");
    let containers = rig.containers("web");
    assert_eq!(containers.len(), 1);
    let container = &containers[0];
    assert_eq!(container.state, ContainerState::Running);
    assert_eq!(status["clientProxyContainerId"], json!(container.id));
    for (field, port) in [("clientProxyControlPort", 15049), ("clientProxyDataPort", 15050)] {
        let published = container.published.iter().find(|one| one.port.number == port).unwrap();
        assert!(published.host.ip().is_loopback(), "{published:?}");
        assert_eq!(status[field], json!(published.host.port()));
    }
    assert_eq!(container.networks.len(), 1, "exactly the network that was asked for");
    let attachment = container.networks.values().next().unwrap();
    for alias in ["host.internal", "other.internal"] {
        assert!(attachment.aliases.iter().any(|one| one == alias), "{attachment:?}");
    }
    assert_eq!(container.labels[OBJECT], "web");
    let pid = rig.up.as_ref().unwrap().ready().pid.to_string();
    assert_eq!(container.labels[CREATOR_PID], pid);
    assert!(container.labels[CREATOR_START].parse::<u64>().is_ok());

    let process = &status["serverProxyProcessId"];
    assert!(is_alive(process));
    for file in ["serverProxyStdOutFile", "serverProxyStdErrFile"] {
        use std::os::unix::fs::PermissionsExt;
        let file = std::fs::metadata(status[file].as_str().unwrap()).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
    }
    let http = tunnel_status(&status, "http");
    assert_eq!(http["clientProxyPort"], json!(server), "the server's own port, because it is free");
    let time = |told: &Value| told.as_str().unwrap().parse::<Timestamp>().unwrap();
    let (started, ready) = (time(&status["serverProxyStartupTimestamp"]), time(&http["timestamp"]));
    assert!(before < started && started < ready && ready < Timestamp::now(), "{before} {status:#}");
    let addresses = http["clientProxyAddresses"].to_string();
    assert!(addresses.len() > 2 && !addresses.contains("127.0.0.1"), "{addresses}");
    assert_eq!(rig.guest("web").echo("host.internal", &http["clientProxyPort"], "hello"), "hello");
    assert_eq!(rig.guest("web").echo("other.internal", &http["clientProxyPort"], "again"), "again");

    let metadata = rig.proxy("web")["metadata"].clone();
    assert_eq!(metadata["finalizers"], json!([FINALIZER]));
    let uid = metadata["uid"].as_str().unwrap().to_owned();
    rig.kubectl().ok("delete cntp web --timeout=60s");
    assert!(rig.containers_of(&uid).is_empty());
    until_dead(process);
    assert!(!rig.data_dir().join("tunnels").join(uid).exists());
    rig.end();
}

fn an_ordinary_start_is_told_in_order_and_without_a_warning(kind: EngineKind) {
    let rig = Rig::start(kind);
    rig.apply_proxy("web", &format!("aliases: [h]\ntunnels:\n{}", tunnel("http", servers::echo())));
    rig.until_ready("web");
    let kubectl = rig.kubectl();
    let events = wait_until("all that was told", PATIENCE, || {
        let listed = kubectl.json("get events --sort-by=.eventTime");
        let events = listed["items"].as_array().unwrap().clone();
        let told = |reason: &str| events.iter().any(|event| event["reason"] == reason);
        (told("TunnelsReady") && told("NetworkExists")).then_some(events)
    });
    let of_proxy = events.iter().filter(|event| event["involvedObject"]["kind"] == "ContainerNetworkTunnelProxy");
    let reasons: Vec<&str> = of_proxy.map(|event| event["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons.last(), Some(&"TunnelsReady"), "{reasons:?}");
    let warnings: Vec<_> = events.iter().filter(|event| event["type"] != "Normal").collect();
    assert!(warnings.is_empty(), "{warnings:#?}");
    // Whichever way people look at them.
    let described = kubectl.ok("describe cntp web");
    let lines = described.split_once("Events:").unwrap().1.lines().skip(3);
    let column = |number: usize| move |line: &str| line.split_whitespace().nth(number).unwrap().to_owned();
    assert_eq!(lines.map(column(1)).collect::<Vec<_>>(), reasons, "{described}");
    let listed = kubectl.ok("events --for=ContainerNetworkTunnelProxy/web --no-headers");
    assert_eq!(listed.lines().map(column(2)).collect::<Vec<_>>(), reasons, "{listed}");
    let sorted = kubectl.ok("get events --sort-by=.lastTimestamp --no-headers");
    let sorted = sorted.lines().filter(|line| line.contains("containernetworktunnelproxy/web"));
    assert_eq!(sorted.map(column(2)).collect::<Vec<_>>(), reasons);
    rig.end();
}

fn the_network_may_come_later(kind: EngineKind) {
    let rig = Rig::start(kind);
    rig.apply(&proxy("late", ""));
    let status = rig.until_state("late", "Pending");
    assert_eq!(condition(&status, "Ready")["reason"], "WaitingForNetwork");
    rig.apply(&crate::network("late"));
    let status = rig.until_ready("late");
    assert_eq!(status["tunnelsReady"], "0/0");
    rig.end();
}

fn an_object_made_again_under_its_name_starts_anew(kind: EngineKind) {
    let rig = Rig::start(kind);
    let server = servers::echo();
    let spec = format!("aliases: [h]\ntunnels:\n{}", tunnel("t", server));
    rig.apply_proxy("again", &spec);
    let first = rig.until_ready("again");
    rig.kubectl().ok("delete cntp again --timeout=60s");
    rig.apply_proxy("again", &spec);
    let second = rig.until_ready("again");
    assert_ne!(first["clientProxyContainerId"], second["clientProxyContainerId"]);
    assert_ne!(first["serverProxyProcessId"], second["serverProxyProcessId"]);
    let port = &tunnel_status(&second, "t")["clientProxyPort"];
    assert_eq!(rig.guest("again").echo("h", port, "twice"), "twice");
    rig.end();
}

fn a_proxy_that_waits_can_go(kind: EngineKind) {
    let rig = Rig::start(kind);
    rig.apply(&proxy("waits", ""));
    rig.until_state("waits", "Pending");
    rig.kubectl().ok("delete cntp waits --timeout=60s");
    rig.end();
}

fn a_collection_that_is_deleted_takes_its_pairs_along(kind: EngineKind) {
    let rig = Rig::start(kind);
    let network = crate::network("both");
    let second = proxy("second", "").replace("containerNetworkName: second", "containerNetworkName: both");
    rig.apply(&format!("{network}---\n{}---\n{second}", proxy("both", "")));
    let processes = ["both", "second"].map(|name| rig.until_ready(name)["serverProxyProcessId"].clone());
    rig.kubectl().ok("delete --raw /apis/underpass.dev/v1alpha1/containernetworktunnelproxies");
    rig.kubectl().ok("wait --for=delete cntp --all --timeout=60s");
    processes.iter().for_each(until_dead);
    rig.kubectl().ok("delete ctrnet both --timeout=60s");
    rig.assert_nothing_is_left();
    rig.end();
}

fn a_persistent_network_stays_and_an_existing_one_is_used(kind: EngineKind) {
    let rig = Rig::start(kind);
    let name = rig.engine.name("persistent");
    rig.apply(&shared_network("kept", &name, "persistent"));
    rig.kubectl().ok("wait --for=condition=Ready ctrnet/kept --timeout=60s");
    rig.apply(&format!("{}---\n{}", shared_network("used", &name, "existing"), proxy("used", "aliases: [h]")));
    assert!(is_ready(&rig.until_ready("used")));
    rig.kubectl().ok("delete cntp used --timeout=60s");
    rig.kubectl().ok("delete ctrnet used kept --timeout=60s");
    let kept = rig.wait_for(rig.engine.engine.find_network(&name)).unwrap().expect("it stays");
    rig.wait_for(rig.engine.engine.remove_network(&kept.id)).unwrap();
    rig.end();
}

fn an_alias_belongs_to_the_first_who_asks_for_it(kind: EngineKind) {
    let rig = Rig::start(kind);
    rig.apply_proxy("first", "aliases: [h]");
    rig.until_ready("first");
    let on_first = |name: &str, aliases: &str| {
        let spec = proxy(name, &format!("aliases: [{aliases}]"));
        spec.replace(&format!("containerNetworkName: {name}"), "containerNetworkName: first")
    };
    rig.apply(&format!("{}---\n{}", on_first("second", "other, h"), on_first("third", "another")));
    rig.until_ready("third");
    let waiting =
        rig.until("second", "a word about the alias", |status| condition(status, "Ready")["reason"] == "AliasTaken");
    let message = condition(&waiting, "Ready")["message"].as_str().unwrap();
    assert!(message.contains("alias h ") && message.contains("ContainerNetworkTunnelProxy first"), "{message}");
    assert_eq!(rig.containers("second").len(), 0, "nobody else answers to the name");
    rig.kubectl().ok("delete cntp first --timeout=60s");
    rig.until_ready("second");
    rig.end();
}

/// A ContainerNetwork for the engine's network of this name.
fn shared_network(object: &str, name: &str, mode: &str) -> String {
    crate::network(object).replace("spec: {}", &format!("spec: {{networkName: {name}, mode: {mode}}}"))
}

fn until_alias_is_taken(rig: &Rig, name: &str) -> Value {
    rig.until(name, "a word about the alias", |status| condition(status, "Ready")["reason"] == "AliasTaken")
}

/// Neither knows the other's objects: the engine tells.
fn an_alias_belongs_to_the_first_of_two_instances(kind: EngineKind) {
    let (one, two) = (Rig::start(kind), Rig::start(kind));
    let name = one.engine.name("shared");
    one.apply(&format!("{}---\n{}", shared_network("p", &name, "session"), proxy("p", "aliases: [h]")));
    one.until_ready("p");
    let container = one.containers("p").remove(0).name;
    two.apply(&format!("{}---\n{}", shared_network("q", &name, "existing"), proxy("q", "aliases: [other, h]")));
    let waiting = until_alias_is_taken(&two, "q");
    let message = condition(&waiting, "Ready")["message"].as_str().unwrap();
    assert!(message.contains("alias h ") && message.contains(&container), "{message}");
    assert_eq!(two.containers("q").len(), 0, "nobody else answers to the name");
    assert!(is_ready(&one.status("p")), "who was there first keeps it");
    one.kubectl().ok("delete cntp p --timeout=60s");
    two.until_ready("q");
    let events = two.kubectl().ok("get events -o jsonpath={.items[*].reason}");
    assert!(!events.contains("BuildingImage"), "the first one has made it: {events}");
    two.end();
    one.end();
}

fn of_two_instances_that_start_at_once_one_has_the_alias(kind: EngineKind) {
    let rigs = [Rig::start(kind), Rig::start(kind)];
    let name = rigs[0].engine.name("shared");
    rigs[0].apply(&shared_network("kept", &name, "session"));
    rigs[0].kubectl().ok("wait --for=condition=Ready ctrnet/kept --timeout=60s");
    let objects = format!("{}---\n{}", shared_network("p", &name, "existing"), proxy("p", "aliases: [h]"));
    std::thread::scope(|scope| rigs.iter().for_each(|rig| drop(scope.spawn(|| rig.apply(&objects)))));
    let settled = |status: &Value| is_ready(status) || condition(status, "Ready")["reason"] == "AliasTaken";
    let has_it = wait_until("one that has the alias, and one that does not", PATIENCE, || {
        let states = [0, 1].map(|index| rigs[index].until("p", "a verdict", settled));
        let ready = states.each_ref().map(is_ready);
        let alone = rigs.iter().filter(|rig| !rig.containers("p").is_empty()).count() == 1;
        (ready[0] != ready[1] && alone).then_some(usize::from(ready[1]))
    });
    // However often they look, it stays so.
    for look in 0..3 {
        rigs.iter().for_each(|rig| drop(rig.kubectl().ok(&format!("annotate cntp p look={look} --overwrite"))));
        assert!(is_ready(&rigs[has_it].status("p")));
        until_alias_is_taken(&rigs[1 - has_it], "p");
    }
    let [one, two] = rigs;
    two.end();
    one.end();
}

/// Engines answer to a container's own name as they do to its aliases.
fn an_alias_that_a_container_has_is_left_to_it(kind: EngineKind) {
    let rig = Rig::start(kind);
    rig.apply(&crate::network("net"));
    rig.kubectl().ok("wait --for=condition=Ready ctrnet/net --timeout=60s");
    let name = rig.engine.name("db");
    let id = rig.guest("net").bystander(&name, &["h"]);
    let on_n = |object: &str, alias: &str| {
        let spec = proxy(object, &format!("aliases: [{alias}]"));
        spec.replace(&format!("containerNetworkName: {object}"), "containerNetworkName: net")
    };
    rig.apply(&format!("{}---\n{}---\n{}", on_n("by-alias", "h"), on_n("by-name", &name), on_n("free", "free")));
    rig.until_ready("free");
    for object in ["by-alias", "by-name"] {
        let waiting = until_alias_is_taken(&rig, object);
        let message = waiting["message"].as_str().unwrap();
        assert!(message.contains(&format!("the container {name}")), "{message}");
        assert_eq!(rig.containers(object).len(), 0);
    }
    rig.wait_for(rig.engine.engine.remove_container(&id)).unwrap();
    rig.until_ready("by-alias");
    rig.until_ready("by-name");
    // Who comes later takes nothing away from who is there.
    rig.guest("net").bystander(&rig.engine.name("late"), &["h"]);
    rig.kubectl().ok("annotate cntp by-alias look=again");
    assert!(is_ready(&rig.until_ready("by-alias")));
    rig.kubectl().ok("delete cntp --all --timeout=60s");
    drop_guests(&rig);
    rig.end();
}

/// Of this test, by the label that they carry.
fn drop_guests(rig: &Rig) {
    let mine = [(underpass_engines::labels::INSTANCE, rig.engine.instance.as_str())];
    for guest in rig.wait_for(rig.engine.engine.list_containers(&mine)).unwrap() {
        rig.wait_for(rig.engine.engine.remove_container(&guest.id)).unwrap();
    }
}

fn a_network_that_is_used_goes_when_its_last_container_does(kind: EngineKind) {
    let rig = Rig::start(kind);
    rig.apply(&crate::network("net"));
    rig.kubectl().ok("wait --for=condition=Ready ctrnet/net --timeout=60s");
    let name = rig.engine.name("user");
    let id = rig.guest("net").bystander(&name, &[]);
    rig.kubectl().ok("delete ctrnet net --wait=false");
    let status = wait_until("a word about who uses it", PATIENCE, || {
        let status = rig.kubectl().json("get ctrnet net")["status"].clone();
        (condition(&status, "Ready")["reason"] == "NetworkInUse").then_some(status)
    });
    assert_eq!(status["state"], "Removing");
    let message = status["message"].as_str().unwrap();
    assert!(message.contains(&name), "{message}");
    rig.wait_for(rig.engine.engine.remove_container(&id)).unwrap();
    rig.kubectl().ok("wait --for=delete ctrnet/net --timeout=8s");
    rig.end();
}
