//! A port that only tells: pages for people, probes and Prometheus, over plain HTTP.
//!
//! It cannot be used up by those who connect and stay: there are limits to how many, how long, and how much they may say.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::sockopt::set_ipv6_v6only;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::AbortHandle;
use underpass_tables::Transport;

use crate::relay::Socket;

/// Nobody reads more than a few pages at a time. Whoever comes when so many are there takes the place of the one that was silent longest.
const CONNECTIONS: usize = 64;
/// A browser's request with all its headers has room in it.
const HEADER_BYTES: usize = 16 * 1024;
/// For a request to arrive; an idle connection is closed after it too.
const HEADER_TIME: Duration = Duration::from_secs(5);
/// For one connection in all: a reader that stops reading does not stay for ever.
const CONNECTION_TIME: Duration = Duration::from_secs(300);

/// Who may wait to be accepted.
const BACKLOG: u32 = 1024;

/// The device of every loopback address.
pub const LOOPBACK: &str = "lo";
/// The type of plain text.
pub const TEXT: &str = "text/plain; charset=utf-8";

/// The port, taken but not yet answering.
pub struct Port {
    listener: TcpListener,
    address: SocketAddr,
}

/// What is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub status: StatusCode,
    /// The content type.
    pub kind: &'static str,
    pub text: String,
}

/// Why a port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    #[error("the port {address} cannot be opened")]
    Open {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("the port {address} cannot be kept to those who come by {device}, which takes Linux 5.7 or newer")]
    Device {
        address: SocketAddr,
        device: String,
        #[source]
        source: io::Error,
    },
}

impl Page {
    pub fn ok(kind: &'static str, text: String) -> Self {
        Self { status: StatusCode::OK, kind, text }
    }

    pub fn text(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, kind: TEXT, text: text.into() }
    }
}

impl Port {
    /// `[::]` is every address of both families, or of IPv4 where the kernel has no other. Async because it takes a runtime to be called in.
    pub async fn bind(address: SocketAddr) -> Result<Self, PortError> {
        let listener = socket(address).and_then(|socket| listen(socket, address));
        let listener = listener.or_else(|error| {
            let ipv4 = instead_of_ipv6(address, &error).ok_or(error)?;
            listen(socket(ipv4)?, ipv4)
        });
        Self::of(listener, address)
    }

    /// Only for those who come by this device, see [`listen_on_device`].
    pub fn bind_on_device(address: SocketAddr, device: &str) -> Result<Self, PortError> {
        Self::of(Ok(listen_on_device(address, device)?), address)
    }

    fn of(listener: io::Result<TcpListener>, address: SocketAddr) -> Result<Self, PortError> {
        let explained = |source| PortError::Open { address, source };
        let listener = listener.map_err(explained)?;
        let address = listener.local_addr().map_err(explained)?;
        Ok(Self { listener, address })
    }

    /// Goes on where a predecessor stood.
    pub(crate) fn adopt(socket: &Socket) -> Result<Self, PortError> {
        let explained = |source| PortError::Open { address: socket.address, source };
        let own = socket.fd.try_clone().map_err(explained)?;
        let listener = TcpListener::from_std(own.into()).map_err(explained)?;
        Ok(Self { listener, address: socket.address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The socket itself, for a successor.
    pub(crate) fn socket(&self) -> Result<Socket, PortError> {
        let fd = self.listener.as_fd().try_clone_to_owned();
        let fd = Arc::new(fd.map_err(|source| PortError::Open { address: self.address, source })?);
        Ok(Socket { transport: Transport::Stream, address: self.address, fd })
    }

    /// Answers until it is dropped. `page` is only asked for what may be read; `None`: there is no such page.
    pub async fn serve(self, page: impl Fn(&Request<Incoming>) -> Option<Page> + Send + Sync + 'static) {
        let (page, mut visitors) = (Arc::new(page), Vec::new());
        loop {
            match self.listener.accept().await {
                Ok((client, _)) => {
                    make_room(&mut visitors);
                    visitors.push(Visitor::welcome(client, Arc::clone(&page)));
                }
                // Out of descriptors, or the client is gone already: others may have more luck in a moment.
                Err(error) => {
                    tracing::debug!(%error, "a port that only tells could not accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// An address does not say by which network one comes: a machine takes packets for all of its addresses on all of its devices, and where
/// loopback is routed (as kube-proxy has it on nodes, and pods inherit it) even those for 127.0.0.1.
pub fn listen_on_device(address: SocketAddr, device: &str) -> Result<TcpListener, PortError> {
    let explained = |source| PortError::Open { address, source };
    let socket = socket(address).map_err(explained)?;
    let kept = socket.bind_device(Some(device.as_bytes()));
    kept.map_err(|source| PortError::Device { address, device: device.to_owned(), source })?;
    listen(socket, address).map_err(explained)
}

fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    if address.is_ipv4() {
        return TcpSocket::new_v4();
    }
    let socket = TcpSocket::new_v6()?;
    // Whatever the machine's habit is (net.ipv6.bindv6only).
    set_ipv6_v6only(&socket, !address.ip().is_unspecified())?;
    Ok(socket)
}

fn listen(socket: TcpSocket, address: SocketAddr) -> io::Result<TcpListener> {
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// What every address is where there is no IPv6.
fn instead_of_ipv6(address: SocketAddr, error: &io::Error) -> Option<SocketAddr> {
    let lacks_ipv6 = Errno::from_io_error(error) == Some(Errno::AFNOSUPPORT);
    (lacks_ipv6 && address.ip() == Ipv6Addr::UNSPECIFIED).then(|| (Ipv4Addr::UNSPECIFIED, address.port()).into())
}

/// Somebody who is connected.
struct Visitor {
    task: AbortHandle,
    /// When it came or last asked.
    heard: Arc<Mutex<Instant>>,
}

impl Visitor {
    fn welcome<P>(client: TcpStream, page: Arc<P>) -> Self
    where
        P: Fn(&Request<Incoming>) -> Option<Page> + Send + Sync + 'static,
    {
        let heard = Arc::new(Mutex::new(Instant::now()));
        let task = tokio::spawn(talk(client, page, heard.clone())).abort_handle();
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

async fn talk<P>(client: TcpStream, page: Arc<P>, heard: Arc<Mutex<Instant>>)
where
    P: Fn(&Request<Incoming>) -> Option<Page> + Send + Sync + 'static,
{
    let service = service_fn(move |request| {
        *heard.lock() = Instant::now();
        let page = Arc::clone(&page);
        async move { Ok::<_, std::convert::Infallible>(answer(&request, &*page)) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(client), service);
    // How a connection of a reader ends is the reader's business.
    let _ = tokio::time::timeout(CONNECTION_TIME, connection).await;
}

fn answer(request: &Request<Incoming>, page: impl Fn(&Request<Incoming>) -> Option<Page>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let told = Page::text(StatusCode::METHOD_NOT_ALLOWED, "this port only tells; use GET\n");
        let mut response = respond(told);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let missing = || Page::text(StatusCode::NOT_FOUND, "there is no such page; / lists those that there are\n");
    respond(page(request).unwrap_or_else(missing))
}

fn respond(page: Page) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(page.text));
    *response.status_mut() = page.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(page.kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_address_is_of_both_families() {
        let port = Port::bind("[::]:0".parse().unwrap()).await.unwrap();
        let number = port.address().port();
        for address in ["127.0.0.1", "::1"] {
            TcpStream::connect((address, number)).await.unwrap_or_else(|error| panic!("{address}: {error}"));
        }
        let port = Port::bind("[::1]:0".parse().unwrap()).await.unwrap();
        let other = TcpStream::connect(("127.0.0.1", port.address().port())).await;
        assert_eq!(other.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    /// No kernel without IPv6 is at hand: this is what one says.
    #[test]
    fn without_ipv6_every_address_is_of_ipv4() {
        let instead = |address: &str, errno| instead_of_ipv6(address.parse().unwrap(), &io::Error::from(errno));
        assert_eq!(instead("[::]:80", Errno::AFNOSUPPORT), Some("0.0.0.0:80".parse().unwrap()));
        assert_eq!(instead("[::1]:80", Errno::AFNOSUPPORT), None, "one that there is not");
        assert_eq!(instead("[::]:80", Errno::ADDRINUSE), None);
    }
}
