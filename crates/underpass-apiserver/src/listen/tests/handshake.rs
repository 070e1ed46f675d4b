//! Before HTTP: TLS versions, other protocols, slots for connections.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// A whole ClientHello that offers TLS 1.2 and nothing newer.
fn tls12_hello() -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0xc0, 0x2b, 1, 0]); // no session; one cipher suite; no compression
    let extensions = [0, 10, 0, 4, 0, 2, 0, 23, 0, 13, 0, 4, 0, 2, 4, 3]; // P-256; ECDSA with SHA-256
    body.extend([0, extensions.len() as u8]);
    body.extend(extensions);
    let mut record = vec![22, 3, 1, 0, body.len() as u8 + 4, 1, 0, 0, body.len() as u8];
    record.extend(body);
    record
}

async fn exchange(address: SocketAddr, sent: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(sent).await.unwrap();
    let mut received = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut received)).await.expect("left open").unwrap();
    received
}

#[tokio::test]
async fn tls_1_2_is_refused() {
    let rig = Rig::start(Limits::default()).await;
    let received = exchange(rig.address, &tls12_hello()).await;
    assert_eq!((received[0], received[6]), (21, 70), "an alert that says protocol_version: {received:?}");
    rig.metric("underpass_apiserver_refused_total{reason=\"handshake\"} 1").await;
}

#[tokio::test]
async fn plain_http_is_told_so() {
    let rig = Rig::start(Limits::default()).await;
    let received = exchange(rig.address, b"GET /api HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let received = String::from_utf8(received).unwrap();
    assert!(received.starts_with("HTTP/1.0 400 Bad Request\r\n"), "{received}");
    assert!(received.contains("client sent an HTTP request to an HTTPS server"), "{received}");
}

#[tokio::test]
async fn a_silent_peer_does_not_hold_its_connection() {
    let rig = Rig::start(Limits { handshake: SOON, ..Limits::default() }).await;
    assert!(exchange(rig.address, &[]).await.is_empty());
    assert!(exchange(rig.address, &tls12_hello()[..20]).await.is_empty());
    rig.metric("underpass_apiserver_refused_total{reason=\"handshake\"} 2").await;
    rig.metric("underpass_apiserver_connections 0").await;
}

#[tokio::test]
async fn a_connection_too_many_is_closed_and_its_place_is_free_again() {
    let rig = Rig::start(Limits { connections: 1, ..Limits::default() }).await;
    let first = rig.http2().await;
    assert!(rig.tls(b"h2").await.is_err());
    rig.metric("underpass_apiserver_refused_total{reason=\"connections\"} 1").await;
    drop(first);
    rig.metric("underpass_apiserver_connections 0").await;
    assert_eq!(rig.http2().await.ask(rig.get("/")).await.0, 200);
}

#[tokio::test]
async fn a_handshake_too_many_is_closed() {
    let rig = Rig::start(Limits { handshakes: 1, ..Limits::default() }).await;
    let _silent = TcpStream::connect(rig.address).await.unwrap();
    rig.metric("underpass_apiserver_connections 1").await;
    assert!(rig.tls(b"h2").await.is_err());
    rig.metric("underpass_apiserver_refused_total{reason=\"handshakes\"} 1").await;
}

#[tokio::test]
async fn a_client_of_the_first_start_is_known_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let load = || Identity::load_or_create(Some(folder.path())).unwrap();
    let first = load();
    let mut rig = Rig::start_as(load(), Limits::default()).await;
    rig.identity = first;
    assert_eq!(rig.http1().await.ask(rig.get("/")).await.0, 200);
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let rig = Rig::start(Limits::default()).await;
    let error = Listening::bind(rig.address, &rig.identity, Limits::default()).await.err().unwrap();
    assert!(error.to_string().starts_with(&format!("another program listens on {}:", rig.address)), "{error}");
}

/// The limit is the process's, so the test runs itself once more, alone in a process of its own.
#[test]
fn out_of_file_descriptors_new_connections_wait_and_are_then_served() {
    const ALONE: &str = "UNDERPASS_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        return runtime.block_on(serve_without_file_descriptors());
    }
    let name = format!("{}::out_of_file_descriptors_new_connections_wait_and_are_then_served", module_path!());
    let name = name.split_once("::").unwrap().1;
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    let output = again.args(["--exact", name]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

async fn serve_without_file_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let rig = Rig::start(Limits::default()).await;
    let limit = Rlimit { current: Some(64), maximum: getrlimit(Resource::Nofile).maximum };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut files: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    files.pop();
    let waiting = rig.tls(b"http/1.1");
    let refused = "underpass_apiserver_refused_total{reason=\"accept\"}";
    let count = || rig.metrics.render().lines().find_map(|line| line.strip_prefix(refused)?.trim().parse::<f64>().ok());
    let free_later = async {
        until("accept fails more than once", || count().is_some_and(|count| count >= 3.0)).await;
        assert!(count().unwrap() < 10.0, "it pauses between the tries");
        drop(files);
    };
    let (stream, ()) = tokio::join!(waiting, free_later);
    stream.unwrap();
}

#[test]
fn only_want_of_something_makes_the_accept_loop_pause() {
    let error = |code: rustix::io::Errno| io::Error::from(code);
    assert!(is_about_the_peer(&error(rustix::io::Errno::CONNABORTED)));
    assert!(!is_about_the_peer(&error(rustix::io::Errno::MFILE)));
    assert!(!is_about_the_peer(&error(rustix::io::Errno::NFILE)));
}
