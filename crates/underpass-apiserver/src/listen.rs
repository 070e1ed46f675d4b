//! The listener: TCP, TLS 1.3 and HTTP in front of whoever answers requests.
//!
//! Its parts, in the order in which a request meets them: the accept loop (here), [`connection`] (handshake, HTTP, idle time),
//! [`exchange`] (one request: who asks, is there room, body, answer), [`outgoing`] (the answer on its way) and [`stall`] (peers
//! that do not read). hyper's own header timer is not used: it also runs between requests and would cut idle connections.

mod connection;
mod exchange;
mod gzip;
mod outgoing;
mod refusal;
mod stall;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustls::ServerConfig;
use rustls::crypto::ring;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::auth::{Authenticator, User};
use crate::body::Body;
use crate::identity::{Identity, IdentityError, ServingCertificate};
use crate::limits::Limits;
use crate::metrics::{Metrics, Refused};

/// After an accept that failed for want of something: long enough not to spin, short enough not to be felt.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Whoever answers requests. The future is dropped when its client leaves: what must not be half done has to run elsewhere.
pub(crate) trait Handler: Send + Sync + 'static {
    fn handle(
        self: Arc<Self>,
        request: http::Request<Bytes>,
        user: Arc<User>,
    ) -> Pin<Box<dyn Future<Output = http::Response<Body>> + Send>>;
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    #[error(
        "another program listens on {address}: stop that one, or choose another address; port 0 lets the system choose"
    )]
    InUse { address: SocketAddr },
    #[error("cannot listen on {address}; choose an address of this machine and a port that this user may use")]
    Bind { address: SocketAddr, source: io::Error },
    #[error("cannot make the serving certificate")]
    Certificate(#[source] IdentityError),
    #[error("cannot set up TLS 1.3")]
    Tls(#[source] rustls::Error),
}

/// A bound socket: clients can connect, and wait until it is served.
pub(crate) struct Listening {
    listener: TcpListener,
    address: SocketAddr,
    certificate: Arc<ServingCertificate>,
    tls: TlsAcceptor,
    authenticator: Authenticator,
    limits: Limits,
}

impl Listening {
    pub(crate) async fn bind(address: SocketAddr, identity: &Identity, limits: Limits) -> Result<Self, ListenError> {
        let bind = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::InUse { address },
            _ => ListenError::Bind { address, source },
        };
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let certificate = identity.serving(address.ip()).map_err(ListenError::Certificate)?;
        let tls = tls_config(certificate.clone()).map_err(ListenError::Tls)?;
        let authenticator = Authenticator::new(identity.token());
        Ok(Self { listener, address, certificate, tls: TlsAcceptor::from(Arc::new(tls)), authenticator, limits })
    }

    /// Where it listens, with the port that the system chose.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until told to stop; returns when every connection has ended, at the latest after the drain limit.
    pub(crate) async fn serve(self, handler: Arc<dyn Handler>, metrics: Arc<Metrics>, stop: CancellationToken) {
        let server = Arc::new(Server {
            handler,
            metrics,
            authenticator: self.authenticator,
            tls: self.tls,
            certificate: self.certificate,
            connections: Arc::new(Semaphore::new(self.limits.connections)),
            handshakes: Semaphore::new(self.limits.handshakes),
            in_flight: Arc::new(Semaphore::new(self.limits.in_flight)),
            watches: Arc::new(Semaphore::new(self.limits.watches)),
            limits: self.limits,
            stop,
        });
        let mut connections = JoinSet::new();
        accept_until_stopped(&server, &self.listener, &mut connections).await;
        drop(self.listener);
        while let Some(ended) = connections.join_next().await {
            report(ended);
        }
    }
}

/// What all connections share.
struct Server {
    handler: Arc<dyn Handler>,
    metrics: Arc<Metrics>,
    authenticator: Authenticator,
    tls: TlsAcceptor,
    certificate: Arc<ServingCertificate>,
    connections: Arc<Semaphore>,
    handshakes: Semaphore,
    in_flight: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    limits: Limits,
    stop: CancellationToken,
}

fn tls_config(certificate: Arc<ServingCertificate>) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![connection::HTTP2.to_vec(), connection::HTTP1.to_vec()];
    Ok(config)
}

async fn accept_until_stopped(server: &Arc<Server>, listener: &TcpListener, connections: &mut JoinSet<()>) {
    loop {
        tokio::select! {
            biased;
            () = server.stop.cancelled() => return,
            Some(ended) = connections.join_next() => report(ended),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => admit(server, stream, connections),
                Err(error) => pause_after(server, &error).await,
            },
        }
    }
}

fn admit(server: &Arc<Server>, stream: TcpStream, connections: &mut JoinSet<()>) {
    match server.connections.clone().try_acquire_owned() {
        Ok(permit) => {
            let server = server.clone();
            connections.spawn(async move {
                connection::run(server, stream).await;
                drop(permit);
            });
        }
        Err(_) => server.metrics.refused(Refused::Connections),
    }
}

/// Without a pause, a process that is out of file descriptors would spin on the same error.
async fn pause_after(server: &Server, error: &io::Error) {
    server.metrics.refused(Refused::Accept);
    if is_about_the_peer(error) {
        return;
    }
    tracing::warn!(error = %error, "cannot accept a connection");
    let pause = tokio::time::sleep(ACCEPT_PAUSE);
    tokio::select! { () = pause => {}, () = server.stop.cancelled() => {} }
}

/// The peer left before it was accepted: the next one is unharmed.
fn is_about_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(error = %error, "a connection ended in a panic");
    }
}
