//! One stream: requests in, answers out, until either side has had enough.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use envoy_types::pb::google::rpc::Status as Refusal;
use futures::{Stream as Incoming, StreamExt};
use tokio::sync::mpsc;
use tonic::Status;
use tracing::{debug, info, warn};

use crate::dialect::Dialect;
use crate::reports::Reports;
use crate::serve::Nodes;
use crate::snapshot::{Kind, Newest, Snapshot};
use crate::stream::Stream;

/// Requests that come before there is anything to tell.
const MOST_WAITING: usize = 64;
const LONGEST_NODE_ID: usize = 253 * 2;
/// Of what a client says about what it refused.
const LONGEST_REASON: usize = 4096;

/// What all streams know.
pub(crate) struct Shared {
    pub(crate) newest: Newest,
    pub(crate) nodes: Nodes,
    pub(crate) reports: Arc<Reports>,
}

/// Answers until the client is gone, or has said something that cannot be. On some streams only one kind is spoken of.
pub(crate) async fn hold<D: Dialect>(
    shared: Arc<Shared>,
    only: Option<Kind>,
    requests: impl Incoming<Item = Result<D::Request, Status>> + Send,
    answers: mpsc::Sender<Result<D::Response, Status>>,
) {
    if let Err(status) = answer::<D>(&shared, only, requests, &answers).await {
        let _ = answers.send(Err(status)).await;
    }
}

async fn answer<D: Dialect>(
    shared: &Shared,
    only: Option<Kind>,
    requests: impl Incoming<Item = Result<D::Request, Status>> + Send,
    answers: &mpsc::Sender<Result<D::Response, Status>>,
) -> Result<(), Status> {
    let mut requests = pin!(requests);
    let Some(Ok(first)) = requests.next().await else { return Ok(()) };
    let mut talk = Talk::<D>::begin(shared, only, first)?;
    loop {
        let Some(told) = talk.tell(answers).await? else { return Ok(()) };
        tokio::select! {
            request = requests.next() => match request {
                Some(Ok(request)) => talk.hear(request)?,
                Some(Err(_)) | None => return Ok(()),
            },
            changed = talk.newest.changed() => if changed.is_err() {
                return Err(Status::unavailable("there is nothing more to tell"));
            },
            () = until(told) => {}
        }
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

struct Talk<'a, D: Dialect> {
    shared: &'a Shared,
    only: Option<Kind>,
    node: String,
    newest: Newest,
    stream: Stream,
    waiting: Vec<D::Request>,
    /// What was asked for and is never there.
    nothings: Vec<String>,
}

impl<'a, D: Dialect> Talk<'a, D> {
    fn begin(shared: &'a Shared, only: Option<Kind>, first: D::Request) -> Result<Self, Status> {
        let node = D::node(&first).map(|node| node.id.clone()).unwrap_or_default();
        if node.is_empty() || node.len() > LONGEST_NODE_ID {
            return Err(Status::invalid_argument("the first request has to say who asks: node.id, at most 506 bytes"));
        }
        if let Nodes::Only(known) = &shared.nodes
            && !known.contains(&node)
        {
            let text = format!("node.id is {node}, but what is told here is for {} alone", known.join(" or "));
            return Err(Status::permission_denied(text));
        }
        info!(node, "connected");
        shared.reports.connected(&node);
        let newest = shared.newest.clone();
        let (stream, nothings) = (Stream::default(), Vec::new());
        Ok(Self { shared, only, node, newest, stream, waiting: vec![first], nothings })
    }

    fn hear(&mut self, request: D::Request) -> Result<(), Status> {
        if self.waiting.len() == MOST_WAITING {
            return Err(Status::resource_exhausted("there is nothing to tell yet"));
        }
        self.waiting.push(request);
        Ok(())
    }

    /// Everything that can be told now, and when there may be more; None: nobody listens.
    async fn tell(
        &mut self,
        answers: &mpsc::Sender<Result<D::Response, Status>>,
    ) -> Result<Option<Option<Instant>>, Status> {
        let Some(snapshot) = self.newest.borrow_and_update().clone() else { return Ok(Some(None)) };
        for request in std::mem::take(&mut self.waiting) {
            self.take_up(request, &snapshot)?;
        }
        for type_url in std::mem::take(&mut self.nothings) {
            if answers.send(Ok(D::nothing(&type_url))).await.is_err() {
                return Ok(None);
            }
        }
        while let Some(update) = self.stream.next(&snapshot, Instant::now()) {
            let (kind, changed, removed) = (update.kind, update.changed.len(), update.removed.len());
            debug!(node = self.node, ?kind, version = %update.version, changed, removed, "told");
            if answers.send(Ok(D::response(&self.stream, update))).await.is_err() {
                return Ok(None);
            }
        }
        for kind in Kind::ALL {
            if self.stream.settled(kind, &snapshot) {
                self.shared.reports.settled(&self.node, kind, &snapshot.of(kind).version);
            }
        }
        Ok(Some(self.stream.wait_until()))
    }

    fn take_up(&mut self, request: D::Request, snapshot: &Snapshot) -> Result<(), Status> {
        let Some(kind) = self.kind(&request)? else { return Ok(()) };
        let nonce = D::nonce(&request);
        if !nonce.is_empty() {
            let refusal = D::refusal(&request);
            let answered = match refusal {
                None => self.stream.answered(kind, nonce),
                Some(_) => self.stream.refused(kind, nonce, Instant::now()),
            };
            match answered {
                Some(version) => self.note(kind, version, refusal),
                None if D::OLD_REQUESTS_COUNT || self.stream.is_newest(kind, nonce) => {}
                None => return Ok(()),
            }
        }
        D::ask(&mut self.stream, kind, request, snapshot);
        Ok(())
    }

    /// None: of a kind that is never there.
    fn kind(&mut self, request: &D::Request) -> Result<Option<Kind>, Status> {
        let type_url = D::type_url(request);
        match (self.only, Kind::of_type_url(type_url)) {
            (Some(only), found) if type_url.is_empty() || found == Some(only) => Ok(Some(only)),
            (Some(only), _) => Err(Status::invalid_argument(format!("only {} can be asked for here", only.type_url()))),
            (None, Some(kind)) => Ok(Some(kind)),
            (None, None) if type_url.is_empty() => Err(Status::invalid_argument("type_url is missing")),
            (None, None) => {
                if D::nonce(request).is_empty() {
                    self.nothings.push(type_url.to_owned());
                }
                Ok(None)
            }
        }
    }

    fn note(&self, kind: Kind, version: Arc<str>, refusal: Option<&Refusal>) {
        let node = &self.node;
        let reason = refusal.map(|refusal| {
            let mut reason = refusal.message.clone();
            reason.truncate(reason.floor_char_boundary(LONGEST_REASON));
            reason
        });
        match &reason {
            None => info!(node, ?kind, %version, "xDS snapshot pushed to Envoy"),
            Some(reason) => warn!(node, ?kind, %version, reason, "invalid configuration: Envoy refused it"),
        }
        self.shared.reports.answered(node, kind, version, reason);
    }
}

impl<D: Dialect> Drop for Talk<'_, D> {
    fn drop(&mut self) {
        info!(node = self.node, "disconnected");
        self.shared.reports.disconnected(&self.node);
    }
}
