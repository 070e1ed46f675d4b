//! Tunnels of a pair that runs: added, changed, removed, refused.

use serde_json::{Value, json};
use underpass_engines::EngineKind;

use super::guest::resolve;
use super::rig::{condition, tunnel, tunnel_status};
use super::{Rig, on_both, servers};

on_both!(
    tunnels_come_and_go_one_by_one,
    a_changed_tunnel_leads_elsewhere_on_the_same_port,
    a_port_that_is_taken_is_told_and_healed,
    a_preferred_port_that_is_taken_is_replaced,
    a_service_leads_to_its_server,
    datagrams_pass_too,
    a_dead_server_is_refused_at_once,
);

fn patch_tunnels(rig: &Rig, name: &str, tunnels: &Value) {
    let patch = json!({ "spec": { "tunnels": tunnels } });
    rig.kubectl().ok(&format!("patch cntp {name} --type=merge -p {}", patch.to_string().replace(' ', "")));
}

fn address(name: &str, port: u16) -> Value {
    json!({ "name": name, "serverAddress": "127.0.0.1", "serverPort": port })
}

fn tunnels_come_and_go_one_by_one(kind: EngineKind) {
    let rig = Rig::start(kind);
    let ports = [servers::named("one"), servers::named("two"), servers::named("three")];
    rig.apply_proxy("many", "aliases: [h]");
    let before = rig.until_ready("many");
    let tunnels = json!([address("c", ports[2]), address("a", ports[0]), address("b", ports[1])]);
    patch_tunnels(&rig, "many", &tunnels);
    let three = rig.until("many", "three tunnels", |status| status["tunnelsReady"] == "3/3");
    let names: Vec<&Value> = three["tunnelStatuses"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["a", "b", "c"], "sorted by name");
    let grown = |status: &Value| status["tunnelConfigurationVersion"].as_i64().unwrap();
    assert!(grown(&three) > grown(&before));
    assert_eq!(three["clientProxyContainerId"], before["clientProxyContainerId"], "the pair stays");
    let guest = rig.guest("many");
    for (name, said) in [("a", "one"), ("b", "two"), ("c", "three")] {
        assert_eq!(guest.echo("h", &tunnel_status(&three, name)["clientProxyPort"], "x"), said);
    }

    patch_tunnels(&rig, "many", &json!([address("a", ports[0]), address("c", ports[2])]));
    let two = rig.until("many", "two tunnels", |status| status["tunnelsReady"] == "2/2");
    assert!(grown(&two) > grown(&three));
    let gone = &tunnel_status(&three, "b")["clientProxyPort"];
    let (ended, _) = guest.try_run(&format!("{}\n/busybox nc $ip {gone} </dev/null", resolve("h")));
    assert_ne!(ended.exit_code, Some(0), "its port is free at once");
    assert_eq!(guest.echo("h", &tunnel_status(&two, "c")["clientProxyPort"], "x"), "three");
    rig.end();
}

fn a_changed_tunnel_leads_elsewhere_on_the_same_port(kind: EngineKind) {
    let rig = Rig::start(kind);
    let (first, second) = (servers::named("first"), servers::named("second"));
    rig.apply_proxy("changed", &format!("aliases: [h]\ntunnels:\n{}", tunnel("t", first)));
    let before = rig.until_ready("changed");
    patch_tunnels(&rig, "changed", &json!([address("t", second)]));
    let after = rig.until("changed", "the change", |status| {
        status["observedGeneration"] == 2 && tunnel_status(status, "t")["state"] == "Ready"
    });
    let port = &tunnel_status(&after, "t")["clientProxyPort"];
    assert_eq!(port, &tunnel_status(&before, "t")["clientProxyPort"]);
    assert_eq!(rig.guest("changed").echo("h", port, "x"), "second");
    rig.end();
}

fn a_port_that_is_taken_is_told_and_healed(kind: EngineKind) {
    let rig = Rig::start(kind);
    let server = servers::named("here");
    // The client proxy's own port for orders.
    let taken = json!([
        { "name": "bad", "serverAddress": "127.0.0.1", "serverPort": server, "clientProxyPort": 15049 },
        address("good", server),
    ]);
    rig.apply_proxy("taken", "aliases: [h]");
    rig.until_ready("taken");
    patch_tunnels(&rig, "taken", &taken);
    let status = rig.until("taken", "a failed tunnel", |status| {
        tunnel_status(status, "bad")["state"] == "Failed" && tunnel_status(status, "good")["state"] == "Ready"
    });
    assert_eq!(status["state"], "Running", "one tunnel's trouble is not the pair's");
    assert!(tunnel_status(&status, "bad")["errorMessage"].as_str().unwrap().contains("15049"), "{status:#}");
    assert_eq!(condition(&status, "TunnelsReady")["reason"], "TunnelFailed");
    assert_eq!(rig.guest("taken").echo("h", &tunnel_status(&status, "good")["clientProxyPort"], "x"), "here");
    patch_tunnels(&rig, "taken", &json!([address("bad", server), address("good", server)]));
    rig.until("taken", "both", |status| status["tunnelsReady"] == "2/2");
    rig.end();
}

fn a_preferred_port_that_is_taken_is_replaced(kind: EngineKind) {
    let rig = Rig::start(kind);
    let server = servers::echo();
    let two = format!("aliases: [h]\ntunnels:\n{}\n{}", tunnel("a", server), tunnel("b", server));
    rig.apply_proxy("both", &two);
    let status = rig.until_ready("both");
    let port = |name: &str| tunnel_status(&status, name)["clientProxyPort"].clone();
    assert_ne!(port("a"), port("b"));
    assert_ne!(tunnel_status(&status, "a")["tunnelId"], tunnel_status(&status, "b")["tunnelId"]);
    patch_tunnels(&rig, "both", &json!([address("b", server)]));
    rig.until("both", "one tunnel", |status| status["tunnelsReady"] == "1/1");
    assert_eq!(rig.guest("both").echo("h", &port("b"), "still"), "still", "two tunnels to one server share nothing");
    rig.end();
}

fn a_service_leads_to_its_server(kind: EngineKind) {
    let rig = Rig::start(kind);
    let server = servers::echo();
    let spec = "aliases: [h]\ntunnels:\n- {name: api, serverServiceName: api, clientServiceName: api-inside}";
    rig.apply_proxy("svc", spec);
    let waiting = rig.until("svc", "a tunnel that waits", |status| {
        tunnel_status(status, "api")["state"] == "NotReady" && status["state"] == "Running"
    });
    assert!(waiting["tunnelStatuses"].to_string().contains("Service default/api"), "{waiting:#}");
    let service = |name: &str, spec: &str| {
        format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {spec}\n---\n")
    };
    let external = format!("{{type: ExternalName, externalName: localhost, ports: [{{port: {server}}}]}}");
    rig.apply(&(service("api", &external) + &service("api-inside", "{clusterIP: None, ports: [{port: 80}]}")));
    let status = rig.until("svc", "the tunnel", |status| tunnel_status(status, "api")["state"] == "Ready");
    let port = &tunnel_status(&status, "api")["clientProxyPort"];
    assert_eq!(rig.guest("svc").echo("h", port, "by-name"), "by-name");
    let slices = "get endpointslices -l kubernetes.io/service-name=api-inside";
    rig.kubectl().ok("wait --for=create endpointslices -l kubernetes.io/service-name=api-inside --timeout=60s");
    let slice = &rig.kubectl().json(slices)["items"][0];
    assert_eq!(slice["ports"][0]["port"], *port);
    assert_eq!(slice["endpoints"][0]["addresses"], tunnel_status(&status, "api")["clientProxyAddresses"]);

    rig.kubectl().ok("delete service api");
    rig.until("svc", "no tunnel", |status| tunnel_status(status, "api")["state"] == "NotReady");
    underpass_testbed::wait_until("no endpoints", underpass_testbed::PATIENCE, || {
        rig.kubectl().json(slices)["items"].as_array().unwrap().is_empty().then_some(())
    });
    rig.apply(&service("api", &external));
    let again = rig.until("svc", "the tunnel again", |status| tunnel_status(status, "api")["state"] == "Ready");
    assert_eq!(tunnel_status(&again, "api")["clientProxyPort"], *port, "on the port that clients know");
    rig.end();
}

fn datagrams_pass_too(kind: EngineKind) {
    let rig = Rig::start(kind);
    let server = servers::names();
    let spec =
        format!("aliases: [h]\ntunnels:\n- {{name: t, protocol: UDP, serverAddress: 127.0.0.1, serverPort: {server}}}");
    rig.apply_proxy("udp", &spec);
    let status = rig.until_ready("udp");
    let port = &tunnel_status(&status, "t")["clientProxyPort"];
    let asked = format!("{}\n/busybox nslookup -port={port} a.test $ip", resolve("h"));
    let answer = rig.guest("udp").run(&asked);
    assert!(answer.contains("192.0.2.55"), "{answer}");
    rig.end();
}

fn a_dead_server_is_refused_at_once(kind: EngineKind) {
    let rig = Rig::start(kind);
    let (dead, alive) = (servers::dead(), servers::echo());
    rig.apply_proxy("dead", &format!("aliases: [h]\ntunnels:\n{}\n{}", tunnel("dead", dead), tunnel("alive", alive)));
    let status = rig.until_ready("dead");
    let port = |name: &str| tunnel_status(&status, name)["clientProxyPort"].clone();
    let guest = rig.guest("dead");
    let script = format!("{}\nprintf x | /busybox timeout 20 /busybox nc $ip {}", resolve("h"), port("dead"));
    let (ended, printed) = guest.try_run(&script);
    assert!(ended.exit_code != Some(143) && !printed.contains("said: x"), "{ended:?} {printed}");
    assert_eq!(guest.echo("h", &port("alive"), "fine"), "fine");
    rig.end();
}
