//! The admin port: what the relay does, to be read over HTTP by people, by Prometheus and by whoever is used to Envoy's.
//!
//! Read-only, so that nothing needs to be guarded but what it tells; it stands on loopback by default. Web pages of strangers get no
//! answer (DNS rebinding): a request must be addressed to an IP address or to localhost.

mod pages;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;

use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use parking_lot::Mutex;
use serde::Serialize;

use crate::port::{Page, Port, PortError};
use crate::relay::{Relay, Socket};

/// The port, taken but not yet answering.
pub struct Admin(Port);

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

impl AdminState {
    pub fn new(relay: Arc<Relay>) -> Arc<Self> {
        Arc::new(Self { relay, refused: Mutex::default(), started: SystemTime::now() })
    }

    pub fn refused(&self) -> Option<RefusedSource> {
        self.refused.lock().clone()
    }

    /// Remembers what was refused last; None when everything was taken.
    pub fn set_refused(&self, refused: Option<RefusedSource>) {
        *self.refused.lock() = refused;
    }
}

/// What others than whoever is on this machine may see.
const SHOWN: [&str; 2] = ["/ready", "/stats/prometheus"];

/// One of the few pages that are shown to others too, or that the process lives.
pub fn shown_page(path: &str, state: &AdminState) -> Option<Page> {
    match path {
        "/healthz" => Some(Page::text(StatusCode::OK, "ok\n")),
        path if SHOWN.contains(&path) => pages::page(path, "", state),
        _ => None,
    }
}

impl Admin {
    pub async fn bind(address: SocketAddr) -> Result<Self, PortError> {
        Port::bind(address).await.map(Self)
    }

    /// Only for those who come by this device.
    pub fn bind_on_device(address: SocketAddr, device: &str) -> Result<Self, PortError> {
        Port::bind_on_device(address, device).map(Self)
    }

    /// Goes on where a predecessor stood.
    pub fn adopt(socket: &Socket) -> Result<Self, PortError> {
        Port::adopt(socket).map(Self)
    }

    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// The socket itself, for a successor.
    pub fn socket(&self) -> Result<Socket, PortError> {
        self.0.socket()
    }

    /// Answers until it is dropped.
    pub async fn serve(self, state: Arc<AdminState>) {
        self.0.serve(move |request| page(request, &state)).await;
    }
}

fn page(request: &Request<Incoming>, state: &AdminState) -> Option<Page> {
    if !is_for_us(request) {
        let told = "address this port by IP address or as localhost\n";
        return Some(Page::text(StatusCode::MISDIRECTED_REQUEST, told));
    }
    pages::page(request.uri().path(), request.uri().query().unwrap_or_default(), state)
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
