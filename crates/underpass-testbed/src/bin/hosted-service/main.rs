//! Stands in a pod for a service of a hosted control plane: an API server, say, of which only matters who answers.
//!
//! `hosted-service ADDRESS NAME [FOLDER]` speaks TLS with `tls.crt` and `tls.key` of the folder, and plain TCP without one. Whoever asks
//! `GET /` is told the name and the pod, over the same connection as often as wanted; `GET /stream` is answered by the same after a number, every tenth of a
//! second (`/stream?every=500`: every 500 ms) and without an end, so that it shows when a connection breaks; everything else comes back as it was sent.
//!
//! One thread for each connection: a test has hundreds of them and not thousands.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

const BETWEEN_NUMBERS: Duration = Duration::from_millis(100);
const LARGEST_REQUEST: usize = 1 << 16;

#[derive(Parser)]
struct Arguments {
    address: String,
    name: String,
    folder: Option<std::path::PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let tls = arguments.folder.as_deref().map(identity).transpose()?;
    let pod = std::env::var("HOSTNAME").unwrap_or_default();
    let answer: Arc<str> = format!("{} {pod}\n", arguments.name).into();
    let listener = TcpListener::bind(&arguments.address).with_context(|| arguments.address.clone())?;
    loop {
        let (stream, _) = listener.accept()?;
        let (tls, answer) = (tls.clone(), Arc::clone(&answer));
        // Whatever goes wrong with a connection is seen by who made it.
        std::thread::spawn(move || serve(stream, tls, &answer));
    }
}

fn identity(folder: &Path) -> anyhow::Result<Arc<ServerConfig>> {
    let certificate = CertificateDer::from_pem_file(folder.join("tls.crt")).context("tls.crt")?;
    let key = PrivateKeyDer::from_pem_file(folder.join("tls.key")).context("tls.key")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_no_client_auth().with_single_cert(vec![certificate], key)?))
}

fn serve(stream: TcpStream, tls: Option<Arc<ServerConfig>>, answer: &str) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return converse(stream, answer) };
    let connection = ServerConnection::new(tls).map_err(io::Error::other)?;
    converse(StreamOwned::new(connection, stream), answer)
}

fn converse(mut stream: impl Read + Write, answer: &str) -> io::Result<()> {
    let mut heard = Vec::new();
    loop {
        let mut buffer = [0; 8192];
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        heard.extend_from_slice(&buffer[..count]);
        if !heard.starts_with(b"GET ") {
            stream.write_all(&heard)?;
        } else if heard.len() > LARGEST_REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        } else if !heard.ends_with(b"\r\n\r\n") {
            continue;
        } else if heard.starts_with(b"GET /stream") {
            return count_for_ever(stream, pace(&heard), answer);
        } else {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}", answer.len())?;
        }
        stream.flush()?;
        heard.clear();
    }
}

/// As the request asks for.
fn pace(request: &[u8]) -> Duration {
    let asked = request.strip_prefix(b"GET /stream?every=").and_then(|rest| rest.split(|byte| *byte == b' ').next());
    let asked = asked.and_then(|number| std::str::from_utf8(number).ok()?.parse().ok());
    asked.map_or(BETWEEN_NUMBERS, Duration::from_millis)
}

/// Ends when nobody listens any more.
fn count_for_ever(mut stream: impl Write, pace: Duration, answer: &str) -> io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
    for number in 0_u64.. {
        write!(stream, "{number} {answer}")?;
        stream.flush()?;
        std::thread::sleep(pace);
    }
    Ok(())
}
