//! Somebody else on the same network, who wants in, or wants to be in the way: with a container's address, on its way, by its interface.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use underpass_engines::{ContainerEngine, EngineKind};
use underpass_testbed::{PATIENCE, Process, wait_until};
use underpass_tunnel::{Caller, PairSecrets};

use super::guest::resolve;
use super::rig::{client_process, tunnel, tunnel_status};
use super::{Rig, on_both, servers};
use crate::{BINARY, process_where};

on_both!(strangers_on_the_network_get_nothing_and_harm_nobody, floods_of_a_tunnel_are_in_nobodys_way);

const CONTROL: u16 = 15_049;
const DATA: u16 = 15_050;

/// What a client half may take for a whole handshake, and how those that say nothing sensible begin: as one of the two halves would.
const HANDSHAKE: Duration = Duration::from_secs(5);
const DATA_HELLO: &[u8] = &[1];
const TLS_HELLO: &[u8] = &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];

/// So many connections that say nothing. In a test that has not the files for all, so many stay open: the client proxy has closed all others.
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
    let [control, data] = [CONTROL, DATA].map(|port| SocketAddr::new(client, port));
    let secrets = secrets_of(&status);
    let caller = caller(&rig, &status, &secrets);
    let refused = || rig.wait_for(caller.list()).unwrap().client.map(|client| client.refused).unwrap_or_default();
    let guest = rig.guest("p");
    let container = guest.bystander(&rig.engine.name("stranger"), &[]);

    let recorded = recorded_handshake(&secrets, data);
    within_network_of(&container, || {
        std::thread::scope(|scope| {
            for (to, first) in [(data, DATA_HELLO), (control, TLS_HELLO)] {
                scope.spawn(move || assert_ended_by_the_other_side_in_time(to, first));
            }
            let open = [CONTROL, DATA, u16::try_from(port.as_u64().unwrap()).unwrap()];
            assert_eq!(open_ports(client), BTreeSet::from(open));
        });
        for to in [data, control] {
            assert!(answered(to, &[0xff; 4096]) <= 64, "to rubbish");
            assert!(answered(to, b"GET / HTTP/1.1\r\n\r\n") <= 64, "to another protocol");
        }
        assert_eq!(
            answered(data, &recorded),
            48,
            "a nonce and a proof of the other side's, and nothing after a replay"
        );
    });
    let counts = refused();
    assert_eq!((counts.late, counts.wrong_key), (2, 1), "{counts:?}");
    assert!(counts.foreign >= 1 && counts.tls >= 2, "{counts:?}");

    // A server half of another pair, and a flood of connections that all stay open as far as this end can see to it.
    let (mut other, mut flood) = within_network_of(&container, || (other_pair(client), half_open(client)));
    other.wait_for_stderr("its refusal", |text| text.contains("cannot be reached").then_some(()));
    flood.wait_for_stdout("thousands of connections", |text| {
        assert_eq!(guest.echo("h", port, "meanwhile"), "meanwhile");
        text.contains(&opened()).then_some(())
    });
    assert_eq!(guest.echo("h", port, "beside"), "beside");
    let after = rig.until_ready("p");
    let flooded = refused();
    assert!(flooded.crowded > u64::try_from(HALF_OPEN / 2).unwrap(), "{flooded:?}");
    // For its certificate or for its key, whichever it showed first.
    assert!(flooded.tls > counts.tls || flooded.wrong_key > counts.wrong_key, "{flooded:?}");
    drop((flood, other));
    assert_eq!(guest.echo("h", port, "afterwards"), "afterwards");
    assert_eq!(after["clientProxyContainerId"], status["clientProxyContainerId"], "nothing had to be started again");
    assert_eq!(after["restartCount"], status["restartCount"]);
    assert_told_without_secrets(&rig, &status);
    rig.wait_for(rig.engine.engine.remove_container(&container)).unwrap();
    rig.end();
}

/// Does something as a process of a container does, as far as the network is concerned: on a thread that stands in its network.
fn within_network_of<T: Send>(container: &str, work: impl FnOnce() -> T + Send) -> T {
    let is_it =
        |file: &dyn Fn(&str) -> String| file("cmdline").contains("sleep\0") && file("cgroup").contains(container);
    let pid = wait_until("the container's process", PATIENCE, || process_where(is_it));
    let network = File::open(format!("/proc/{pid}/ns/net")).unwrap();
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// How many bytes come back until the other side ends. This one leaves the connection open.
fn answered(to: SocketAddr, words: &[u8]) -> usize {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The other side may have heard enough before all is said.
    let _ = stream.write_all(words);
    let mut answer = Vec::new();
    let ended = stream.read_to_end(&mut answer);
    assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset), "it is left open");
    answer.len()
}

/// Says one byte after the other, without a pause that is long by itself, and never all. Nobody else is there who could be in the way.
fn assert_ended_by_the_other_side_in_time(to: SocketAddr, first: &[u8]) {
    let began = Instant::now();
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(HANDSHAKE / 15)).unwrap();
    let mut words = first.iter().copied().chain(std::iter::repeat(0));
    let ended = loop {
        match stream.read(&mut [0; 64]) {
            Ok(0) => break began.elapsed(),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // It may have ended just now, which is read next.
                let _ = stream.write_all(&[words.next().unwrap()]);
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break began.elapsed(),
            Err(error) => panic!("{to}: {error}"),
        }
    };
    assert!(ended >= HANDSHAKE && ended < 3 * HANDSHAKE, "{to} ended it after {ended:?}");
}

fn open_ports(at: IpAddr) -> BTreeSet<u16> {
    let is_open = |port: &u16| match TcpStream::connect_timeout(&SocketAddr::new(at, *port), PATIENCE) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => false,
        Err(error) => panic!("port {port}: {error}"),
    };
    (1..=u16::MAX).filter(is_open).collect()
}

fn secrets_of(status: &Value) -> PairSecrets {
    let folder = Path::new(status["serverProxyStdErrFile"].as_str().unwrap()).parent().unwrap();
    serde_json::from_slice(&std::fs::read(folder.join("pair.json")).unwrap()).unwrap()
}

fn caller(rig: &Rig, status: &Value, secrets: &PairSecrets) -> Caller {
    let port = u16::try_from(status["serverProxyControlPort"].as_u64().unwrap()).unwrap();
    let _runtime = rig.runtime.enter();
    Caller::new((Ipv4Addr::LOCALHOST, port).into(), &secrets.caller).unwrap()
}

/// What the right server half says in a handshake that its client half does not hear to its end.
fn recorded_handshake(secrets: &PairSecrets, data: SocketAddr) -> Vec<u8> {
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = Command::new(BINARY);
    command.args(["tunnel-server", "--control", "127.0.0.1:1", "--data", &between.local_addr().unwrap().to_string()]);
    let _server = Process::start_with(&mut command, &serde_json::to_string(&secrets.server).unwrap());
    let (mut near, mut far) = (between.accept().unwrap().0, TcpStream::connect(data).unwrap());
    let (mut hello, mut answer, mut proof) = ([0; 17], [0; 48], [0; 32]);
    near.read_exact(&mut hello).unwrap();
    far.write_all(&hello).unwrap();
    far.read_exact(&mut answer).unwrap();
    near.write_all(&answer).unwrap();
    near.read_exact(&mut proof).unwrap();
    [&hello[..], &proof].concat()
}

/// A process that holds thousands of connections which say nothing.
fn half_open(client: IpAddr) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["tunnel::strangers::held_by_a_process_in_a_container", "--exact", "--ignored", "--nocapture"]);
    Process::start(command.env("CLIENT", client.to_string()))
}

/// What that process does: it has more files than this one may.
#[test]
#[ignore = "a process of another test"]
fn held_by_a_process_in_a_container() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let client: IpAddr = std::env::var("CLIENT").unwrap().parse().unwrap();
    let connect = |number| TcpStream::connect((client, if number % 2 == 0 { DATA } else { CONTROL })).unwrap();
    let held: Vec<TcpStream> = (0..HALF_OPEN).map(connect).collect();
    println!("{}", opened());
    assert_eq!(held.len(), HALF_OPEN);
    loop {
        std::thread::park();
    }
}

fn opened() -> String {
    format!("{HALF_OPEN} are open")
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

/// Where people look: logs, status, `inspect` and `ps`, the latter as root does.
fn assert_told_without_secrets(rig: &Rig, status: &Value) {
    let id = status["clientProxyContainerId"].as_str().unwrap();
    let logs = rig.wait_for(rig.engine.engine.container_logs(id, 100_000)).unwrap();
    assert!(logs.contains("a connection was refused"), "{logs}");
    assert!(logs.lines().count() < 200, "ten thousand attempts are a few lines");
    let server = i32::try_from(status["serverProxyProcessId"].as_i64().unwrap()).unwrap();
    let of_process = |pid: i32, file: &str| {
        String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/{file}")).unwrap()).into_owned()
    };
    let processes = [(client_process(id), "tunnel-client"), (server, "tunnel-server")];
    let [client, server] = processes.map(|(pid, command)| {
        let (line, environment) = (of_process(pid, "cmdline"), of_process(pid, "environ"));
        assert!(line.contains(command), "{line}");
        line + &environment
    });
    assert!(server.contains("UNDERPASS_PAIR="), "its environment can be read");
    let inspected = rig.ask_engine("GET", &format!("containers/{id}/json"), "");
    assert!(inspected.contains(id) && inspected.contains("tunnel-client"), "{inspected}");
    let err = Path::new(status["serverProxyStdErrFile"].as_str().unwrap());
    let said = [logs, std::fs::read_to_string(err).unwrap(), status.to_string(), inspected, client, server].concat();

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
