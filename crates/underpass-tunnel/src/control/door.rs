//! The end of control connections that answers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncWriteExt, WriteHalf, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::crowd::Crowd;
use crate::lines::{self, LineError, Lines};
use crate::messages::{Asked, Told, Unasked};
use crate::refusals::{Refusals, Why};

const TLS_DEADLINE: Duration = Duration::from_secs(5);
/// For a peer that takes no bytes.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);
/// For answers that are under way when everything ends.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
const MOST_HALF_OPEN: usize = 64;
const MOST_CONNECTIONS: usize = 8;
/// Requests of one connection at a time; further ones wait to be read.
const MOST_REQUESTS: usize = 64;
/// How long to wait when the system has no descriptors left.
const PAUSE: Duration = Duration::from_millis(50);

/// Whoever knows the answers.
pub(crate) trait Answers: Send + Sync + 'static {
    type Request: DeserializeOwned + Send + 'static;

    fn answer(self: Arc<Self>, request: Self::Request) -> BoxFuture<'static, Result<Value, String>>;
}

/// Where control connections come in.
pub(crate) struct Door<A> {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) answers: Arc<A>,
    /// What is told to everybody.
    pub(crate) unasked: broadcast::Sender<Unasked>,
    pub(crate) refusals: Arc<Refusals>,
    /// How long a connection may be silent; None: for ever.
    pub(crate) silence: Option<Duration>,
    pub(crate) stop: CancellationToken,
}

impl<A: Answers> Door<A> {
    /// Lets connections in until told to stop, and then gives them the answers that are under way.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let (half_open, open) = (Crowd::new(MOST_HALF_OPEN), Crowd::new(MOST_CONNECTIONS));
        let (busy_tx, mut busy_rx) = tokio::sync::mpsc::channel::<()>(1);
        let door = Arc::new(self);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = door.stop.cancelled() => break,
            };
            let Ok((stream, peer)) = accepted else {
                sleep(PAUSE).await;
                continue;
            };
            let source = peer.ip().to_canonical();
            let (entering, open, busy) = (door.clone(), open.clone(), busy_tx.clone());
            if half_open.admit(source, async move { entering.enter(stream, peer, &open, busy).await }) {
                door.refusals.note(Why::Crowded, source);
            }
        }
        drop(busy_tx);
        drop(listener);
        // Comes back when the last connection is gone.
        let _ = timeout(LAST_ANSWERS, busy_rx.recv()).await;
    }

    async fn enter(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        open: &Arc<Crowd>,
        busy: tokio::sync::mpsc::Sender<()>,
    ) {
        let source: IpAddr = peer.ip().to_canonical();
        // Small messages that somebody waits for.
        let _ = stream.set_nodelay(true);
        match timeout(TLS_DEADLINE, self.acceptor.accept(stream)).await {
            Err(_) => self.refusals.note(Why::Late, source),
            Ok(Err(error)) => {
                debug!(%peer, %error, "no control connection");
                self.refusals.note(Why::Tls, source);
            }
            Ok(Ok(stream)) => {
                open.admit(source, async move {
                    let _busy = busy;
                    if let Err(error) = self.converse(stream).await {
                        debug!(%peer, %error, "a control connection ended");
                    }
                });
            }
        }
    }

    async fn converse(&self, stream: TlsStream<TcpStream>) -> Result<(), LineError> {
        let (reader, mut writer) = split(stream);
        let mut lines = Lines::new(reader);
        let mut unasked = self.unasked.subscribe();
        let mut answers = FuturesUnordered::new();
        loop {
            tokio::select! {
                asked = self.next(&mut lines), if answers.len() < MOST_REQUESTS => {
                    let Some(asked) = asked? else { break };
                    answers.push(self.answer(asked));
                }
                Some(told) = answers.next() => write(&mut writer, &told).await?,
                unasked = unasked.recv() => match unasked {
                    Ok(unasked) => write(&mut writer, &Told::Unasked(unasked)).await?,
                    // What was missed is said again by whoever still waits.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => break,
                },
                () = self.stop.cancelled() => break,
            }
        }
        while let Some(told) = answers.next().await {
            write(&mut writer, &told).await?;
        }
        // Whoever waits for the end gets a clean one.
        let _ = timeout(WRITE_DEADLINE, writer.shutdown()).await;
        Ok(())
    }

    async fn next(
        &self,
        lines: &mut Lines<tokio::io::ReadHalf<TlsStream<TcpStream>>>,
    ) -> Result<Option<Asked<A::Request>>, LineError> {
        match self.silence {
            None => lines.next().await,
            Some(silence) => timeout(silence, lines.next()).await.unwrap_or(Ok(None)),
        }
    }

    fn answer(&self, Asked { id, request }: Asked<A::Request>) -> impl Future<Output = Told> + use<A> {
        let answer = self.answers.clone().answer(request);
        async move {
            match answer.await {
                Ok(answer) => Told::Answer { id, answer },
                Err(error) => Told::Error { id, error },
            }
        }
    }
}

async fn write(writer: &mut WriteHalf<TlsStream<TcpStream>>, told: &Told) -> Result<(), LineError> {
    let late = |_| Err(LineError::Broken(std::io::ErrorKind::TimedOut.into()));
    timeout(WRITE_DEADLINE, lines::write(writer, told)).await.unwrap_or_else(late)
}
