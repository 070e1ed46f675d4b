//! What an Envoy takes of what we tell it, and what becomes of the rest.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use underpass_testbed::{PATIENCE, wait_until};

use super::plane::{Carrier, Plane, becomes_only};
use super::{Backend, Site, answer, assert_carries, assert_contains, connect, hello, open};

/// How the log says what an Envoy refused.
const REFUSED: &str = "invalid configuration: Envoy refused it";

fn backend(name: &str, hostname: &str) -> Value {
    json!({
        "name": name, "hostname": hostname, "port": super::site::PORT, "protocol": "TLS",
        "targetService": "web", "targetNamespace": "cp", "targetPort": 443,
    })
}

#[test]
fn one_bad_backend_among_a_thousand_is_named_and_the_others_are_served() {
    let web = Backend::start("web");
    let mut site = Site::new().with("web", "web.example.com", &web);
    let name = |number: usize| format!("b{number:03}");
    let more = (1..1000).map(|number| match number {
        500 => backend(&name(number), "Not A Name"),
        _ => backend(&name(number), &format!("{}.example.com", name(number))),
    });
    site.spec["backends"].as_array_mut().unwrap().extend(more);
    site.write();
    let mut carrier = Carrier::start(Plane::Envoy, &site);
    becomes_only(site.door(), "web.example.com", "web");
    for number in (1..1000).filter(|number| *number != 500) {
        let hostname = format!("{}.example.com", name(number));
        assert_eq!(answer(site.door(), &hostname).as_deref(), Some("web"), "{hostname}");
    }
    carrier
        .reader()
        .wait_until_told(&["ProxyServer cp/edge, backend b500: spec.backends[500].hostname: Invalid value"]);
    assert!(!carrier.reader().stderr().contains(REFUSED), "{}", carrier.reader().stderr());
}

/// Every option of a backend at both of its ends; with checks that are never answered, since this server speaks no TLS.
#[test]
fn an_envoy_takes_whatever_a_backend_may_say() {
    let web = Backend::start("web");
    let mut site = Site::new().with("web", "web.example.com", &web);
    let label = "x".repeat(61);
    let longest = format!("{label}.{label}.{label}.{label}.abc");
    let networks: Vec<String> = (0..60).map(|number| format!("10.{number}.0.0/16")).collect();
    let networks: Vec<&str> =
        networks.iter().map(String::as_str).chain(["10.0.7.0/16", "0.0.0.0/0", "::/0", "fd00::1/64"]).collect();
    let check = |kind: &str, least: bool| match least {
        true => {
            json!({ "type": kind, "intervalSeconds": 1, "timeoutSeconds": 1, "unhealthyThreshold": 1, "healthyThreshold": 1 })
        }
        false => {
            json!({ "type": kind, "intervalSeconds": 3600, "timeoutSeconds": 3600, "unhealthyThreshold": 100, "healthyThreshold": 100 })
        }
    };
    let names: Vec<String> = (0..16).map(|number| format!("*.{number}.example.com")).collect();
    let options = [
        json!({ "hostname": format!("*.{longest}"), "healthCheck": check("TLS", true) }),
        json!({ "hostname": format!("y.{longest}"), "healthCheck": check("TCP", false) }),
        json!({ "timeoutSeconds": 1, "connectAttempts": 1, "maxConnections": 1 }),
        json!({ "timeoutSeconds": 86_400, "idleTimeoutSeconds": 604_800, "connectAttempts": 10, "maxConnections": 1_000_000 }),
        json!({ "sourceCIDRs": networks, "default": true, "protocol": "TCP" }),
        json!({ "alternateHostnames": names, "loadBalancing": "LeastConnections", "proxyProtocol": { "send": "V1" } }),
        json!({ "proxyProtocol": { "send": "V2" }, "healthCheck": check("TLS", false), "protocol": "HTTPS" }),
        json!({ "port": 10_444, "proxyProtocol": { "accept": true } }),
        json!({ "port": 65_535, "sourceCIDRs": ["127.0.0.1/8", "127.0.0.0/8"] }),
        json!({ "port": 10_445, "protocol": "UDP", "idleTimeoutSeconds": 604_800 }),
        json!({ "port": 10_446, "protocol": "UDP", "sourceCIDRs": ["127.0.0.0/8"] }),
    ];
    let count = options.len();
    for (number, options) in options.into_iter().enumerate() {
        let name = format!("{}{number}", "n".repeat(61));
        let mut entry = backend(&name[..name.len().min(63)], &format!("b{number}.example.com"));
        entry.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        site.spec["backends"].as_array_mut().unwrap().push(entry);
    }
    site.write();
    let mut carrier = Carrier::start(Plane::Envoy, &site);
    becomes_only(site.door(), "web.example.com", "web");
    let Carrier::Envoy { envoy, .. } = &carrier else { panic!("an Envoy was asked for") };
    let all = [("cluster_manager.cluster_added", count + 3), ("listener_manager.listener_create_success", 10)];
    for (name, expected) in all {
        // Two clusters are the bootstrap's; a listener is created once for each worker.
        assert_eq!(envoy.stat(name), Some(expected as u64), "{name}");
    }
    let said = carrier.reader().stderr();
    assert!(!said.contains("invalid configuration"), "{said}");
}

/// Only an Envoy can find out that an address is not its machine's, or that somebody else has its port.
#[test]
fn what_an_envoy_refuses_changes_nothing_and_is_told_in_its_own_words() {
    let (api, web) = (Backend::start("api"), Backend::start("web"));
    let mut site = Site::new().with("api", "api.example.com", &api);
    site.write();
    let mut carrier = Carrier::start(Plane::Envoy, &site);
    becomes_only(site.door(), "api.example.com", "api");
    let mut connection = open(site.door(), "api.example.com", "api");
    let refusals = |text: &str| text.lines().filter(|line| line.contains(REFUSED)).count();

    site.spec["networkConfig"]["serverIP"] = json!("192.0.2.77");
    site.write();
    carrier.reader().wait_until_told(&[REFUSED, "192.0.2.77:10443", "Cannot assign requested address"]);
    becomes_only(site.door(), "api.example.com", "api");
    assert_carries(&mut connection);

    let holder = TcpListener::bind((site.address, 10_444)).unwrap();
    site.spec["networkConfig"]["serverIP"] = json!(site.address);
    site.add("web", "web.example.com", &web, &json!({}));
    site.add("late", "late.example.com", &web, &json!({ "port": 10_444 }));
    site.write();
    becomes_only(site.door(), "web.example.com", "web");
    let taken = format!("cannot bind '{}:10444': Address already in use", site.address);
    carrier.reader().wait_until_told(&[&taken]);
    assert_contains(&carrier.reader().stderr(), &["edge-listener-10444"]);
    assert_carries(&mut connection);

    // Another change is obeyed, and does not hide what is still refused.
    let before = refusals(&carrier.reader().stderr());
    site.add("more", "more.example.com", &api, &json!({}));
    site.write();
    becomes_only(site.door(), "more.example.com", "api");
    wait_until("it to be refused once more", PATIENCE, || {
        (refusals(&carrier.reader().stderr()) > before).then_some(())
    });

    drop(holder);
    site.add("last", "last.example.com", &api, &json!({}));
    site.write();
    becomes_only((site.address, 10_444).into(), "late.example.com", "web");
    assert_carries(&mut connection);
}

#[test]
fn an_envoy_refuses_unknown_names_and_counts_them() {
    let web = Backend::start("web");
    let site = Site::new().with("web", "web.example.com", &web);
    site.write();
    let carrier = Carrier::start(Plane::Envoy, &site);
    becomes_only(site.door(), "web.example.com", "web");
    let Carrier::Envoy { envoy, .. } = &carrier else { panic!("an Envoy was asked for") };
    let refused = || envoy.stat("listener.edge-listener-10443.no_filter_chain_match").unwrap();
    let (before, unknown) = (refused(), ["example.com", "w.example.com", "x.web.example.com"]);
    for name in unknown {
        assert_eq!(answer(site.door(), name), None, "{name}");
    }
    assert_eq!(answer(site.door(), "web.example.com").as_deref(), Some("web"));
    assert_eq!(refused() - before, unknown.len() as u64, "the names that nobody has, and no other");
}

/// Another target and another name in the same edit, there and back: who comes by a name is led to what goes by it, or refused.
#[test]
fn a_backend_that_moves_and_is_renamed_leads_nobody_astray() {
    const ROUNDS: usize = 10;
    let servers = ["one", "two"].map(Backend::start);
    let [one, two] = &servers;
    let mut site = Site::new().with("one", "one.example.com", one).with("two", "two.example.com", two).with(
        "moving",
        "at-one.example.com",
        one,
    );
    let name_of = |server: &str| format!("at-{server}.example.com");
    site.change("moving", &json!({ "targetService": "one" }));
    site.write();
    let _carrier = Carrier::start(Plane::Envoy, &site);
    becomes_only(site.door(), &name_of("one"), "one");
    for round in 0..ROUNDS {
        let target = ["two", "one"][round % 2];
        site.change("moving", &json!({ "hostname": name_of(target), "targetService": target }));
        site.write();
        wait_until(&format!("{target} by its name"), PATIENCE, || {
            for server in ["one", "two"] {
                let answer = answer(site.door(), &name_of(server));
                assert!(
                    answer.as_deref().is_none_or(|answer| answer == server),
                    "{server} is {answer:?} in round {round}"
                );
            }
            (answer(site.door(), &name_of(target)).as_deref() == Some(target)).then_some(())
        });
        becomes_only(site.door(), &name_of(target), target);
    }
}

/// More than an Envoy waits for what a client says first.
const SILENCE: Duration = Duration::from_secs(7);

#[test]
fn where_a_header_is_due_silence_lets_nobody_in_without_one() {
    let web = Backend::start("web");
    let options = json!({ "protocol": "TCP", "proxyProtocol": { "accept": true } });
    let site = Site::new().with_options("web", "web.example.com", &web, &options);
    site.write();
    let carrier = Carrier::start(Plane::Envoy, &site);
    let Carrier::Envoy { envoy, .. } = &carrier else { panic!("an Envoy was asked for") };
    let header = b"PROXY TCP4 192.0.2.1 192.0.2.2 1000 443\r\n";
    wait_until("an answer to whoever sends a header", PATIENCE, || {
        let mut client = connect(site.door()).ok()?;
        client.write_all(&[header, hello("web.example.com").as_slice()].concat()).ok()?;
        client.read_exact(&mut [0; 3]).ok()
    });
    let dialled = || envoy.stat("cluster.edge-web.upstream_cx_total").unwrap();
    let before = dialled();

    let mut client = connect(site.door()).unwrap();
    client.set_read_timeout(Some(SILENCE)).unwrap();
    let end = client.read(&mut [0; 64]);
    // It may be closed by now; whoever is not tries to get through.
    let _ = client.write_all(&hello("web.example.com"));
    let answer = client.read(&mut [0; 64]);
    assert!(!matches!(answer, Ok(1..)), "the backend answered");
    assert_eq!(end.ok(), Some(0), "it is closed while it is silent");
    assert_eq!(dialled(), before);
}

/// Answers every datagram with itself, and remembers them.
struct Echo {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Echo {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (address, heard) = (socket.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
        let memory = heard.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while let Ok((count, client)) = socket.recv_from(&mut buffer) {
                memory.lock().unwrap().push(String::from_utf8_lossy(&buffer[..count]).into_owned());
                let _ = socket.send_to(&buffer[..count], client);
            }
        });
        Self { address, heard }
    }

    /// What a file says of it, beside what a site says.
    fn target(&self, name: &str) -> String {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": "cp" },
            "spec": { "ports": [{ "port": 53, "protocol": "UDP" }] },
        });
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": { "name": name, "namespace": "cp", "labels": { "kubernetes.io/service-name": name } },
            "ports": [{ "port": self.address.port(), "protocol": "UDP" }],
            "endpoints": [{ "addresses": [self.address.ip()] }],
        });
        format!("---\n{service}\n---\n{slice}\n")
    }
}

/// From a new socket at this address, with the address as its text.
fn send(from: Ipv4Addr, door: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((from, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    socket.send_to(from.to_string().as_bytes(), door).unwrap();
    socket
}

fn is_answered(from: Ipv4Addr, door: SocketAddr) -> bool {
    let mut answer = [0; 64];
    send(from, door).recv(&mut answer).is_ok_and(|count| answer[..count] == *from.to_string().as_bytes())
}

/// Whether every datagram from one address is answered and none from another one gets through. There are many, for more than one worker.
fn only_one_crosses(one: Ipv4Addr, other: Ipv4Addr, door: SocketAddr, echo: &Echo) -> bool {
    echo.heard.lock().unwrap().clear();
    let all = (0..20).all(|_| {
        send(other, door);
        is_answered(one, door)
    });
    all && !echo.heard.lock().unwrap().contains(&other.to_string())
}

fn datagrams_cross_from_allowed_sources_alone(plane: Plane) {
    const ONE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 11);
    const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 12);
    let (echo, mut site) = (Echo::start(), Site::new());
    let [door, open] = [10_443, 10_444].map(|port| SocketAddr::new(site.address.into(), port));
    let udp = |name: &str, port: u16, sources: &[&str]| {
        json!({
            "name": name, "hostname": format!("{name}.example.com"), "port": port, "protocol": "UDP",
            "targetService": "echo", "targetNamespace": "cp", "targetPort": 53, "sourceCIDRs": sources,
        })
    };
    let write = |site: &mut Site, sources: &[&str]| {
        site.spec["backends"] = json!([udp("some", door.port(), sources), udp("all", open.port(), &[])]);
        std::fs::write(site.file(), site.text() + &echo.target("echo")).unwrap();
    };
    write(&mut site, &["127.0.0.11/32", "192.0.2.0/24", "2001:db8::/32"]);
    let mut carrier = Carrier::start(plane, &site);
    wait_until("an answer", PATIENCE, || is_answered(ONE, door).then_some(()));
    wait_until("an answer for everybody elsewhere", PATIENCE, || is_answered(OTHER, open).then_some(()));
    assert!(only_one_crosses(ONE, OTHER, door, &echo), "{plane:?}: {:?}", echo.heard);
    write(&mut site, &["127.0.0.12/31"]);
    wait_until("the other one's turn", PATIENCE, || only_one_crosses(OTHER, ONE, door, &echo).then_some(()));
    let said = carrier.reader().stderr();
    assert!(!said.contains("invalid configuration"), "{said}");
}

#[test]
fn an_envoy_carries_datagrams_from_allowed_sources_alone() {
    datagrams_cross_from_allowed_sources_alone(Plane::Envoy);
}

#[test]
fn our_own_data_plane_carries_datagrams_from_allowed_sources_alone() {
    datagrams_cross_from_allowed_sources_alone(Plane::Native);
}
