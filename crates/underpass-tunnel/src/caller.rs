//! Who gives orders to the server half.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;

use crate::control::{AskError, Link};
use crate::messages::{Listed, Number, Page, Prepare, Prepared, Probed, ServerRequest};
use crate::secrets::{CallerSecrets, SERVER_NAME};
use crate::tls::{self, TlsError};

/// Longer than the server half itself waits for anything.
const DEADLINE: Duration = Duration::from_secs(20);
/// A server half that hangs keeps its connections: it is asked whether it lives, which it answers by itself.
const PING_EVERY: Duration = Duration::from_secs(2);
const PING_DEADLINE: Duration = Duration::from_secs(3);

#[derive(Debug, thiserror::Error)]
pub enum CallerError {
    #[error(transparent)]
    Secrets(#[from] TlsError),
    #[error("the server half of the tunnel at {address} cannot be reached: {reason}")]
    Unreachable { address: SocketAddr, reason: String },
    /// It answered, and the answer is no: the reason, as it gave it.
    #[error("{0}")]
    Refused(String),
}

/// To connect: nothing while it is under way.
type Attempt = watch::Receiver<Option<Result<Arc<Link>, String>>>;

/// Connects when something is asked, and again after the connection was lost.
pub struct Caller {
    address: SocketAddr,
    connector: TlsConnector,
    attempt: Mutex<Option<Attempt>>,
    /// How often the server half has told that there is news.
    news: watch::Sender<u64>,
}

impl Caller {
    /// `address` is where the server half listens for orders: 127.0.0.1 and the port that it printed.
    pub fn new(address: SocketAddr, secrets: &CallerSecrets) -> Result<Self, CallerError> {
        let (news, _) = watch::channel(0);
        Ok(Self { address, connector: tls::connector(&secrets.identity)?, attempt: Mutex::default(), news })
    }

    /// Changes when the server half knows something else of a tunnel's server than before, or is silent, and ends with this. It tells as long as it is
    /// connected to, which it is from the first question on.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Makes the tunnel exist. Where clients reach it.
    pub async fn prepare(&self, tunnel: Prepare) -> Result<Prepared, CallerError> {
        self.ask(ServerRequest::Prepare(tunnel)).await
    }

    /// Frees the tunnel's port at once; its running streams end by themselves. No error when there is none of that number.
    pub async fn delete(&self, number: u32) -> Result<(), CallerError> {
        self.ask(ServerRequest::Delete(Number { number })).await
    }

    pub async fn list(&self) -> Result<Listed, CallerError> {
        let mut page: Page = self.ask(ServerRequest::List(Number { number: 0 })).await?;
        let mut listed = page.listed;
        while let Some(number) = page.next {
            page = self.ask(ServerRequest::List(Number { number })).await?;
            listed.tunnels.append(&mut page.listed.tunnels);
        }
        Ok(listed)
    }

    /// Sends a few bytes through both halves and back, the way that a client's go, but to no server.
    pub async fn probe(&self) -> Result<Probed, CallerError> {
        self.ask(ServerRequest::Probe).await
    }

    /// Ends the server half; all streams are cut.
    pub async fn shutdown(&self) -> Result<(), CallerError> {
        self.ask(ServerRequest::Shutdown).await
    }

    async fn ask<A: DeserializeOwned>(&self, request: ServerRequest) -> Result<A, CallerError> {
        let link = self.link().await?;
        link.ask(&request, DEADLINE).await.map_err(|error| match error {
            AskError::Refused(reason) => CallerError::Refused(reason),
            error => self.unreachable(&error),
        })
    }

    async fn link(&self) -> Result<Arc<Link>, CallerError> {
        let mut attempt = self.attempt();
        let ended = attempt.wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone());
        let connected = ended.unwrap_or_else(|| Err("the attempt to connect was given up".to_owned()));
        connected.map_err(|reason| CallerError::Unreachable { address: self.address, reason })
    }

    /// The last attempt, unless it has failed or its connection is lost. Whoever asks while it is under way has its end, good or bad: if each
    /// made its own, the last would wait for all of them.
    fn attempt(&self) -> Attempt {
        let mut attempt = self.attempt.lock();
        let serves = |attempt: &&Attempt| match &*attempt.borrow() {
            None => attempt.has_changed().is_ok(),
            Some(connected) => connected.as_ref().is_ok_and(|link| !link.is_lost()),
        };
        match attempt.as_ref().filter(serves) {
            Some(attempt) => attempt.clone(),
            None => attempt.insert(self.connect()).clone(),
        }
    }

    /// It goes on by itself: who asked first may not wait for its end.
    fn connect(&self) -> Attempt {
        let (ended, attempt) = watch::channel(None);
        let (address, connector, news) = (self.address, self.connector.clone(), self.news.clone());
        tokio::spawn(async move {
            let told = news.clone();
            let hear = Box::new(move |_| told.send_modify(|times| *times += 1));
            let connected = Link::connect(address, &connector, SERVER_NAME, hear).await.map(Arc::new);
            if let Ok(link) = &connected {
                tokio::spawn(keep_asking(Arc::downgrade(link), news));
            }
            ended.send_replace(Some(connected.map_err(|error| crate::chain(&error))));
        });
        attempt
    }

    fn unreachable(&self, error: &dyn Error) -> CallerError {
        CallerError::Unreachable { address: self.address, reason: crate::chain(error) }
    }
}

/// For as long as the connection is somebody's. One that gets no answer is given up, with everything that was asked on it.
async fn keep_asking(link: Weak<Link>, news: watch::Sender<u64>) {
    loop {
        tokio::time::sleep(PING_EVERY).await;
        let Some(link) = link.upgrade() else { return };
        let answered = link.ask::<()>(&ServerRequest::Ping, PING_DEADLINE).await;
        if answered.is_err_and(|error| error.is_silence()) {
            link.give_up();
            return news.send_modify(|times| *times += 1);
        }
    }
}
