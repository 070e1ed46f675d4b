//! The admin port: what the relay does, to be read over HTTP by people, by Prometheus and by whoever is used to Envoy's.
//!
//! Read-only, so that nothing needs to be guarded but what it tells; it stands on loopback by default. Web pages of strangers get no
//! answer (DNS rebinding): a request must be addressed to an IP address or to localhost.

mod pages;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use underpass_tables::Transport;

use crate::relay::{Relay, Socket};

/// Nobody reads more than a few pages at a time. Whoever comes when so many are there takes the place of the one that was silent longest.
const CONNECTIONS: usize = 64;
/// A browser's request with all its headers has room in it.
const HEADER_BYTES: usize = 16 * 1024;
/// For a request to arrive; an idle connection is closed after it too.
const HEADER_TIME: Duration = Duration::from_secs(5);
/// For one connection in all: a reader that stops reading does not stay for ever.
const CONNECTION_TIME: Duration = Duration::from_secs(300);

/// The port, taken but not yet answering.
pub struct Admin {
    listener: TcpListener,
    address: SocketAddr,
}

/// What the pages are made of.
pub struct AdminState {
    relay: Arc<Relay>,
    refused: Mutex<Option<RefusedSource>>,
    started: SystemTime,
}

/// A source of tables that was refused as a whole; the table before it stays in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedSource {
    pub source: String,
    pub reason: String,
}

/// Why the admin port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("the admin port {address} cannot be opened")]
pub struct AdminError {
    address: SocketAddr,
    #[source]
    source: std::io::Error,
}

impl AdminState {
    pub fn new(relay: Arc<Relay>) -> Arc<Self> {
        Arc::new(Self { relay, refused: Mutex::default(), started: SystemTime::now() })
    }

    /// Remembers what was refused last; None when everything was taken.
    pub fn set_refused(&self, refused: Option<RefusedSource>) {
        *self.refused.lock() = refused;
    }
}

impl Admin {
    pub async fn bind(address: SocketAddr) -> Result<Self, AdminError> {
        let explained = |source| AdminError { address, source };
        let listener = TcpListener::bind(address).await.map_err(explained)?;
        let address = listener.local_addr().map_err(explained)?;
        Ok(Self { listener, address })
    }

    /// Goes on where a predecessor stood.
    pub fn adopt(socket: &Socket) -> Result<Self, AdminError> {
        let explained = |source| AdminError { address: socket.address, source };
        let own = socket.fd.try_clone().map_err(explained)?;
        let listener = TcpListener::from_std(own.into()).map_err(explained)?;
        Ok(Self { listener, address: socket.address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The socket itself, for a successor.
    pub fn socket(&self) -> Result<Socket, AdminError> {
        let fd = self.listener.as_fd().try_clone_to_owned();
        let fd = Arc::new(fd.map_err(|source| AdminError { address: self.address, source })?);
        Ok(Socket { transport: Transport::Stream, address: self.address, fd })
    }

    /// Answers until it is dropped.
    pub async fn serve(self, state: Arc<AdminState>) {
        let mut visitors = Vec::new();
        loop {
            match self.listener.accept().await {
                Ok((client, _)) => {
                    make_room(&mut visitors);
                    visitors.push(Visitor::welcome(client, state.clone()));
                }
                // Out of descriptors, or the client is gone already: others may have more luck in a moment.
                Err(error) => {
                    tracing::debug!(%error, "the admin port could not accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// Somebody who is connected.
struct Visitor {
    task: AbortHandle,
    /// When it came or last asked.
    heard: Arc<Mutex<Instant>>,
}

impl Visitor {
    fn welcome(client: TcpStream, state: Arc<AdminState>) -> Self {
        let heard = Arc::new(Mutex::new(Instant::now()));
        let task = tokio::spawn(talk(client, state, heard.clone())).abort_handle();
        Self { task, heard }
    }
}

fn make_room(visitors: &mut Vec<Visitor>) {
    visitors.retain(|visitor| !visitor.task.is_finished());
    if visitors.len() < CONNECTIONS {
        return;
    }
    let silent = visitors.iter().enumerate().min_by_key(|(_, visitor)| *visitor.heard.lock()).map(|(index, _)| index);
    if let Some(index) = silent {
        visitors.swap_remove(index).task.abort();
    }
}

async fn talk(client: TcpStream, state: Arc<AdminState>, heard: Arc<Mutex<Instant>>) {
    let service = service_fn(move |request| {
        *heard.lock() = Instant::now();
        let state = state.clone();
        async move { Ok::<_, std::convert::Infallible>(answer(&request, &state)) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(client), service);
    // How a connection of a reader ends is the reader's business.
    let _ = tokio::time::timeout(CONNECTION_TIME, connection).await;
}

fn answer(request: &Request<Incoming>, state: &AdminState) -> Response<Full<Bytes>> {
    if !is_for_us(request) {
        return plain(StatusCode::MISDIRECTED_REQUEST, "address this port by IP address or as localhost\n");
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "this port only tells; use GET\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match pages::page(request.uri().path(), request.uri().query().unwrap_or_default(), state) {
        Some(page) => respond(page.status, page.kind, page.text),
        None => plain(StatusCode::NOT_FOUND, "there is no such page; / lists those that there are\n"),
    }
}

/// Browsers name the site that a page came from; whoever has no name for us to be confused with may ask.
fn is_for_us(request: &Request<Incoming>) -> bool {
    let Some(host) = request.headers().get(HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    respond(status, pages::TEXT, text.to_owned())
}

fn respond(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}
