//! Somebody else on the same network, who wants in, or wants to be in the way.
//!
//! What a recorded handshake is worth is tested where one can be recorded: in `underpass-tunnel`.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;

use serde_json::Value;
use underpass_engines::{ContainerEngine, EngineKind};
use underpass_testbed::Process;
use underpass_tunnel::PairSecrets;

use super::guest::resolve;
use super::rig::{tunnel, tunnel_status};
use super::{Rig, on_both, servers};
use crate::BINARY;

on_both!(strangers_on_the_network_get_nothing_and_harm_nobody, floods_of_a_tunnel_are_in_nobodys_way);

const CONTROL: u16 = 15_049;
const DATA: u16 = 15_050;

/// So many connections that say nothing, and how many of them stay open here: the client proxy has closed all others.
const HALF_OPEN: usize = 10_000;
const KEPT: usize = 1000;

fn strangers_on_the_network_get_nothing_and_harm_nobody(kind: EngineKind) {
    let rig = Rig::start(kind);
    let server = servers::echo();
    rig.apply_proxy("p", &format!("aliases: [h]\ntunnels:\n{}", tunnel("t", server)));
    let status = rig.until_ready("p");
    let t = tunnel_status(&status, "t");
    let port = &t["clientProxyPort"];
    let client: IpAddr = t["clientProxyAddresses"][0].as_str().unwrap().parse().unwrap();
    let guest = rig.guest("p");

    // From a container: rubbish on both ports, a handshake that never comes, and a look at what is open.
    let script = format!(
        "{}
         for port in {CONTROL} {DATA}; do
             /busybox head -c 4096 /dev/urandom | /busybox nc $ip $port >/dev/null || true
             printf 'GET / HTTP/1.1\\r\\n\\r\\n' | /busybox nc $ip $port | /busybox wc -c
             /busybox sleep 7 | /busybox nc $ip $port | /busybox wc -c &
         done
         wait
         for port in $(/busybox seq 15000 15100) {port}; do
             if /busybox nc -w 2 $ip $port </dev/null >/dev/null 2>&1; then echo open $port; fi
         done",
        resolve("h")
    );
    let said = guest.run(&script);
    let (answers, open): (Vec<&str>, Vec<&str>) = said.lines().partition(|line| !line.starts_with("open"));
    assert!(answers.iter().all(|bytes| bytes.parse::<u32>().is_ok_and(|bytes| bytes <= 64)), "{said}");
    assert_eq!(open, [format!("open {CONTROL}"), format!("open {DATA}"), format!("open {port}")], "{said}");

    // A server half of another pair, and a flood of connections that come from where the right one comes from.
    let mut other = other_pair(client);
    other.wait_for_stderr("its refusal", |text| text.contains("cannot be reached").then_some(()));
    let mut silent = VecDeque::new();
    for number in 0..HALF_OPEN {
        let to = SocketAddr::new(client, if number % 2 == 0 { DATA } else { CONTROL });
        silent.push_back(TcpStream::connect(to).unwrap());
        if silent.len() > KEPT {
            silent.pop_front();
        }
        if number % 2000 == 0 {
            assert_eq!(guest.echo("h", port, "meanwhile"), "meanwhile");
        }
    }
    assert_eq!(guest.echo("h", port, "afterwards"), "afterwards");
    drop((silent, other));
    let after = rig.until_ready("p");
    assert_eq!(after["clientProxyContainerId"], status["clientProxyContainerId"], "nothing had to be started again");
    assert_eq!(after["restartCount"], status["restartCount"]);
    assert_told_without_secrets(&rig, &status);
    rig.end();
}

/// Connections that say nothing to a tunnel's own port, and datagrams from more places than it may have flows.
fn floods_of_a_tunnel_are_in_nobodys_way(kind: EngineKind) {
    const SOURCES: usize = 2000;
    let rig = Rig::start(kind);
    let (server, names) = (servers::silent(), servers::names());
    let udp = format!("- {{name: u, protocol: UDP, serverAddress: 127.0.0.1, serverPort: {names}}}");
    let tunnels = format!("{}\n{}\n{udp}", tunnel("flooded", server), tunnel("t", servers::echo()));
    rig.apply_proxy("p", &format!("aliases: [h]\ntunnels:\n{tunnels}"));
    let status = rig.until_ready("p");
    let port = |name: &str| tunnel_status(&status, name)["clientProxyPort"].clone();
    let at = |name: &str| {
        let client: IpAddr = tunnel_status(&status, name)["clientProxyAddresses"][0].as_str().unwrap().parse().unwrap();
        SocketAddr::new(client, u16::try_from(port(name).as_u64().unwrap()).unwrap())
    };
    let guest = rig.guest("p");
    let ask = format!("{}\n/busybox nslookup -port={} a.test $ip", resolve("h"), port("u"));

    let mut silent = VecDeque::new();
    for number in 0..HALF_OPEN {
        silent.push_back(TcpStream::connect(at("flooded")).unwrap());
        if silent.len() > KEPT {
            silent.pop_front();
        }
        if number % 2500 == 0 {
            assert_eq!(guest.echo("h", &port("t"), "meanwhile"), "meanwhile");
        }
    }
    let sources: Vec<UdpSocket> = (0..SOURCES).map(|_| UdpSocket::bind("0.0.0.0:0").unwrap()).collect();
    for round in 0..5_u8 {
        for source in &sources {
            // The kernel's queue may be full; that is what a flood is.
            let _ = source.send_to(&[round; 12], at("u"));
        }
        let answer = guest.run(&ask);
        assert!(answer.contains("192.0.2.55"), "{answer}");
    }
    assert_eq!(guest.echo("h", &port("t"), "afterwards"), "afterwards");
    drop(silent);
    let after = rig.until_ready("p");
    assert_eq!(after["clientProxyContainerId"], status["clientProxyContainerId"], "nothing had to be started again");
    assert_eq!(after["restartCount"], status["restartCount"]);
    rig.end();
}

/// The other half as another object has it: right in everything but its secrets.
fn other_pair(client: IpAddr) -> Process {
    let secrets = serde_json::to_string(&PairSecrets::generate().unwrap().server).unwrap();
    let place = |port| SocketAddr::new(client, port).to_string();
    let mut command = Command::new(BINARY);
    command.args(["tunnel-server", "--control", &place(CONTROL), "--data", &place(DATA)]);
    Process::start_with(&mut command, &secrets)
}

fn assert_told_without_secrets(rig: &Rig, status: &Value) {
    let id = status["clientProxyContainerId"].as_str().unwrap();
    let mut said = rig.wait_for(rig.engine.engine.container_logs(id, 100_000)).unwrap();
    assert!(said.contains("a connection was refused"), "{said}");
    assert!(said.lines().count() < 200, "ten thousand attempts are a few lines");
    let err = std::path::Path::new(status["serverProxyStdErrFile"].as_str().unwrap());
    said += &std::fs::read_to_string(err).unwrap();
    said += &status.to_string();
    let secrets = std::fs::read_to_string(err.with_file_name("pair.json")).unwrap();
    let mut found = Vec::new();
    strings(&serde_json::from_str(&secrets).unwrap(), &mut found);
    assert!(found.len() > 4, "keys and certificates");
    for secret in found {
        // A certificate or a key in several lines is found by any of them.
        for line in secret.lines().filter(|line| line.len() > 20 && !line.starts_with("-----")) {
            assert!(!said.contains(line), "{said}");
        }
    }
}

fn strings(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| strings(value, found)),
        Value::Object(values) => values.values().for_each(|value| strings(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
