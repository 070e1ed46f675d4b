//! The end of a control connection that asks.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::split;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::lines::{self, LineError, Lines};
use crate::messages::{Asked, Told, Unasked};

/// Who is told what the other end says unasked. It must not wait.
pub(crate) type Hear = Box<dyn Fn(Unasked) + Send + Sync>;

const CONNECT_DEADLINE: Duration = Duration::from_secs(3);
const REQUESTS: usize = 64;

#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("{0} cannot be connected to")]
    Connect(SocketAddr, #[source] io::Error),
    #[error("{0} did not prove who it is")]
    Tls(SocketAddr, #[source] io::Error),
    #[error("{address} did not answer within {} s", CONNECT_DEADLINE.as_secs())]
    Late { address: SocketAddr },
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("{0}")]
    Refused(String),
    #[error("the control connection was lost before the answer came")]
    Lost,
    #[error("no answer came within {} s", .0.as_secs())]
    Late(Duration),
    #[error("the answer is not what was expected")]
    Unexpected(#[source] serde_json::Error),
}

/// A control connection. Dropping it closes it.
pub(crate) struct Link {
    requests: mpsc::Sender<Request>,
    lost: CancellationToken,
}

struct Request {
    request: Value,
    answer: oneshot::Sender<Result<Value, String>>,
}

impl AskError {
    /// Nothing came back: whatever is asked next on that connection has no answer either.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, Self::Late(_) | Self::Lost)
    }
}

impl Link {
    /// Connects to whoever proves to have this name.
    pub(crate) async fn connect(
        address: SocketAddr,
        connector: &TlsConnector,
        name: &'static str,
        unasked: Hear,
    ) -> Result<Self, LinkError> {
        let connecting = connect(address, connector, name);
        let stream = timeout(CONNECT_DEADLINE, connecting).await.map_err(|_| LinkError::Late { address })??;
        let (requests_tx, requests_rx) = mpsc::channel(REQUESTS);
        let lost = CancellationToken::new();
        let (guard, given_up) = (lost.clone().drop_guard(), lost.clone());
        tokio::spawn(async move {
            let _guard = guard;
            let carried = given_up.run_until_cancelled(carry(stream, requests_rx, unasked)).await;
            if let Some(Err(error)) = carried {
                debug!(%address, error = %error, "a control connection ended");
            }
        });
        Ok(Self { requests: requests_tx, lost })
    }

    pub(crate) async fn ask<A: DeserializeOwned>(
        &self,
        request: &impl Serialize,
        deadline: Duration,
    ) -> Result<A, AskError> {
        let request = serde_json::to_value(request).map_err(AskError::Unexpected)?;
        let (answer_tx, answer_rx) = oneshot::channel();
        self.requests.send(Request { request, answer: answer_tx }).await.map_err(|_| AskError::Lost)?;
        let answered = timeout(deadline, answer_rx).await.map_err(|_| AskError::Late(deadline))?;
        let answer = answered.map_err(|_| AskError::Lost)?.map_err(AskError::Refused)?;
        serde_json::from_value(answer).map_err(AskError::Unexpected)
    }

    /// Closes it; whoever waits for an answer waits no longer.
    pub(crate) fn give_up(&self) {
        self.lost.cancel();
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

async fn connect(
    address: SocketAddr,
    connector: &TlsConnector,
    name: &'static str,
) -> Result<TlsStream<TcpStream>, LinkError> {
    let stream = TcpStream::connect(address).await.map_err(|source| LinkError::Connect(address, source))?;
    // Small messages that somebody waits for.
    let _ = stream.set_nodelay(true);
    let name = ServerName::try_from(name).map_err(|error| LinkError::Tls(address, io::Error::other(error)))?;
    connector.connect(name, stream).await.map_err(|source| LinkError::Tls(address, source))
}

async fn carry(
    stream: TlsStream<TcpStream>,
    mut requests: mpsc::Receiver<Request>,
    unasked: Hear,
) -> Result<(), LineError> {
    let (reader, mut writer) = split(stream);
    let mut lines = Lines::new(reader);
    let mut pending: HashMap<u64, oneshot::Sender<Result<Value, String>>> = HashMap::new();
    let mut id = 0;
    loop {
        tokio::select! {
            request = requests.recv() => {
                let Some(Request { request, answer }) = request else { return Ok(()) };
                id += 1;
                // Who gave up waiting is not waited for.
                pending.retain(|_, answer| !answer.is_closed());
                pending.insert(id, answer);
                lines::write(&mut writer, &Asked { id, request }).await?;
            }
            told = lines.next() => {
                let Some(told) = told? else { return Ok(()) };
                hear(told, &mut pending, &unasked);
            }
        }
    }
}

fn hear(told: Told, pending: &mut HashMap<u64, oneshot::Sender<Result<Value, String>>>, unasked: &Hear) {
    let (id, result) = match told {
        Told::Answer { id, answer } => (id, Ok(answer)),
        Told::Error { id, error } => (id, Err(error)),
        Told::Unasked(told) => return unasked(told),
    };
    if let Some(answer) = pending.remove(&id) {
        // Who asked may have given up.
        let _ = answer.send(result);
    }
}
