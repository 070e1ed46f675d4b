//! Tunnels of a pair that runs: added, changed, removed, refused.

use std::net::{IpAddr, TcpListener, UdpSocket};
use std::time::Duration;

use serde_json::{Value, json};
use underpass_engines::{ContainerEngine, EngineKind};
use underpass_testbed::{PATIENCE, look_until, wait_until};

use super::guest::resolve;
use super::rig::{condition, tunnel, tunnel_status};
use super::{Rig, on_both, servers};

on_both!(
    tunnels_come_and_go_one_by_one,
    a_changed_tunnel_leads_elsewhere_on_the_same_port,
    a_port_that_is_taken_is_told_and_healed,
    a_preferred_port_that_is_taken_is_replaced,
    a_service_leads_to_its_server,
    a_service_is_where_its_endpoints_are,
    a_service_that_cannot_show_a_tunnel_is_told_of_that_tunnel,
    two_tunnels_swap_their_ports,
    datagrams_pass_too,
    a_network_with_ipv6_is_crossed_by_it,
    a_dead_server_is_refused_at_once,
    a_missing_server_is_told_until_it_is_there,
    a_server_that_refuses_a_stream_is_told_at_once,
    a_service_that_cannot_be_resolved_is_told_as_a_service,
    a_port_below_1024_is_one_like_any_other,
    a_tunnel_has_no_more_connections_than_it_may,
);

/// A pair that runs is looked at every 30 seconds, whatever is heard.
const WITHOUT_A_LOOK: Duration = Duration::from_secs(15);

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
    let mut rig = Rig::start(kind);
    let server = servers::named("here");
    rig.apply_proxy("taken", &format!("aliases: [h]\ntunnels:\n{}", tunnel("good", server)));
    let before = rig.until_ready("taken");
    let port = tunnel_status(&before, "good")["clientProxyPort"].clone();
    let bad = json!({ "name": "bad", "serverAddress": "127.0.0.1", "serverPort": server, "clientProxyPort": port });
    patch_tunnels(&rig, "taken", &json!([bad, address("good", server)]));
    let status = rig.until("taken", "a failed tunnel", |status| tunnel_status(status, "bad")["state"] == "Failed");
    assert_eq!(status["state"], "Running", "one tunnel's trouble is not the pair's");
    assert_eq!(tunnel_status(&status, "good")["state"], "Ready");
    let told = tunnel_status(&status, "bad")["errorMessage"].as_str().unwrap();
    assert!(told.contains(&format!("port {port} is taken")), "{status:#}");
    assert_eq!(condition(&status, "TunnelsReady")["reason"], "TunnelFailed");
    assert_eq!(rig.guest("taken").echo("h", &port, "x"), "here");
    patch_tunnels(&rig, "taken", &json!([address("bad", server), address("good", server)]));
    rig.until("taken", "both", |status| status["tunnelsReady"] == "2/2");
    let ended = rig.up.take().unwrap().stop();
    let refused = |line: &&str| line.contains("prepare the tunnel bad") && line.contains(&format!("port {port})"));
    let lines: Vec<&str> = ended.stderr.lines().filter(refused).collect();
    let told = |line: &&str| line.contains("succeeded=false") && line.contains("is taken");
    assert!(!lines.is_empty() && lines.iter().all(told), "{lines:#?}");
    rig.assert_nothing_is_left();
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

fn two_tunnels_swap_their_ports(kind: EngineKind) {
    let rig = Rig::start(kind);
    let (one, two) = (servers::named("one"), servers::named("two"));
    let at = |name: &str, server: u16, port: u16| json!({ "name": name, "serverAddress": "127.0.0.1", "serverPort": server, "clientProxyPort": port });
    rig.apply_proxy("swap", "aliases: [h]");
    patch_tunnels(&rig, "swap", &json!([at("one", one, 81), at("two", two, 82)]));
    rig.until("swap", "both", |status| status["tunnelsReady"] == "2/2");
    patch_tunnels(&rig, "swap", &json!([at("one", one, 82), at("two", two, 81)]));
    rig.until("swap", "the swap", |status| {
        let states = status["tunnelStatuses"].as_array().unwrap().iter().map(|one| &one["state"]);
        assert!(states.into_iter().all(|state| state != "Failed"), "none is in the other's way: {status:#}");
        status["tunnelsReady"] == "2/2" && tunnel_status(status, "one")["clientProxyPort"] == 82
    });
    let guest = rig.guest("swap");
    for (port, said) in [(82, "one"), (81, "two")] {
        assert_eq!(guest.echo("h", &json!(port), "x"), said);
    }
    rig.end();
}

/// It is not Ready although containers reach it, and nobody else's trouble.
fn a_service_that_cannot_show_a_tunnel_is_told_of_that_tunnel(kind: EngineKind) {
    let rig = Rig::start(kind);
    let server = servers::echo();
    let shown = |name: &str, namespace: &str| {
        let client = format!(", clientServiceName: s, clientServiceNamespace: {namespace}}}");
        tunnel(name, server).replace('}', &client)
    };
    let tunnels = [shown("a", "nowhere"), shown("b", "default")].join("\n");
    rig.apply_proxy("shown", &format!("aliases: [h]\ntunnels:\n{tunnels}"));
    let status = rig.until("shown", "one of both", |status| {
        status["tunnelsReady"] == "1/2" && tunnel_status(status, "a")["state"] == "Failed"
    });
    assert_eq!(tunnel_status(&status, "b")["state"], "Ready");
    let why = tunnel_status(&status, "a")["errorMessage"].as_str().unwrap();
    assert!(why.contains("EndpointSlice nowhere/") && why.contains("cannot be written"), "{why}");
    let ready = condition(&status, "Ready");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("TunnelFailed")));
    assert!(ready["message"].as_str().unwrap().contains(why), "{ready}");
    let port = &tunnel_status(&status, "a")["lastClientProxyPort"];
    assert_eq!(rig.guest("shown").echo("h", port, "carried"), "carried");
    rig.kubectl().ok("create namespace nowhere");
    rig.until("shown", "both", |status| status["tunnelsReady"] == "2/2");
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
    wait_until("no endpoints", PATIENCE, || {
        rig.kubectl().json(slices)["items"].as_array().unwrap().is_empty().then_some(())
    });
    rig.apply(&service("api", &external));
    let again = rig.until("svc", "the tunnel again", |status| tunnel_status(status, "api")["state"] == "Ready");
    assert_eq!(tunnel_status(&again, "api")["clientProxyPort"], *port, "on the port that clients know");
    rig.end();
}

/// This host's own address on the network on which this one is.
fn beside(container: IpAddr) -> IpAddr {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
    socket.connect((container, 9)).unwrap();
    socket.local_addr().unwrap().ip()
}

fn a_service_is_where_its_endpoints_are(kind: EngineKind) {
    let rig = Rig::start(kind);
    rig.apply_proxy("eps", "aliases: [h]\ntunnels:\n- {name: api, serverServiceName: api}");
    rig.apply("apiVersion: v1\nkind: Service\nmetadata: {name: api}\nspec: {clusterIP: None, ports: [{name: http, port: 80}]}");
    let until = |what: &str, holds: &dyn Fn(&Value) -> bool| {
        let seen = look_until(WITHOUT_A_LOOK, || {
            Some(tunnel_status(&rig.status("eps"), "api").clone()).filter(|api| holds(api))
        });
        seen.unwrap_or_else(|| panic!("{what} never came: {:#}", rig.status("eps")))
    };
    let missing = |api: &Value| {
        let why = api["errorMessage"].as_str().unwrap_or_default();
        api["state"] == "NotReady" && why.contains("Service default/api has no ready endpoint")
    };
    rig.until("eps", "a tunnel that waits", |status| missing(tunnel_status(status, "api")));
    let host = beside(rig.containers("eps")[0].networks.values().next().unwrap().addresses[0]);
    let server = servers::echo_at(host);
    let slice = format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
         metadata: {{name: api-1, labels: {{kubernetes.io/service-name: api}}}}\n\
         endpoints: [{{addresses: [{host}]}}]\nports: [{{name: http, port: {server}}}]"
    );
    let reachable = |api: &Value| api["state"] == "Ready" && api["serverState"] == "Reachable";
    rig.apply(&slice);
    let port = until("the tunnel", &reachable)["clientProxyPort"].clone();
    assert_eq!(rig.guest("eps").echo("h", &port, "by-slice"), "by-slice");
    rig.kubectl().ok("delete endpointslice api-1");
    assert_eq!(until("no tunnel", &missing)["lastClientProxyPort"], port);
    rig.apply(&slice);
    assert_eq!(until("the tunnel again", &reachable)["clientProxyPort"], port, "on the port that clients know");
    assert_eq!(rig.guest("eps").echo("h", &port, "again"), "again");
    rig.end();
}

fn a_tunnel_has_no_more_connections_than_it_may(kind: EngineKind) {
    let rig = Rig::start(kind);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let one = json!({
        "name": "one", "serverAddress": "127.0.0.1", "serverPort": server.local_addr().unwrap().port(), "maxConnections": 1
    });
    rig.apply_proxy("p", "aliases: [h]");
    patch_tunnels(&rig, "p", &json!([one]));
    let status = rig.until("p", "the tunnel", |status| status["tunnelsReady"] == "1/1");
    let port = &tunnel_status(&status, "one")["clientProxyPort"];
    let guest = rig.guest("p");
    let first = guest.hold("h", port);
    let _served = wait_until("the first one", PATIENCE, || server.accept().ok());
    let script = format!("{}\nprintf x | /busybox timeout 20 /busybox nc $ip {port}", resolve("h"));
    let (second, printed) = guest.try_run(&script);
    assert!(![Some(143), Some(9)].contains(&second.exit_code), "it is closed at once: {second:?} {printed}");
    assert!(server.accept().is_err(), "its server hears nothing of it");
    rig.wait_for(rig.engine.engine.remove_container(&first)).unwrap();
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

#[expect(clippy::print_stderr, reason = "what was not tested has to be seen")]
fn a_network_with_ipv6_is_crossed_by_it(kind: EngineKind) {
    if !std::path::Path::new("/proc/net/if_inet6").exists() {
        return eprintln!("SKIPPED: this machine's kernel has no IPv6");
    }
    let rig = Rig::start(kind);
    rig.apply(&crate::network("six").replace("spec: {}", "spec: {ipv6: true}"));
    rig.apply(&super::rig::proxy("six", &format!("tunnels:\n{}", tunnel("t", servers::echo()))));
    let status = rig.until_ready("six");
    let t = tunnel_status(&status, "t");
    let addresses = t["clientProxyAddresses"].as_array().unwrap().iter().map(|address| address.as_str().unwrap());
    let six: Vec<&str> = addresses.filter(|address| address.contains(':')).collect();
    assert_eq!(six.len(), 1, "{t:#}");
    // An address of a container that has just begun is not usable at once: the kernel looks whether somebody else has it.
    let script = format!(
        "for try in $(/busybox seq 50); do
             printf six | /busybox nc {} {} 2>/dev/null && break; /busybox sleep 0.1
         done",
        six[0], t["clientProxyPort"]
    );
    assert_eq!(rig.guest("six").run(&script), "six");
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

fn a_missing_server_is_told_until_it_is_there(kind: EngineKind) {
    let rig = Rig::start(kind);
    let (dead, alive) = (servers::dead(), servers::echo());
    rig.apply_proxy("p", &format!("aliases: [h]\ntunnels:\n{}\n{}", tunnel("dead", dead), tunnel("alive", alive)));
    let missing = rig.until("p", "a word about the server", |status| {
        condition(status, "ServersReachable")["status"] == "False" && status["tunnelsReady"] == "2/2"
    });
    assert_eq!(condition(&missing, "Ready")["status"], "True", "the tunnel is not to blame");
    assert_eq!(tunnel_status(&missing, "alive")["serverState"], "Reachable");
    assert_eq!(tunnel_status(&missing, "dead")["serverState"], "Unreachable");
    let why = format!("127.0.0.1:{dead}: connection refused, nothing listens there");
    assert_eq!(tunnel_status(&missing, "dead")["serverError"], why);
    assert_eq!(condition(&missing, "ServersReachable")["message"], format!("dead: {why}"));
    let told = || rig.kubectl().ok("get events -o jsonpath={.items[?(@.reason==\"ServerUnreachable\")].message}");
    wait_until("the event", PATIENCE, || told().contains(&why).then_some(()));

    let server = TcpListener::bind(("127.0.0.1", dead)).unwrap();
    let all = rig.until("p", "all servers", |status| condition(status, "ServersReachable")["status"] == "True");
    assert_eq!(tunnel_status(&all, "dead")["serverError"], Value::Null);
    server.set_nonblocking(true).unwrap();
    assert!(server.accept().is_err(), "nobody has connected to it");
    assert_eq!(told().matches(&why).count(), 1, "once is enough");
    rig.end();
}

fn a_port_below_1024_is_one_like_any_other(kind: EngineKind) {
    let rig = Rig::start(kind);
    let server = servers::echo();
    let low = format!("- {{name: web, serverAddress: 127.0.0.1, serverPort: {server}, clientProxyPort: 80}}");
    rig.apply_proxy("low", &format!("aliases: [h]\ntunnels:\n{low}"));
    let status = rig.until_ready("low");
    assert_eq!(tunnel_status(&status, "web")["clientProxyPort"], 80);
    assert_eq!(rig.guest("low").echo("h", &json!(80), "low"), "low");
    rig.end();
}

/// Nobody looks before the next half minute is over: the stream tells.
fn a_server_that_refuses_a_stream_is_told_at_once(kind: EngineKind) {
    let rig = Rig::start(kind);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    rig.apply_proxy("p", &format!("aliases: [h]\ntunnels:\n{}", tunnel("t", port)));
    rig.until_ready("p");
    let seen = rig.until("p", "the server", |status| tunnel_status(status, "t")["serverState"] == "Reachable");
    drop(server);
    let connect = format!(
        "{}\nprintf x | /busybox nc $ip {} || true",
        resolve("h"),
        tunnel_status(&seen, "t")["clientProxyPort"]
    );
    rig.guest("p").run(&connect);
    let told = look_until(Duration::from_secs(3), || {
        let status = rig.status("p");
        (tunnel_status(&status, "t")["serverState"] == "Unreachable").then_some(status)
    });
    let told = told.expect("a word about the server at once");
    let why = tunnel_status(&told, "t")["serverError"].as_str().unwrap();
    assert!(why.contains("connection refused"), "{why}");
    rig.end();
}

fn a_service_that_cannot_be_resolved_is_told_as_a_service(kind: EngineKind) {
    let rig = Rig::start(kind);
    rig.apply(
        "apiVersion: v1\nkind: Service\nmetadata: {name: api}\nspec: {type: ExternalName, externalName: nowhere.invalid, ports: [{port: 80}]}",
    );
    rig.apply_proxy("p", "tunnels:\n- {name: t, serverServiceName: api}");
    let failed = rig.until("p", "Failed", |status| tunnel_status(status, "t")["state"] == "Failed");
    let why = tunnel_status(&failed, "t")["errorMessage"].as_str().unwrap();
    assert!(why.contains("Service default/api") && why.contains("externalName: nowhere.invalid"), "{why}");
    assert!(!why.contains("serverAddress"), "{why}");
    rig.end();
}
