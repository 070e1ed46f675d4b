//! The server half's control connection to the client half: made again for ever, with pauses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tracing::{info, warn};

use crate::candidates::Candidates;
use crate::chain;
use crate::control::{Hear, Link};
use crate::messages::{ClientRequest, Unasked, Want};
use crate::secrets::CLIENT_NAME;

/// For an order, from its sending to its answer.
pub(super) const DEADLINE: Duration = Duration::from_secs(5);
/// How long an order waits for a connection to be there.
const PATIENCE: Duration = Duration::from_secs(5);
const PING_EVERY: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

pub(super) struct ClientLink {
    connector: TlsConnector,
    candidates: Candidates,
    wants: mpsc::Sender<Want>,
    current: watch::Sender<Option<Arc<Link>>>,
    trouble: Mutex<Option<String>>,
}

impl ClientLink {
    pub(super) fn new(connector: TlsConnector, addresses: Vec<SocketAddr>, wants: mpsc::Sender<Want>) -> Self {
        let (current, _) = watch::channel(None);
        Self { connector, candidates: Candidates::new(addresses), wants, current, trouble: Mutex::default() }
    }

    /// A new connection, after as many attempts as it takes.
    pub(super) async fn reach(&self) -> Arc<Link> {
        let mut pause = FIRST_PAUSE;
        loop {
            if let Some(link) = self.connect().await {
                info!("connected to the client half");
                return link;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Gives it to whoever has orders, until it is lost.
    pub(super) async fn hold(&self, link: Arc<Link>) {
        *self.trouble.lock() = None;
        self.current.send_replace(Some(link.clone()));
        watch_over(&link).await;
        self.current.send_replace(None);
        self.failed("the control connection to the client half was lost".to_owned());
        // Whoever cuts connections at once does not make us busy.
        sleep(FIRST_PAUSE).await;
    }

    /// Whoever does not obey on a new connection may on the next one.
    pub(super) async fn give_up(&self, link: &Link, reason: String) {
        link.give_up();
        self.failed(reason);
        sleep(FIRST_PAUSE).await;
    }

    /// The connection that is there, or will be soon.
    pub(super) async fn get(&self) -> Result<Arc<Link>, String> {
        let mut current = self.current.subscribe();
        let link = timeout(PATIENCE, current.wait_for(Option::is_some)).await;
        let link = link.ok().and_then(Result::ok).and_then(|link| link.clone());
        link.ok_or_else(|| self.trouble().unwrap_or_else(|| "the client half is not connected".to_owned()))
    }

    pub(super) fn current(&self) -> Option<Arc<Link>> {
        self.current.borrow().clone()
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    fn hear(&self) -> Hear {
        let wants = self.wants.clone();
        Box::new(move |unasked| {
            if let Unasked::Want(want) = unasked {
                // A full channel has wishes enough in it.
                let _ = wants.try_send(want);
            }
        })
    }

    async fn connect(&self) -> Option<Arc<Link>> {
        for (place, address) in self.candidates.in_order(Instant::now()) {
            match Link::connect(address, &self.connector, CLIENT_NAME, self.hear()).await {
                Ok(link) => {
                    self.candidates.answered(place);
                    return Some(Arc::new(link));
                }
                Err(error) => self.failed(format!("the client half cannot be reached: {}", chain(&error))),
            }
        }
        None
    }

    /// The same trouble is told once.
    fn failed(&self, reason: String) {
        let mut trouble = self.trouble.lock();
        if trouble.as_ref() != Some(&reason) {
            warn!("{reason}");
            *trouble = Some(reason);
        }
    }
}

/// Comes back when the connection is lost, or nobody answers on it any more.
async fn watch_over(link: &Link) {
    loop {
        tokio::select! {
            () = link.lost() => return,
            () = sleep(PING_EVERY) => {}
        }
        if link.ask::<()>(&ClientRequest::Ping, DEADLINE).await.is_err() {
            return;
        }
    }
}
