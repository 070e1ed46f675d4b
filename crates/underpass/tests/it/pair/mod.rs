//! `underpass tunnel-server` and `underpass tunnel-client` as processes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use underpass_testbed::{PATIENCE, Process, Signal, wait_until};
use underpass_tunnel::{Caller, Listed, PairSecrets, Prepare, Prepared};

use crate::{BINARY, assert_contains};

/// Both halves, talking as much as they can.
struct Halves {
    secrets: PairSecrets,
    folder: TempDir,
    client: Process,
    client_ports: (u16, u16),
    server: Process,
    caller: Caller,
    runtime: tokio::runtime::Runtime,
}

impl Halves {
    fn start() -> Self {
        let secrets = PairSecrets::generate().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pair.json");
        write_private(&file, &serde_json::to_string(&secrets.client).unwrap());
        let mut client = Process::start(
            Command::new(BINARY)
                .args(["tunnel-client", "--log-level", "trace", "--control-port", "0", "--data-port", "0", "--secrets"])
                .arg(&file),
        );
        let ready = ready_line(&mut client);
        let client_ports = (port(&ready, "controlPort"), port(&ready, "dataPort"));
        assert_eq!(ready["pid"], client.pid());
        let (server, control_port) = start_server(&secrets, client_ports, &[]);
        let caller = Caller::new(here(control_port), &secrets.caller).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        Self { secrets, folder, client, client_ports, server, caller, runtime }
    }

    fn prepare(&self, number: u32, server: SocketAddr) -> Prepared {
        self.runtime.block_on(self.caller.prepare(tunnel(number, server))).unwrap()
    }

    fn list(&self) -> Listed {
        self.runtime.block_on(self.caller.list()).unwrap()
    }
}

fn start_server(secrets: &PairSecrets, (control, data): (u16, u16), more: &[&str]) -> (Process, u16) {
    let mut server = Process::start_with(
        Command::new(BINARY)
            .args(["tunnel-server", "--log-level", "trace", "--control", &here(control).to_string()])
            .args(["--data", &here(data).to_string()])
            .args(more),
        &serde_json::to_string(&secrets.server).unwrap(),
    );
    let ready = ready_line(&mut server);
    assert_eq!(ready["pid"], server.pid());
    (server, port(&ready, "controlPort"))
}

fn ready_line(process: &mut Process) -> Value {
    let line = process.wait_for_stdout("the ready line", |text| text.split_once('\n').map(|(line, _)| line.to_owned()));
    serde_json::from_str(&line).unwrap()
}

fn port(ready: &Value, name: &str) -> u16 {
    u16::try_from(ready[name].as_u64().unwrap()).unwrap()
}

fn here(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn write_private(path: &Path, text: &str) {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o400).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn tunnel(number: u32, server: SocketAddr) -> Prepare {
    Prepare::new(number, server.ip().to_string(), server.port())
}

fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
        }
    });
    address
}

fn connect(address: impl Into<SocketAddr>) -> TcpStream {
    let stream = TcpStream::connect(address.into()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn exchange(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).unwrap();
    let mut bytes = vec![0; text.len()];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, text.as_bytes());
}

/// Every piece of secret text, line by line, as it stands and as the bytes behind it.
fn secret_parts(secrets: &PairSecrets) -> Vec<String> {
    let value = serde_json::to_value(secrets).unwrap();
    let keys = ["client", "server", "caller"].map(|who| value[who]["identity"]["key"].as_str().unwrap().to_owned());
    let lines = keys.iter().flat_map(|key| key.lines()).filter(|line| !line.starts_with("-----"));
    let mut parts: Vec<String> = lines.map(str::to_owned).collect();
    parts.push(value["server"]["dataKey"].as_str().unwrap().to_owned());
    assert!(parts.len() > 3 && parts.iter().all(|part| part.len() > 8));
    parts
}

#[test]
fn a_stream_crosses_two_processes_and_no_secret_can_be_seen_from_outside() {
    let mut halves = Halves::start();
    let prepared = halves.prepare(1, echo_server());
    exchange(&mut connect(here(prepared.port)), "hello");
    let reachable = prepared.addresses.iter().find(|address| address.is_ipv4()).expect("this machine has an address");
    exchange(&mut connect((*reachable, prepared.port)), "by its address");
    // Somebody who is refused makes both talk.
    let mut stranger = connect(here(halves.client_ports.1));
    stranger.write_all(&[1; 49]).unwrap();
    wait_until("the stranger is refused", PATIENCE, || {
        halves.list().client.filter(|client| client.refused.wrong_key == 1)
    });

    let proc = |process: &Process, file: &str| {
        String::from_utf8_lossy(&std::fs::read(format!("/proc/{}/{file}", process.pid())).unwrap()).into_owned()
    };
    let mut seen = Vec::new();
    for process in [&halves.client, &halves.server] {
        assert!(proc(process, "cmdline").contains("tunnel-"));
        seen.extend([proc(process, "cmdline"), proc(process, "environ"), process.stdout(), process.stderr()]);
    }
    halves.client.wait_until_told(&["a connection was refused", "does not know the key"]);
    for part in secret_parts(&halves.secrets) {
        assert!(!seen.iter().any(|text| text.contains(&part)), "a secret can be seen");
    }
}

#[test]
fn a_server_half_that_is_killed_takes_its_streams_along_and_its_successor_finds_the_ports() {
    let mut halves = Halves::start();
    let echo = echo_server();
    let prepared = halves.prepare(1, echo);
    let mut stream = connect(here(prepared.port));
    exchange(&mut stream, "before");
    halves.server.signal(Signal::KILL);
    assert!(!matches!(stream.read(&mut [0; 1]), Ok(1)), "the stream is over");
    // Somebody who comes while nobody brings connections is not refused, and is served when somebody does.
    let early = connect(here(prepared.port));

    let (server, control_port) = start_server(&halves.secrets, halves.client_ports, &[]);
    halves.server = server;
    halves.caller = Caller::new(here(control_port), &halves.secrets.caller).unwrap();
    assert_eq!(halves.prepare(1, echo), prepared);
    exchange(&mut connect(here(prepared.port)), "after");
    drop(early);
    assert!(halves.client.is_running());
}

#[test]
fn a_client_half_that_is_killed_is_waited_for() {
    let mut halves = Halves::start();
    let prepared = halves.prepare(1, echo_server());
    halves.client.signal(Signal::KILL);
    wait_until("the loss is seen", PATIENCE, || (!halves.list().connected).then_some(()));
    assert!(halves.list().trouble.is_some());
    let (control, data) = halves.client_ports;
    halves.client = Process::start(
        Command::new(BINARY)
            .args(["tunnel-client", "--control-port", &control.to_string(), "--data-port", &data.to_string()])
            .arg("--secrets")
            .arg(halves.folder.path().join("pair.json")),
    );
    wait_until("it is back", PATIENCE, || halves.list().connected.then_some(()));
    exchange(&mut connect(here(prepared.port)), "on the same port");
}

#[test]
fn both_end_when_told_to() {
    let halves = Halves::start();
    let prepared = halves.prepare(1, echo_server());
    let mut stream = connect(here(prepared.port));
    exchange(&mut stream, "before");
    halves.runtime.block_on(halves.caller.shutdown()).unwrap();
    assert_contains(&halves.server.wait().ok(), &["controlPort"]);
    halves.client.signal(Signal::TERM);
    halves.client.wait().ok();
    let (server, _) = start_server(&halves.secrets, halves.client_ports, &[]);
    server.signal(Signal::TERM);
    server.wait().ok();
}

#[test]
fn a_server_half_ends_with_the_process_that_it_watches() {
    let halves = Halves::start();
    let mut parent = Sleeper::start();
    let pid = parent.0.id().to_string();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let start = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().to_owned();
    let watching = ["--monitor", &pid, "--monitor-start", &start];
    let (mut server, _) = start_server(&halves.secrets, halves.client_ports, &watching);
    assert!(server.is_running());
    parent.0.kill().unwrap();
    let ended = server.wait();
    assert_eq!(ended.code, Some(0));
    assert_contains(&ended.stderr, &["watched has ended"]);
    // That process is gone, whoever has its number now.
    let (server, _) = start_server(&halves.secrets, halves.client_ports, &watching);
    server.wait().ok();
}

/// Somebody to watch.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn secrets_that_cannot_be_used_are_told_without_quoting_them() {
    let args = ["tunnel-server", "--control", "127.0.0.1:1", "--data", "127.0.0.1:1"];
    let stderr =
        Process::start_with(Command::new(BINARY).args(args), "{\"identity\": \"very secret\"}").wait().failed();
    assert_contains(&stderr, &["stdin", "tunnel's server half"]);
    assert!(!stderr.contains("very secret"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pair.json");
    let client =
        || Process::start(Command::new(BINARY).arg("tunnel-client").arg("--secrets").arg(&file)).wait().failed();
    assert_contains(&client(), &["cannot read", "pair.json"]);
    write_private(&file, "{}");
    assert_contains(&client(), &["cannot use", "pair.json", "tunnel's client half"]);
}

#[test]
fn the_help_of_each_half_teaches_and_the_short_one_is_not_longer_for_it() {
    let help = |args: &[&str]| Process::start(Command::new(BINARY).args(args)).wait().ok();
    assert_contains(
        &help(&["tunnel-server", "--help"]),
        &["--control", "--data", "--monitor-start", "stdin", "Exit codes"],
    );
    assert_contains(&help(&["tunnel-client", "--help"]), &["--secrets", "15049", "15050", "Exit codes"]);
    assert!(!help(&["--help"]).contains("tunnel-server"));
}
