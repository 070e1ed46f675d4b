//! Real TLS clients and servers, which know nothing of the proxy between them and check all that they see.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::Scope;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;

use super::Case;
use super::conn::{Conn, Outcome, PATIENCE, noise};
use super::lane::{Lane, OWN, Setup, Which};
use crate::process::Process;
use crate::wait::wait_until;

const REQUEST: &[u8] = b"GET / HTTP/1.0\r\nHost: own.example.test\r\n\r\n";
const BODY: &str = "the backend's own words";
const BULK: usize = 2 << 20;

pub(super) const CASES: &[Case] = &[
    Case::new("client: rustls", "a handshake, and 2 MB each way", Setup::Named, rustls_client),
    Case::new(
        "client: OpenSSL",
        "`openssl s_client` checks the certificate and gets its answer",
        Setup::Named,
        openssl_client,
    ),
    Case::new("client: curl", "`curl https://...` gets its page", Setup::Named, curl),
    Case::new("client: Python", "the ssl module, with TLS 1.2 and 1.3", Setup::Named, python),
    Case::new("server: OpenSSL", "`openssl s_server` behind, rustls in front", Setup::Named, openssl_server),
];

/// A CA, a certificate for `OWN`, and the same as files.
struct Identity {
    folder: TempDir,
    ca: CertificateDer<'static>,
    leaf: CertificateDer<'static>,
    key: KeyPair,
}

impl Identity {
    fn new() -> Outcome<Self> {
        let text = |error: rcgen::Error| error.to_string();
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        authority.distinguished_name.push(DnType::CommonName, "fidelity");
        let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate().map_err(text)?).map_err(text)?;
        let key = KeyPair::generate().map_err(text)?;
        let mut params = CertificateParams::new(vec![OWN.to_owned()]).map_err(text)?;
        params.use_authority_key_identifier_extension = true;
        let leaf = params.signed_by(&key, &issuer).map_err(text)?;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let write =
            |name: &str, text: String| std::fs::write(folder.path().join(name), text).map_err(|e| e.to_string());
        write("ca.pem", issuer.as_ref().pem())?;
        write("leaf.pem", leaf.pem())?;
        write("key.pem", key.serialize_pem())?;
        Ok(Self { ca: issuer.as_ref().der().clone(), leaf: leaf.der().clone(), key, folder })
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn server(&self) -> Outcome<Arc<ServerConfig>> {
        let key = PrivateKeyDer::try_from(self.key.serialize_der())?;
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let config = config.map_err(|error| error.to_string())?.with_no_client_auth();
        let config = config.with_single_cert(vec![self.leaf.clone()], key).map_err(|error| error.to_string())?;
        Ok(Arc::new(config))
    }

    fn client(&self, connection: Conn) -> Outcome<StreamOwned<ClientConnection, TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.clone()).map_err(|error| error.to_string())?;
        let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let config = config.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from(OWN).map_err(|error| error.to_string())?;
        let session = ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
        Ok(StreamOwned::new(session, connection.into_stream()))
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn rustls_client(lane: &Lane<'_>) -> Outcome {
    let identity = Identity::new()?;
    let config = identity.server()?;
    std::thread::scope(|scope| {
        let backend = scope.spawn(|| echo_tls(lane, config));
        let mut client = identity.client(lane.connect()?)?;
        // Less than what both sides' buffers take, so that one thread may send before it reads.
        for piece in noise(BULK, 13).chunks(16 << 10) {
            client.write_all(piece).map_err(|error| format!("client cannot send: {error}"))?;
            let mut answer = vec![0; piece.len()];
            client.read_exact(&mut answer).map_err(|error| format!("client cannot receive: {error}"))?;
            if answer != piece {
                return Err("client got other bytes than were sent".to_owned());
            }
        }
        client.conn.send_close_notify();
        client.flush().map_err(|error| error.to_string())?;
        let ended = client.read(&mut [0]).map_err(|error| format!("no orderly end: {error}"))?;
        backend.join().unwrap_or(Err("the backend broke".to_owned()))?;
        if ended == 0 { Ok(()) } else { Err("client got bytes after the end".to_owned()) }
    })
}

fn openssl_client(lane: &Lane<'_>) -> Outcome {
    let address = lane.address().to_string();
    let identity = Identity::new()?;
    let ca = identity.path("ca.pem");
    let mut command = Command::new("openssl");
    command.args(["s_client", "-quiet", "-verify_return_error", "-connect", &address]);
    command.args(["-servername", OWN, "-verify_hostname", OWN, "-CAfile", &ca]);
    program(lane, &identity, command, 1)
}

fn curl(lane: &Lane<'_>) -> Outcome {
    let (ip, port) = (lane.address().ip(), lane.address().port());
    let identity = Identity::new()?;
    let mut command = Command::new("curl");
    command.args([
        "--silent",
        "--show-error",
        "--noproxy",
        "*",
        "--max-time",
        "10",
        "--cacert",
        &identity.path("ca.pem"),
    ]);
    command.args(["--resolve", &format!("{OWN}:{port}:{ip}"), &format!("https://{OWN}:{port}/")]);
    program(lane, &identity, command, 1)
}

fn python(lane: &Lane<'_>) -> Outcome {
    const SCRIPT: &str = "import socket, ssl, sys
ca, ip, port, name = sys.argv[1:]
for version in ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3:
    context = ssl.create_default_context(cafile=ca)
    context.minimum_version = context.maximum_version = version
    with socket.create_connection((ip, int(port)), 10) as plain, context.wrap_socket(plain, server_hostname=name) as tls:
        tls.sendall(b'GET / HTTP/1.0\\r\\nHost: ' + name.encode() + b'\\r\\n\\r\\n')
        while piece := tls.recv(4096):
            sys.stdout.write(piece.decode())
";
    let (ip, port) = (lane.address().ip().to_string(), lane.address().port().to_string());
    let identity = Identity::new()?;
    let mut command = Command::new("python3");
    command.args(["-c", SCRIPT, &identity.path("ca.pem"), &ip, &port, OWN]);
    program(lane, &identity, command, 2)
}

/// Runs a client that makes so many requests; each answer has to be in its output.
fn program(lane: &Lane<'_>, identity: &Identity, mut command: Command, requests: usize) -> Outcome {
    let config = identity.server()?;
    std::thread::scope(|scope| {
        let backend = scope.spawn(|| (0..requests).try_for_each(|_| answer_http(lane, &config)));
        // A folder that is there for as long: some wrappers of programs fail without one.
        command.current_dir(identity.folder.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.as_mut().map_err(|error| format!("cannot start {command:?}: {error}"))?;
        // s_client sends what it reads; it stays until its server ends as long as its input is open.
        let mut input = child.stdin.take();
        if let Some(input) = &mut input {
            let _ = input.write_all(REQUEST);
        }
        let served = backend.join().unwrap_or(Err("the backend broke".to_owned()));
        if served.is_err() {
            // It may wait for ever for an answer that does not come.
            let _ = child.kill();
        }
        let (mut said, mut complained) = (String::new(), String::new());
        child.stdout.take().map(|mut output| output.read_to_string(&mut said));
        child.stderr.take().map(|mut output| output.read_to_string(&mut complained));
        let _ = child.wait();
        served.map_err(|seen| format!("{seen}; the client says: {complained}"))?;
        if said.matches(BODY).count() == requests { Ok(()) } else { Err(format!("the client says: {complained}")) }
    })
}

fn accept_tls(lane: &Lane<'_>, config: Arc<ServerConfig>) -> Outcome<StreamOwned<ServerConnection, TcpStream>> {
    let connection = lane.accept(Which::Own)?.into_stream();
    let session = ServerConnection::new(config).map_err(|error| error.to_string())?;
    Ok(StreamOwned::new(session, connection))
}

fn echo_tls(lane: &Lane<'_>, config: Arc<ServerConfig>) -> Outcome {
    let mut stream = accept_tls(lane, config)?;
    let mut piece = vec![0; 16 << 10];
    loop {
        match stream.read(&mut piece).map_err(|error| format!("backend: {error}"))? {
            0 => break,
            count => stream.write_all(&piece[..count]).map_err(|error| format!("backend: {error}"))?,
        }
    }
    stream.conn.send_close_notify();
    stream.flush().map_err(|error| format!("backend: {error}"))
}

fn answer_http(lane: &Lane<'_>, config: &Arc<ServerConfig>) -> Outcome {
    let mut stream = accept_tls(lane, Arc::clone(config))?;
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).map_err(|error| format!("backend: {error}"))?;
        request.push(byte[0]);
    }
    let answer = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{BODY}", BODY.len());
    stream.write_all(answer.as_bytes()).map_err(|error| format!("backend: {error}"))?;
    stream.conn.send_close_notify();
    stream.flush().map_err(|error| format!("backend: {error}"))
}

fn openssl_server(lane: &Lane<'_>) -> Outcome {
    let identity = Identity::new()?;
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.map_err(|error| error.to_string())?;
    let mut command = Command::new("openssl");
    command.args(["s_server", "-quiet", "-www", "-accept", &address.to_string()]);
    command.args(["-cert", &identity.path("leaf.pem"), "-key", &identity.path("key.pem")]);
    let _server = Process::start(&mut command);
    wait_until("openssl s_server to listen", PATIENCE, || TcpStream::connect(address).ok());
    std::thread::scope(|scope| {
        bridge(scope, lane, address);
        let mut client = identity.client(lane.connect()?)?;
        client.write_all(REQUEST).map_err(|error| format!("client cannot send: {error}"))?;
        let mut page = String::new();
        // It closes without a TLS close_notify, which rustls reports; the page is there all the same.
        let _ = client.read_to_string(&mut page);
        if page.contains("</HTML>") { Ok(()) } else { Err(format!("{} bytes of a page came", page.len())) }
    })
}

/// Leads the next connection to a server that has a listener of its own.
fn bridge<'scope>(scope: &'scope Scope<'scope, '_>, lane: &'scope Lane<'_>, server: SocketAddr) {
    scope.spawn(move || -> Outcome {
        let mut near = lane.accept(Which::Own)?;
        let mut far = Conn::to(server)?;
        let (mut near_twin, mut far_twin) = (near.twin()?, far.twin()?);
        let there = scope.spawn(move || pump(&mut near_twin, &mut far_twin));
        pump(&mut far, &mut near)?;
        there.join().unwrap_or(Ok(()))
    });
}

fn pump(from: &mut Conn, to: &mut Conn) -> Outcome {
    let _ = from.stream().set_read_timeout(Some(Duration::from_secs(5)));
    let mut chunk = vec![0; 16 << 10];
    loop {
        match from.stream().read(&mut chunk) {
            Ok(0) | Err(_) => return to.finish(),
            Ok(count) => to.send(&chunk[..count])?,
        }
    }
}
