//! One stream: requests in, answers out, until either side has had enough.

use std::sync::Arc;
use std::time::{Duration, Instant};

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
/// What a client has said is known for so long after its last stream. One that has lost it is back sooner, and runs what it did all along;
/// who looks sees no more of that than there was.
const REMEMBERED: Duration = Duration::from_secs(10);

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
    let mut requests = Box::pin(requests);
    let Some(Ok(first)) = requests.next().await else { return };
    let (node, ended) = match Talk::<D>::begin(&shared, only, first) {
        Ok(talk) => (Some(talk.node.clone()), answer(talk, requests, &answers).await),
        Err(status) => (None, Err(status)),
    };
    if let Err(status) = ended {
        let _ = answers.send(Err(status)).await;
    }
    drop(answers);
    if let Some(node) = node {
        tokio::time::sleep(REMEMBERED).await;
        shared.reports.forget_if_gone(&node);
    }
}

async fn answer<D: Dialect>(
    mut talk: Talk<'_, D>,
    mut requests: impl Incoming<Item = Result<D::Request, Status>> + Send + Unpin,
    answers: &mpsc::Sender<Result<D::Response, Status>>,
) -> Result<(), Status> {
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
    /// What was asked for now for the first time.
    begun: Vec<Kind>,
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
        let (stream, begun, nothings) = (Stream::default(), Vec::new(), Vec::new());
        Ok(Self { shared, only, node, newest, stream, waiting: vec![first], begun, nothings })
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
            } else if self.begun.contains(&kind) {
                self.shared.reports.begins_anew(&self.node, kind);
            }
        }
        self.begun.clear();
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
        if self.stream.asked(kind).is_none() {
            self.begun.push(kind);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use envoy_types::pb::envoy::config::core::v3::Node;
    use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
    use tokio::sync::watch;
    use tokio::time::Instant;
    use underpass_tables::RelayTable;

    use super::*;
    use crate::dialect::StateOfTheWorld;
    use crate::envoy::Translator;
    use crate::reports::Report;

    const NODE: &str = "edge";
    const PATIENCE: Duration = Duration::from_secs(5);

    /// A client that asks for clusters, of which there are none. It is gone with this value.
    struct Client {
        requests: mpsc::UnboundedSender<Result<DiscoveryRequest, Status>>,
        answers: mpsc::Receiver<Result<DiscoveryResponse, Status>>,
    }

    impl Client {
        fn connect(shared: &Arc<Shared>) -> Self {
            let (requests, mut said) = mpsc::unbounded_channel();
            let (tell, answers) = mpsc::channel(4);
            let said = futures::stream::poll_fn(move |context| said.poll_recv(context));
            tokio::spawn(hold::<StateOfTheWorld>(shared.clone(), None, said, tell));
            Self { requests, answers }
        }

        fn ask(&self, version: &str, nonce: &str) {
            let request = DiscoveryRequest {
                node: Some(Node { id: NODE.into(), ..Node::default() }),
                type_url: Kind::Cluster.type_url().into(),
                version_info: version.into(),
                response_nonce: nonce.into(),
                ..DiscoveryRequest::default()
            };
            self.requests.send(Ok(request)).unwrap();
        }

        async fn take(&mut self) -> String {
            self.ask("", "");
            let answer = self.answers.recv().await.unwrap().unwrap();
            self.ask(&answer.version_info, &answer.nonce);
            answer.version_info
        }
    }

    /// What all streams know, and who keeps them going.
    fn shared() -> (Arc<Shared>, watch::Sender<Option<Arc<Snapshot>>>) {
        let snapshot = Translator::default().snapshot(&RelayTable::default());
        let (told, newest) = watch::channel(Some(Arc::new(snapshot)));
        (Arc::new(Shared { newest, nodes: Nodes::Any, reports: Arc::default() }), told)
    }

    async fn wait_for(shared: &Shared, is_it: impl Fn(Option<Report>) -> bool) {
        let mut changes = shared.reports.changes();
        let wait = async {
            while !is_it(shared.reports.of(NODE)) {
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(REMEMBERED + PATIENCE, wait).await.expect("the report becomes what it should");
    }

    fn has_taken(report: Option<Report>) -> bool {
        report.is_some_and(|report| report.clusters.accepted.is_some())
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_gone_for_good_is_forgotten() {
        let (shared, _told) = shared();
        let mut client = Client::connect(&shared);
        client.take().await;
        wait_for(&shared, has_taken).await;
        drop(client);
        wait_for(&shared, |report| report.is_some_and(|report| report.streams == 0)).await;
        let gone = Instant::now();
        assert!(has_taken(shared.reports.of(NODE)), "not at once");
        wait_for(&shared, |report| report.is_none()).await;
        assert!(gone.elapsed() >= REMEMBERED / 2, "{:?}", gone.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_comes_back_with_what_it_took_has_had_it_all_along() {
        let (shared, _told) = shared();
        let mut client = Client::connect(&shared);
        let version = client.take().await;
        wait_for(&shared, has_taken).await;
        drop(client);
        tokio::time::sleep(REMEMBERED / 2).await;
        let client = Client::connect(&shared);
        client.ask(&version, "");
        let mut changes = shared.reports.changes();
        while shared.reports.of(NODE).unwrap().streams == 0 {
            changes.changed().await.unwrap();
        }
        let later = tokio::time::sleep(REMEMBERED * 2);
        tokio::pin!(later);
        loop {
            assert!(has_taken(shared.reports.of(NODE)), "it runs that");
            tokio::select! {
                () = &mut later => break,
                changed = changes.changed() => changed.unwrap(),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_process_of_the_same_name_has_taken_nothing() {
        let (shared, _told) = shared();
        let mut client = Client::connect(&shared);
        client.take().await;
        wait_for(&shared, has_taken).await;
        drop(client);
        let client = Client::connect(&shared);
        client.ask("", "");
        wait_for(&shared, |report| report.is_some_and(|report| report.clusters.accepted.is_none())).await;
    }
}
