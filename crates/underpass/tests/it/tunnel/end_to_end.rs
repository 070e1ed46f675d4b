//! The whole way, as its first description asks for it: an API server process, a controllers process, an echo server on the host, and
//! a client in a container that checks what it gets and reports the result over a REST call, which this test receives.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use underpass_engines::EngineKind;
use underpass_testbed::{Launch, Signal, TestEngine};

use super::guest::{Guest, resolve};
use super::rig::{proxy, tunnel, tunnel_status};
use super::{on_both, servers};
use crate::BINARY;

on_both!(a_client_in_a_container_reaches_a_server_on_the_host_and_reports_it);

/// Takes one POST and gives its body to the test.
fn reports() -> (u16, mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = BufReader::new(stream);
            let mut length = 0;
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|count| count > 2) {
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let _ = stream.get_mut().write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
            let _ = sender.send(serde_json::from_slice(&body).unwrap());
        }
    });
    (port, receiver)
}

fn a_client_in_a_container_reaches_a_server_on_the_host_and_reports_it(kind: EngineKind) {
    let engine = TestEngine::shared(kind);
    let folder = tempfile::tempdir().unwrap();
    let server = Launch::apiserver(BINARY).start();
    let (variable, address) = engine.variable();
    let launch =
        Launch::command(BINARY, "controllers").env(variable, address).arg("--kubeconfig").arg(server.kubeconfig());
    let (controllers, _home) = launch.arg("--data-dir").arg(folder.path()).spawn();
    let kubectl = server.kubectl();
    let (echo, (rest, received)) = (servers::echo(), reports());
    let tunnels = format!("{}\n{}", tunnel("echo", echo), tunnel("report", rest));
    kubectl.ok_with("apply -f -", &crate::network("e2e"));
    kubectl.ok_with("apply -f -", &proxy("e2e", &format!("aliases: [parrot.internal]\ntunnels:\n{tunnels}")));
    kubectl.ok("wait --for=condition=Ready cntp/e2e --timeout=120s");
    let status = kubectl.json("get cntp e2e")["status"].clone();
    let port = |name: &str| tunnel_status(&status, name)["clientProxyPort"].clone();

    let script = format!(
        "{resolve}
         sent=$(/busybox seq 200000 | /busybox sha256sum)
         got=$(/busybox seq 200000 | /busybox nc $ip {echo} | /busybox sha256sum)
         if [ \"$sent\" = \"$got\" ]; then body='{{\"equal\":true}}'; else body='{{\"equal\":false}}'; fi
         head=\"POST /result HTTP/1.1\\r\\nHost: parrot.internal\\r\\nContent-Length: ${{#body}}\\r\\n\\r\\n\"
         printf \"$head%s\" \"$body\" | /busybox nc $ip {report}",
        resolve = resolve("parrot.internal"),
        echo = port("echo"),
        report = port("report"),
    );
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let network = kubectl.ok("get ctrnet e2e -o jsonpath={.status.id}");
    let answer = Guest { runtime: &runtime, engine: &engine, network }.run(&script);
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    assert_eq!(received.recv_timeout(Duration::from_secs(10)).unwrap(), json!({ "equal": true }));

    kubectl.ok("delete cntp e2e --timeout=60s");
    kubectl.ok("delete ctrnet e2e --timeout=60s");
    controllers.signal(Signal::TERM);
    assert_eq!(controllers.wait().code, Some(0));
    assert_eq!(server.stop().code, Some(0));
}
