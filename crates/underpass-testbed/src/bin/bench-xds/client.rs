//! A proxy as a control plane sees it: it asks for all clusters and listeners and for the endpoints of its clusters, on one stream, and
//! takes whatever it is told.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use http::uri::PathAndQuery;
use prost::Message;
use tokio::sync::mpsc;
use tonic::Streaming;
use tonic::transport::Channel;
use underpass_xds::Kind;

use crate::wire::{Answer, AsBytes, Dialect};

/// As an Envoy has it: what comes is bounded by nobody's reading.
const WINDOW: u32 = 64 << 20;

/// What a client waits for.
#[derive(Clone, Debug)]
pub(crate) enum Sign {
    /// So many resources of a kind, counted from the beginning.
    Count(Kind, usize),
    /// A resource in exactly these bytes.
    Body(Kind, Bytes),
    /// A resource in which this text stands.
    Text(Kind, String),
    /// A resource of this name.
    Named(Kind, String),
    /// No resource of this name any more.
    Gone(Kind, String),
}

/// How a client and whoever waits for it talk.
pub(crate) struct Desk {
    /// What is waited for next.
    pub(crate) orders: mpsc::UnboundedReceiver<Vec<Sign>>,
    /// When everything that was waited for had come and was acknowledged.
    pub(crate) done: mpsc::UnboundedSender<anyhow::Result<Instant>>,
    /// Of all messages that came.
    pub(crate) received: Arc<AtomicU64>,
}

pub(crate) struct Client {
    dialect: Dialect,
    node: String,
    requests: mpsc::UnboundedSender<Bytes>,
    clusters: BTreeSet<String>,
    /// The names of all clusters as part of a request; every request for endpoints in the dialect of the world has them.
    names: Bytes,
    /// What the newest answer about endpoints said.
    endpoints_at: (String, String),
    counts: [usize; 3],
    /// What has not come yet; None: nobody waits.
    waiting: Option<Vec<Sign>>,
}

impl Client {
    pub(crate) async fn run(dialect: Dialect, node: String, server: SocketAddr, mut desk: Desk) {
        if let Err(error) = Self::talk(dialect, node, server, &mut desk).await {
            let _ = desk.done.send(Err(error));
        }
    }

    async fn talk(dialect: Dialect, node: String, server: SocketAddr, desk: &mut Desk) -> anyhow::Result<()> {
        let (requests, mut queued) = mpsc::unbounded_channel();
        let mut client = Self {
            dialect,
            node,
            requests,
            clusters: BTreeSet::new(),
            names: Bytes::new(),
            endpoints_at: Default::default(),
            counts: [0; 3],
            waiting: None,
        };
        client.ask(Kind::Cluster)?;
        client.ask(Kind::Listener)?;
        let outgoing = futures::stream::poll_fn(move |context| queued.poll_recv(context));
        let mut answers = open(dialect, server, outgoing).await?;
        loop {
            tokio::select! {
                // An order is given before that happens which it waits for.
                biased;
                order = desk.orders.recv() => match order {
                    Some(signs) => client.waiting = Some(signs),
                    None => return Ok(()),
                },
                message = answers.message() => {
                    let message = message?.ok_or_else(|| anyhow::anyhow!("the control plane has ended the stream"))?;
                    desk.received.fetch_add(message.len() as u64, Ordering::Relaxed);
                    client.hear(&dialect.read(message)?)?;
                }
            }
            if client.has_seen_everything() {
                let _ = desk.done.send(Ok(Instant::now()));
            }
        }
    }

    /// The first question about a kind: everything.
    fn ask(&self, kind: Kind) -> anyhow::Result<()> {
        let (node, type_url) = (Some(Node { id: self.node.clone(), ..Node::default() }), kind.type_url().to_owned());
        self.say(match self.dialect {
            Dialect::Delta => {
                DeltaDiscoveryRequest { node, type_url, ..DeltaDiscoveryRequest::default() }.encode_to_vec()
            }
            Dialect::World => DiscoveryRequest { node, type_url, ..DiscoveryRequest::default() }.encode_to_vec(),
        })
    }

    fn hear(&mut self, answer: &Answer) -> anyhow::Result<()> {
        self.counts[answer.kind as usize] += answer.bodies.len();
        if answer.kind == Kind::Endpoints {
            self.endpoints_at = (answer.version.clone(), answer.nonce.clone());
        }
        self.accept(answer)?;
        if answer.kind == Kind::Cluster {
            self.follow_clusters(answer)?;
        }
        if let Some(waiting) = &mut self.waiting {
            waiting.retain(|sign| !sign.is_in(answer, self.dialect));
        }
        Ok(())
    }

    fn accept(&self, answer: &Answer) -> anyhow::Result<()> {
        let (type_url, response_nonce) = (answer.kind.type_url().to_owned(), answer.nonce.clone());
        match self.dialect {
            Dialect::Delta => self.say(
                DeltaDiscoveryRequest { type_url, response_nonce, ..DeltaDiscoveryRequest::default() }.encode_to_vec(),
            ),
            Dialect::World if answer.kind == Kind::Endpoints => self.ask_for_endpoints(),
            Dialect::World => {
                let version_info = answer.version.clone();
                let request =
                    DiscoveryRequest { type_url, response_nonce, version_info, ..DiscoveryRequest::default() };
                self.say(request.encode_to_vec())
            }
        }
    }

    /// Clusters that came or went have endpoints that are wanted from now on, or no more.
    fn follow_clusters(&mut self, answer: &Answer) -> anyhow::Result<()> {
        let named: BTreeSet<String> = answer.names()?.into_iter().collect();
        let (came, went): (Vec<String>, Vec<String>) = match self.dialect {
            Dialect::Delta => (named.difference(&self.clusters).cloned().collect(), answer.removed.clone()),
            Dialect::World => (
                named.difference(&self.clusters).cloned().collect(),
                self.clusters.difference(&named).cloned().collect(),
            ),
        };
        if came.is_empty() && went.is_empty() {
            return Ok(());
        }
        self.clusters.extend(came.iter().cloned());
        self.clusters.retain(|name| !went.contains(name));
        if self.dialect == Dialect::World {
            let resource_names = self.clusters.iter().cloned().collect();
            self.names = DiscoveryRequest { resource_names, ..DiscoveryRequest::default() }.encode_to_vec().into();
            return self.ask_for_endpoints();
        }
        let request = DeltaDiscoveryRequest {
            type_url: Kind::Endpoints.type_url().to_owned(),
            resource_names_subscribe: came,
            resource_names_unsubscribe: went,
            ..DeltaDiscoveryRequest::default()
        };
        self.say(request.encode_to_vec())
    }

    /// In the dialect of the world: each request repeats all names. A message that follows another is one with the fields of both.
    fn ask_for_endpoints(&self) -> anyhow::Result<()> {
        let (version_info, response_nonce) = self.endpoints_at.clone();
        let type_url = Kind::Endpoints.type_url().to_owned();
        let request = DiscoveryRequest { version_info, response_nonce, type_url, ..DiscoveryRequest::default() };
        let mut message = BytesMut::from(request.encode_to_vec().as_slice());
        message.extend_from_slice(&self.names);
        self.say(message)
    }

    fn say(&self, message: impl Into<Bytes>) -> anyhow::Result<()> {
        self.requests.send(message.into()).map_err(|_| anyhow::anyhow!("the stream is closed"))
    }

    /// Whether the last of what is waited for has just come.
    fn has_seen_everything(&mut self) -> bool {
        let Some(waiting) = &self.waiting else { return false };
        let seen = waiting.iter().all(|sign| match sign {
            Sign::Count(kind, count) => self.counts[*kind as usize] >= *count,
            _ => false,
        });
        if seen {
            self.waiting = None;
        }
        seen
    }
}

impl Sign {
    fn is_in(&self, answer: &Answer, dialect: Dialect) -> bool {
        match self {
            Self::Count(..) => false,
            Self::Body(kind, body) => *kind == answer.kind && answer.bodies.contains(body),
            Self::Text(kind, text) => {
                let has_it = |body: &Bytes| body.windows(text.len()).any(|part| part == text.as_bytes());
                *kind == answer.kind && answer.bodies.iter().any(has_it)
            }
            Self::Named(kind, name) => *kind == answer.kind && answer.has(name),
            Self::Gone(kind, name) => {
                *kind == answer.kind
                    && match dialect {
                        Dialect::Delta => answer.removed.contains(name),
                        Dialect::World => !answer.has(name),
                    }
            }
        }
    }
}

async fn open(
    dialect: Dialect,
    server: SocketAddr,
    outgoing: impl futures::Stream<Item = Bytes> + Send + 'static,
) -> anyhow::Result<Streaming<Bytes>> {
    let endpoint = Channel::from_shared(format!("http://{server}"))?;
    let channel = endpoint.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW).connect().await?;
    let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(usize::MAX);
    grpc.ready().await?;
    let method = PathAndQuery::from_static(dialect.method());
    Ok(grpc.streaming(tonic::Request::new(outgoing), method, AsBytes).await?.into_inner())
}
