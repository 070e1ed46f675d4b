//! A client that says what it is told to say.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::google::rpc::Status as Refusal;
use futures::StreamExt;
use tokio::sync::mpsc;
use tonic::transport::Channel;
use tonic::{Status, Streaming};
use underpass_xds::Kind;

use crate::{NODE, Site};

/// Long enough for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// That nothing comes is only seen by waiting.
const SILENCE: Duration = Duration::from_millis(300);

pub(crate) struct Talk<Request, Response> {
    requests: mpsc::UnboundedSender<Request>,
    answers: Streaming<Response>,
}

pub(crate) type World = Talk<DiscoveryRequest, DiscoveryResponse>;
pub(crate) type Changes = Talk<DeltaDiscoveryRequest, DeltaDiscoveryResponse>;

pub(crate) async fn channel(site: &Site) -> Channel {
    Channel::from_shared(format!("http://{}", site.address)).unwrap().connect().await.unwrap()
}

pub(crate) fn node(id: &str) -> Option<Node> {
    Some(Node { id: id.into(), ..Node::default() })
}

pub(crate) fn refusal(text: &str) -> Option<Refusal> {
    Some(Refusal { code: 13, message: text.into(), ..Refusal::default() })
}

pub(crate) fn requests<T: Send + 'static>() -> (mpsc::UnboundedSender<T>, impl futures::Stream<Item = T>) {
    let (send, mut receive) = mpsc::unbounded_channel();
    (send, futures::stream::poll_fn(move |context| receive.poll_recv(context)))
}

impl World {
    pub(crate) async fn open(site: &Site) -> Self {
        let (send, stream) = requests();
        let mut client = AggregatedDiscoveryServiceClient::new(channel(site).await);
        let answers = client.stream_aggregated_resources(stream).await.unwrap().into_inner();
        Self::new(send, answers)
    }

    /// The first question about a kind.
    pub(crate) fn ask(&self, kind: Kind, names: &[&str]) {
        self.say(DiscoveryRequest { resource_names: owned(names), ..Self::about(kind) });
    }

    pub(crate) fn about(kind: Kind) -> DiscoveryRequest {
        DiscoveryRequest { node: node(NODE), type_url: kind.type_url().into(), ..DiscoveryRequest::default() }
    }

    /// Takes an answer, and asks for these from now on.
    pub(crate) fn accept(&self, answer: &DiscoveryResponse, names: &[&str]) {
        self.say(DiscoveryRequest {
            version_info: answer.version_info.clone(),
            response_nonce: answer.nonce.clone(),
            type_url: answer.type_url.clone(),
            resource_names: owned(names),
            ..DiscoveryRequest::default()
        });
    }

    /// Asks for clusters, endpoints and listeners, and takes all of them.
    pub(crate) async fn settle(&mut self, names: &[&str]) {
        self.ask(Kind::Cluster, &[]);
        self.ask(Kind::Listener, &[]);
        let clusters = self.hear().await;
        self.accept(&clusters, &[]);
        self.ask(Kind::Endpoints, names);
        let endpoints = self.hear().await;
        self.accept(&endpoints, names);
        let listeners = self.hear().await;
        assert_eq!(listeners.type_url, Kind::Listener.type_url());
        self.accept(&listeners, &[]);
    }
}

impl Changes {
    pub(crate) async fn open(site: &Site) -> Self {
        let (send, stream) = requests();
        let mut client = AggregatedDiscoveryServiceClient::new(channel(site).await);
        let answers = client.delta_aggregated_resources(stream).await.unwrap().into_inner();
        Self::new(send, answers)
    }

    pub(crate) fn about(kind: Kind) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest { node: node(NODE), type_url: kind.type_url().into(), ..DeltaDiscoveryRequest::default() }
    }

    pub(crate) fn subscribe(&self, kind: Kind, names: &[&str]) {
        self.say(DeltaDiscoveryRequest { resource_names_subscribe: owned(names), ..Self::about(kind) });
    }

    pub(crate) fn unsubscribe(&self, kind: Kind, names: &[&str]) {
        self.say(DeltaDiscoveryRequest { resource_names_unsubscribe: owned(names), ..Self::about(kind) });
    }

    pub(crate) fn accept(&self, answer: &DeltaDiscoveryResponse) {
        self.say(DeltaDiscoveryRequest {
            response_nonce: answer.nonce.clone(),
            type_url: answer.type_url.clone(),
            ..DeltaDiscoveryRequest::default()
        });
    }
}

impl<Request, Response> Talk<Request, Response> {
    fn new(requests: mpsc::UnboundedSender<Request>, answers: Streaming<Response>) -> Self {
        Self { requests, answers }
    }

    pub(crate) fn say(&self, request: Request) {
        assert!(self.requests.send(request).is_ok(), "the stream is open");
    }

    pub(crate) async fn hear(&mut self) -> Response {
        self.next().await.expect("an answer")
    }

    pub(crate) async fn hear_refusal(&mut self) -> Status {
        self.next().await.err().expect("the stream ends with a reason")
    }

    pub(crate) async fn hear_nothing(&mut self) {
        let heard = tokio::time::timeout(SILENCE, self.answers.next()).await;
        assert!(heard.is_err(), "something was said");
    }

    async fn next(&mut self) -> Result<Response, Status> {
        let next = tokio::time::timeout(PATIENCE, self.answers.next()).await.expect("something is said in time");
        next.expect("the stream goes on")
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}
