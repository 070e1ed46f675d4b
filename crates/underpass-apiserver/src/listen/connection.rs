//! One connection: handshake, then HTTP/1.1 or HTTP/2 until the peer, silence, a late header or the server's end closes it.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use parking_lot::Mutex;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::server::TlsStream;

use super::exchange;
use super::stall::{StallingStream, StreamExecutor};
use super::{Limits, Refused, Server};

pub(super) const HTTP1: &[u8] = b"http/1.1";
pub(super) const HTTP2: &[u8] = b"h2";

/// The first byte of a TLS record that carries a handshake.
const TLS_HANDSHAKE: u8 = 22;
/// Go's servers say the same, and tools look for it.
const PLAIN_HTTP_ANSWER: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nclient sent an HTTP request to an HTTPS server\n";
/// After so much silence the kernel asks whether the peer still exists, and asks again, before it gives up.
const KEEPALIVE_SILENCE: Duration = Duration::from_secs(60);
const KEEPALIVE_AGAIN: Duration = Duration::from_secs(15);
/// What HTTP/2 may hold back for one stream when the socket is slower than its answer.
const STREAM_BUFFER_BYTES: usize = 128 << 10;

/// A header up to this many times too large is read whole, so that its 431 can say what is allowed.
const ROOM_TO_EXPLAIN: u32 = 2;

pub(super) async fn run(server: Arc<Server>, stream: TcpStream) {
    let _counted = server.metrics.open_connection();
    let link = Arc::new(Link::new());
    let stream = tokio::select! {
        () = server.stop.cancelled() => return,
        stream = handshake(&server, stream, &link) => stream,
    };
    match stream {
        Ok(stream) => serve(server, stream, link).await,
        Err(reason) => server.metrics.refused(reason),
    }
}

/// What the parts of one connection tell each other.
pub(super) struct Link {
    pace: Mutex<Pace>,
    stalled: AtomicBool,
}

/// Where the connection stands between requests.
struct Pace {
    open: usize,
    awaits: Awaits,
    since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaits {
    /// The rest of a header, or the first one ever.
    Header,
    /// Another request, some time.
    Request,
}

impl Link {
    pub(super) fn new() -> Self {
        let pace = Pace { open: 0, awaits: Awaits::Header, since: Instant::now() };
        Self { pace: Mutex::new(pace), stalled: AtomicBool::new(false) }
    }

    /// The peer may send its first request.
    fn begin(&self) {
        self.pace.lock().since = Instant::now();
    }

    /// A request began; it is open until the result is dropped.
    pub(super) fn open(self: &Arc<Self>) -> OpenRequest {
        self.pace.lock().open += 1;
        OpenRequest(self.clone())
    }

    /// The peer did not read for too long; the connection is about to end because of it.
    pub(super) fn set_stalled(&self) {
        self.stalled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    fn heard(&self) {
        let mut pace = self.pace.lock();
        if pace.open == 0 && pace.awaits == Awaits::Request {
            *pace = Pace { open: 0, awaits: Awaits::Header, since: Instant::now() };
        }
    }

    /// Ready when the peer took too long. With a request open the timer only makes sure that somebody looks again.
    fn poll_overdue(&self, limits: &Limits, mut timer: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<Awaits> {
        loop {
            let (due, overdue) = match *self.pace.lock() {
                Pace { open: 0, awaits: Awaits::Header, since } => (since + limits.header, Some(Awaits::Header)),
                Pace { open: 0, awaits: Awaits::Request, since } => (since + limits.idle, Some(Awaits::Request)),
                Pace { .. } => (Instant::now() + limits.idle, None),
            };
            timer.as_mut().reset(due);
            std::task::ready!(timer.as_mut().poll(cx));
            if let Some(awaits) = overdue {
                return Poll::Ready(awaits);
            }
        }
    }
}

pub(super) struct OpenRequest(Arc<Link>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut pace = self.0.pace.lock();
        *pace = Pace { open: pace.open - 1, awaits: Awaits::Request, since: Instant::now() };
    }
}

async fn handshake(
    server: &Server,
    stream: TcpStream,
    link: &Arc<Link>,
) -> Result<TlsStream<StallingStream<TcpStream>>, Refused> {
    let _permit = server.handshakes.try_acquire().map_err(|_| Refused::Handshakes)?;
    timeout(server.limits.handshake, async {
        if speaks_plain_http(&stream).await? {
            refuse_plain_http(stream).await?;
            return Ok(Err(Refused::PlainHttp));
        }
        let address = prepare(&stream)?;
        server.certificate.cover(address.ip());
        server.tls.accept(StallingStream::new(stream, server.limits.stall, link.clone())).await.map(Ok)
    })
    .await
    .map_err(|_| Refused::Handshake)?
    .unwrap_or_else(|error: io::Error| {
        tracing::debug!(error = %error, "a TLS handshake failed");
        Err(Refused::Handshake)
    })
}

async fn speaks_plain_http(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [TLS_HANDSHAKE];
    stream.peek(&mut first).await?;
    Ok(first[0] != TLS_HANDSHAKE && first[0].is_ascii_uppercase())
}

/// The request is read first: closing a socket with unread bytes would take the answer away from the peer.
async fn refuse_plain_http(mut stream: TcpStream) -> io::Result<()> {
    let mut request = [0; 4096];
    let _ = stream.read(&mut request).await?;
    stream.write_all(PLAIN_HTTP_ANSWER).await?;
    stream.shutdown().await
}

fn prepare(stream: &TcpStream) -> io::Result<SocketAddr> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_SILENCE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_AGAIN)?;
    stream.local_addr()
}

async fn serve(server: Arc<Server>, stream: TlsStream<StallingStream<TcpStream>>, link: Arc<Link>) {
    link.begin();
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
    let service = {
        let (server, link) = (server.clone(), link.clone());
        service_fn(move |request| exchange::answer(server.clone(), link.clone(), request))
    };
    if is_http2 {
        let connection = http2_builder(&server.limits).serve_connection(TokioIo::new(stream), service);
        drive(connection, &server, &link).await;
    } else {
        let stream = HeardStream { stream, link: link.clone() };
        let connection = http1_builder(&server.limits).serve_connection(TokioIo::new(stream), service);
        drive(connection, &server, &link).await;
    }
}

fn http1_builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    let header_bytes = limits.header_bytes as usize * ROOM_TO_EXPLAIN as usize;
    builder.timer(TokioTimer::new()).header_read_timeout(None);
    builder.max_header_size(header_bytes).max_buf_size(header_bytes);
    builder
}

fn http2_builder(limits: &Limits) -> http2::Builder<StreamExecutor> {
    let mut builder = http2::Builder::new(StreamExecutor { limit: limits.stall });
    builder.timer(TokioTimer::new()).keep_alive_interval(limits.ping).keep_alive_timeout(limits.ping);
    builder.max_concurrent_streams(limits.streams).max_header_list_size(limits.header_bytes * ROOM_TO_EXPLAIN);
    builder.max_send_buf_size(STREAM_BUFFER_BYTES);
    builder
}

/// Runs the connection to its end; if the end is ours, open requests get the drain limit to finish.
async fn drive<C: GracefulConnection>(connection: C, server: &Server, link: &Link)
where
    C::Error: std::fmt::Display,
{
    let mut connection = pin!(connection);
    let mut timer = pin!(sleep(server.limits.idle));
    let ended_or_overdue = std::future::poll_fn(|cx| match connection.as_mut().poll(cx) {
        Poll::Ready(ended) => Poll::Ready(Ok(ended)),
        Poll::Pending => link.poll_overdue(&server.limits, timer.as_mut(), cx).map(Err),
    });
    let ended_or_overdue = tokio::select! {
        () = server.stop.cancelled() => None,
        ended_or_overdue = ended_or_overdue => Some(ended_or_overdue),
    };
    match ended_or_overdue {
        Some(Ok(Ok(()))) => return,
        Some(Ok(Err(error))) => return tracing::debug!(error = %error, "a connection ended early"),
        Some(Err(Awaits::Header)) => return server.metrics.refused(Refused::Header),
        Some(Err(Awaits::Request)) | None => {}
    }
    connection.as_mut().graceful_shutdown();
    if timeout(server.limits.drain, connection).await.is_err() {
        tracing::debug!("a connection was cut at the end of its time to finish");
    }
}

/// Notices when a request begins to arrive. Only HTTP/1.1 needs it: in HTTP/2, bytes may be anything.
struct HeardStream<S> {
    stream: S,
    link: Arc<Link>,
}

impl<S: AsyncRead + Unpin> AsyncRead for HeardStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.link.heard();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeardStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(180));

    /// How long it takes until the peer is overdue, and for what.
    async fn overdue(link: &Link) -> (Duration, Awaits) {
        let limits = Limits { header: LIMITS.0, idle: LIMITS.1, ..Limits::default() };
        let (start, mut timer) = (Instant::now(), pin!(sleep(limits.idle)));
        let awaits = std::future::poll_fn(|cx| link.poll_overdue(&limits, timer.as_mut(), cx)).await;
        (Duration::from_secs(start.elapsed().as_secs()), awaits)
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_header_has_the_header_limit() {
        assert_eq!(overdue(&Link::new()).await, (LIMITS.0, Awaits::Header));
    }

    #[tokio::test(start_paused = true)]
    async fn between_requests_the_idle_limit_holds_until_another_begins() {
        let link = Arc::new(Link::new());
        drop(link.open());
        assert_eq!(overdue(&link).await, (LIMITS.1, Awaits::Request));
        link.heard();
        assert_eq!(overdue(&link).await, (LIMITS.0, Awaits::Header));
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_request_is_never_overdue() {
        let link = Arc::new(Link::new());
        let open = [link.open(), link.open()];
        link.heard();
        assert!(timeout(LIMITS.1 * 100, overdue(&link)).await.is_err());
        let [first, second] = open;
        drop(first);
        assert!(timeout(LIMITS.1 * 100, overdue(&link)).await.is_err());
        drop(second);
        assert_eq!(overdue(&link).await, (LIMITS.1, Awaits::Request));
    }
}
