//! Connections to hosted services, with certificates verified.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use underpass_testbed::tenant::{Door, NOBODY};

/// Longer than anything here is silent that works.
const SILENCE: Duration = Duration::from_secs(10);
/// Longer than a network needs on which somebody listens. Who waits for a server to come back must not wait for its own kernel, which asks
/// again only after a second, and then after two more.
const SHORT_SILENCE: Duration = Duration::from_millis(250);

pub(crate) type Connection = StreamOwned<ClientConnection, TcpStream>;

/// All names are at one address.
pub(crate) struct Client {
    at: IpAddr,
    tls: Arc<ClientConfig>,
}

impl Client {
    pub(crate) fn new(at: IpAddr, authority: &Path) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority).with_context(|| authority.display().to_string())?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut tls = config.with_root_certificates(roots).with_no_client_auth();
        // Every connection is to be proven by itself.
        tls.resumption = Resumption::disabled();
        Ok(Self { at, tls: Arc::new(tls) })
    }

    /// When this returns, the other end has proven its name.
    pub(crate) fn open(&self, door: &Door) -> io::Result<Connection> {
        self.open_within(door, SILENCE)
    }

    fn open_within(&self, door: &Door, silence: Duration) -> io::Result<Connection> {
        let name = ServerName::try_from(door.name.clone()).map_err(io::Error::other)?;
        let mut socket = TcpStream::connect_timeout(&(self.at, door.port).into(), silence)?;
        socket.set_read_timeout(Some(silence))?;
        socket.set_nodelay(true)?;
        let mut session = ClientConnection::new(self.tls.clone(), name).map_err(io::Error::other)?;
        while session.is_handshaking() {
            session.complete_io(&mut socket)?;
        }
        Ok(StreamOwned::new(session, socket))
    }

    /// Whether a new connection is answered by `who` without a long silence.
    pub(crate) fn is_answered_by(&self, door: &Door, who: &str) -> bool {
        let answer = self.open_within(door, SHORT_SILENCE).and_then(|mut connection| ask(&mut connection, door));
        answer.is_ok_and(|answer| answer.split(' ').next() == Some(who))
    }

    /// The service that answers a new connection; what is neither an answer nor a refusal is an error.
    pub(crate) fn who_answers(&self, door: &Door) -> Result<String, String> {
        let begun = Instant::now();
        let mut connection = match self.open(door) {
            Ok(connection) => connection,
            Err(error) if is_refusal(&error) => return Ok(NOBODY.to_owned()),
            Err(error) => return Err(format!("neither answered nor refused in {:.1?}: {error}", begun.elapsed())),
        };
        let broken = |error| format!("broken before the answer, {:.1?} after it was begun: {error}", begun.elapsed());
        let answer = ask(&mut connection, door).map_err(broken)?;
        answer.split(' ').next().map(str::to_owned).ok_or_else(|| format!("said without a name: {answer}"))
    }
}

fn ask(connection: &mut Connection, door: &Door) -> io::Result<String> {
    write!(connection, "GET / HTTP/1.1\r\nHost: {}\r\n\r\n", door.name)?;
    let mut heard = Vec::new();
    loop {
        let mut buffer = [0; 1024];
        let count = connection.read(&mut buffer)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        heard.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&heard);
        if let Some((_, body)) = text.split_once("\r\n\r\n")
            && body.ends_with('\n')
        {
            return Ok(body.trim_end().to_owned());
        }
    }
}

/// Whoever does not want to speak with us may hang up, or say so. A certificate that does not hold is something else, and so is silence.
fn is_refusal(error: &io::Error) -> bool {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(_)) => true,
        Some(_) => false,
        None => matches!(
            error.kind(),
            ErrorKind::ConnectionRefused
                | ErrorKind::ConnectionReset
                | ErrorKind::UnexpectedEof
                | ErrorKind::BrokenPipe
        ),
    }
}
