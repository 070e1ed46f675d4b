//! The listener as its clients see it: real sockets, real TLS, a toy behind it.

mod handshake;
mod refusals;
mod stalls;
mod stopping;

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::header::{AUTHORIZATION, HOST};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, BodyStream, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, broadcast};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use super::*;

/// No test waits this long unless it fails.
const PATIENCE: Duration = Duration::from_secs(20);
/// For a limit that the test runs into.
const SOON: Duration = Duration::from_millis(300);

/// Answers by path; see `handle`.
struct Toy {
    gate: Semaphore,
    ticks: broadcast::Sender<Bytes>,
}

impl Handler for Toy {
    fn handle(
        self: Arc<Self>,
        request: Request<Bytes>,
        user: Arc<User>,
    ) -> Pin<Box<dyn Future<Output = Response<Body>> + Send>> {
        assert!(!request.headers().contains_key(AUTHORIZATION), "the token stays with the listener");
        Box::pin(async move {
            Response::new(match request.uri().path() {
                "/gate" => {
                    self.gate.acquire().await.unwrap().forget();
                    Body::from(String::from("open"))
                }
                "/panic" => panic!("on purpose"),
                "/long" => Body::from(vec![b'x'; 4 << 20]),
                "/flood" => Body::stream(futures::stream::repeat(Bytes::from(vec![b'x'; 32 << 10]))),
                "/ticks" => Body::stream(futures::stream::unfold(self.ticks.subscribe(), async |mut ticks| {
                    ticks.recv().await.ok().map(|tick| (tick, ticks))
                })),
                _ => Body::from(format!("{} sent {} bytes", user.name, request.body().len())),
            })
        })
    }
}

/// A server that runs, and what a client of it needs.
struct Rig {
    address: SocketAddr,
    identity: Identity,
    toy: Arc<Toy>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Rig {
    async fn start(limits: Limits) -> Self {
        Self::start_as(Identity::load_or_create(None).unwrap(), limits).await
    }

    async fn start_as(identity: Identity, limits: Limits) -> Self {
        let listening = Listening::bind((Ipv4Addr::LOCALHOST, 0).into(), &identity, limits).await.unwrap();
        let address = listening.address();
        let toy = Arc::new(Toy { gate: Semaphore::new(0), ticks: broadcast::channel(16).0 });
        let (metrics, stop) = (Arc::new(Metrics::new()), CancellationToken::new());
        let serving = tokio::spawn(listening.serve(toy.clone(), metrics.clone(), stop.clone()));
        Self { address, identity, toy, metrics, stop, serving }
    }

    async fn tls(&self, alpn: &[u8]) -> io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.identity.ca_pem().as_bytes()).unwrap()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.to_vec()];
        let name = ServerName::from(self.address.ip());
        TlsConnector::from(Arc::new(config)).connect(name, TcpStream::connect(self.address).await?).await
    }

    async fn client(&self, http2: bool) -> Client {
        if http2 { self.http2().await } else { self.http1().await }
    }

    async fn http1(&self) -> Client {
        let stream = TokioIo::new(self.tls(b"http/1.1").await.unwrap());
        let (sender, connection) = http1::handshake(stream).await.unwrap();
        Client { sender: Sender::Http1(sender), connection: tokio::spawn(async { drop(connection.await) }) }
    }

    async fn http2(&self) -> Client {
        let stream = TokioIo::new(self.tls(b"h2").await.unwrap());
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(64 << 10).initial_connection_window_size(16 << 20);
        let (sender, connection) = builder.handshake(stream).await.unwrap();
        Client { sender: Sender::Http2(sender), connection: tokio::spawn(async { drop(connection.await) }) }
    }

    fn request(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
        let request = Request::builder().method(method).uri(format!("https://{}{path}", self.address));
        let request = request.header(AUTHORIZATION, format!("Bearer {}", self.identity.token()));
        request.body(Full::new(body.into())).unwrap()
    }

    fn get(&self, path: &str) -> Request<Full<Bytes>> {
        self.request(Method::GET, path, "")
    }

    /// Waits until `/metrics` would say so.
    async fn metric(&self, line: &str) {
        until(line, || self.metrics.render().lines().any(|found| found == line)).await;
    }

    /// Waits until so many requests are with the toy.
    async fn in_flight(&self, count: usize) {
        self.metric(&format!("apiserver_current_inflight_requests{{request_kind=\"readOnly\"}} {count}")).await;
    }

    async fn watching(&self, count: usize) {
        until("watches", || self.toy.ticks.receiver_count() == count).await;
    }
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

struct Client {
    sender: Sender,
    connection: JoinHandle<()>,
}

impl Client {
    async fn send(&mut self, mut request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match &mut self.sender {
            Sender::Http1(sender) => {
                let host = request.uri().authority().map(|host| host.as_str().parse().unwrap());
                request.headers_mut().extend(host.map(|host| (HOST, host)));
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }

    /// Code and text of an answer.
    async fn ask(&mut self, request: Request<Full<Bytes>>) -> (u16, String) {
        let response = self.send(request).await.unwrap();
        (response.status().as_u16(), text(response).await)
    }

    async fn ended(self) {
        tokio::time::timeout(PATIENCE, self.connection).await.expect("the connection goes on").unwrap();
    }
}

async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().into()).unwrap()
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let holds = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, holds).await.unwrap_or_else(|_| panic!("never came true: {what}"));
}

/// The next item of a watch; HTTP/2 may end with an empty frame.
async fn next(watch: &mut BodyStream<Incoming>) -> Option<Bytes> {
    loop {
        let frame = tokio::time::timeout(PATIENCE, watch.next()).await.expect("nothing came")?;
        let item = frame.expect("the watch broke").into_data().unwrap();
        if !item.is_empty() {
            return Some(item);
        }
    }
}
