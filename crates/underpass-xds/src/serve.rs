//! The gRPC services of xDS: all kinds on one stream (ADS), or one kind on each.
//!
//! Whoever can connect gets every configuration, so nobody from elsewhere can: on loopback only.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use envoy_types::pb::envoy::service::cluster::v3::cluster_discovery_service_server::{
    ClusterDiscoveryService, ClusterDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::envoy::service::endpoint::v3::endpoint_discovery_service_server::{
    EndpointDiscoveryService, EndpointDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::listener::v3::listener_discovery_service_server::{
    ListenerDiscoveryService, ListenerDiscoveryServiceServer,
};
use futures::Stream;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tonic::server::NamedService;
use tonic::{Request, Response, Status, Streaming};

use crate::conversation::{self, Shared};
use crate::dialect::{Changes, Dialect, StateOfTheWorld};
use crate::reports::Reports;
use crate::snapshot::{Kind, Newest};

/// Of all clients together.
const CONNECTIONS: usize = 256;
const STREAMS_PER_CONNECTION: u32 = 32;
/// A client asks for as many endpoints by name as there are clusters.
const REQUEST_BYTES: usize = 16 * 1024 * 1024;
/// Whoever is silent this long is asked whether it is still there, and has as long to answer.
const ALIVE_EVERY: Duration = Duration::from_secs(20);
/// Answers that wait for the client to read them.
const UNREAD: usize = 4;

/// Who is told anything, by the id that it calls itself.
#[derive(Clone, Debug)]
pub enum Nodes {
    Any,
    Only(Vec<String>),
}

/// The services, for as many listeners as there are.
#[derive(Clone)]
pub struct Server {
    services: Services,
    connections: Arc<Semaphore>,
}

impl Server {
    pub fn new(newest: Newest, nodes: Nodes, reports: Arc<Reports>) -> Self {
        let all = Topics { shared: Arc::new(Shared { newest, nodes, reports }) };
        Self {
            services: Services {
                aggregated: AggregatedDiscoveryServiceServer::new(all.clone()).max_decoding_message_size(REQUEST_BYTES),
                clusters: ClusterDiscoveryServiceServer::new(all.clone()).max_decoding_message_size(REQUEST_BYTES),
                endpoints: EndpointDiscoveryServiceServer::new(all.clone()).max_decoding_message_size(REQUEST_BYTES),
                listeners: ListenerDiscoveryServiceServer::new(all).max_decoding_message_size(REQUEST_BYTES),
            },
            connections: Arc::new(Semaphore::new(CONNECTIONS)),
        }
    }

    /// Loopback only.
    pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
        if !address.ip().is_loopback() {
            let text = format!("{address} could be reached from elsewhere; xDS is served on loopback only");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        TcpListener::bind(address).await
    }

    /// Serves until the future is dropped; connections then end with it.
    pub async fn serve(self, listener: TcpListener) {
        let accept = || async {
            let (socket, _) = listener.accept().await?;
            // The end of a large answer would wait 40 ms for an acknowledgement that the client's kernel puts off.
            socket.set_nodelay(true)?;
            io::Result::Ok(socket)
        };
        let mut connections = tokio::task::JoinSet::new();
        loop {
            // More than that many wait to be accepted.
            let Ok(permit) = self.connections.clone().acquire_owned().await else { return };
            tokio::select! {
                accepted = accept() => match accepted {
                    Ok(socket) => {
                        let services = self.services.clone();
                        connections.spawn(async move {
                            let _permit = permit;
                            connection(socket, services).await;
                        });
                    }
                    // Out of descriptors, mostly: others may go meanwhile.
                    Err(error) => {
                        tracing::warn!(%error, "a connection for xDS was not accepted");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

async fn connection(socket: TcpStream, services: Services) {
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .keep_alive_interval(ALIVE_EVERY)
        .keep_alive_timeout(ALIVE_EVERY)
        .max_concurrent_streams(STREAMS_PER_CONNECTION);
    let served = http.serve_connection(TokioIo::new(socket), TowerToHyperService::new(services)).await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection for xDS ended");
    }
}

#[derive(Clone)]
struct Services {
    aggregated: AggregatedDiscoveryServiceServer<Topics>,
    clusters: ClusterDiscoveryServiceServer<Topics>,
    endpoints: EndpointDiscoveryServiceServer<Topics>,
    listeners: ListenerDiscoveryServiceServer<Topics>,
}

type Answer = http::Response<tonic::body::Body>;

impl tower_service::Service<http::Request<hyper::body::Incoming>> for Services {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<hyper::body::Incoming>) -> Self::Future {
        let service = request.uri().path().split('/').nth(1).unwrap_or_default().to_owned();
        let request = request.map(tonic::body::Body::new);
        match service.as_str() {
            AggregatedDiscoveryServiceServer::<Topics>::NAME => self.aggregated.call(request),
            ClusterDiscoveryServiceServer::<Topics>::NAME => self.clusters.call(request),
            EndpointDiscoveryServiceServer::<Topics>::NAME => self.endpoints.call(request),
            ListenerDiscoveryServiceServer::<Topics>::NAME => self.listeners.call(request),
            _ => Box::pin(async { Ok(Status::unimplemented("there is no such service").into_http()) }),
        }
    }
}

/// Whatever is asked for.
#[derive(Clone)]
struct Topics {
    shared: Arc<Shared>,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Topics {
    #[allow(clippy::result_large_err, reason = "tonic's services want it so")]
    fn talk<D: Dialect>(
        &self,
        only: Option<Kind>,
        requests: Request<Streaming<D::Request>>,
    ) -> Result<Response<Answers<D::Response>>, Status> {
        let (answers, mut told) = mpsc::channel(UNREAD);
        let shared = self.shared.clone();
        tokio::spawn(conversation::hold::<D>(shared, only, requests.into_inner(), answers));
        Ok(Response::new(Box::pin(futures::stream::poll_fn(move |context| told.poll_recv(context)))))
    }
}

/// A service with a stream in each dialect, and a question without a stream that we do not answer.
macro_rules! service {
    ($service:ident, $kind:expr, $world:ident: $World:ident, $changes:ident: $Changes:ident $(, $fetch:ident)?) => {
        #[tonic::async_trait]
        impl $service for Topics {
            type $World = Answers<DiscoveryResponse>;
            type $Changes = Answers<DeltaDiscoveryResponse>;

            async fn $world(
                &self,
                requests: Request<Streaming<DiscoveryRequest>>,
            ) -> Result<Response<Self::$World>, Status> {
                self.talk::<StateOfTheWorld>($kind, requests)
            }

            async fn $changes(
                &self,
                requests: Request<Streaming<DeltaDiscoveryRequest>>,
            ) -> Result<Response<Self::$Changes>, Status> {
                self.talk::<Changes>($kind, requests)
            }
            $(
                async fn $fetch(&self, _: Request<DiscoveryRequest>) -> Result<Response<DiscoveryResponse>, Status> {
                    Err(Status::unimplemented("ask on a stream"))
                }
            )?
        }
    };
}

service!(
    AggregatedDiscoveryService, None,
    stream_aggregated_resources: StreamAggregatedResourcesStream,
    delta_aggregated_resources: DeltaAggregatedResourcesStream
);
service!(
    ClusterDiscoveryService, Some(Kind::Cluster),
    stream_clusters: StreamClustersStream, delta_clusters: DeltaClustersStream, fetch_clusters
);
service!(
    EndpointDiscoveryService, Some(Kind::Endpoints),
    stream_endpoints: StreamEndpointsStream, delta_endpoints: DeltaEndpointsStream, fetch_endpoints
);
service!(
    ListenerDiscoveryService, Some(Kind::Listener),
    stream_listeners: StreamListenersStream, delta_listeners: DeltaListenersStream, fetch_listeners
);
