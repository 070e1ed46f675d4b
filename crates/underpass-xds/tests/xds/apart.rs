//! A stream for each kind.

use envoy_types::pb::envoy::service::cluster::v3::cluster_discovery_service_client::ClusterDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use envoy_types::pb::envoy::service::endpoint::v3::endpoint_discovery_service_client::EndpointDiscoveryServiceClient;
use envoy_types::pb::envoy::service::listener::v3::listener_discovery_service_client::ListenerDiscoveryServiceClient;
use underpass_xds::Kind;

use crate::Site;
use crate::client::{Changes, World, channel, requests};

#[tokio::test]
async fn each_kind_has_a_service_of_its_own() {
    let site = Site::new(&["a"]).await;
    let channel = channel(&site).await;
    // What is asked for need not be said there.
    let ask = |names: &[&str]| DiscoveryRequest {
        type_url: String::new(),
        resource_names: names.iter().map(ToString::to_string).collect(),
        ..World::about(Kind::Cluster)
    };
    let (send, stream) = requests();
    send.send(ask(&[])).unwrap();
    let clusters = ClusterDiscoveryServiceClient::new(channel.clone()).stream_clusters(stream).await.unwrap();
    assert_eq!(clusters.into_inner().message().await.unwrap().unwrap().resources.len(), 1);
    let (send, stream) = requests();
    send.send(ask(&["a"])).unwrap();
    let endpoints = EndpointDiscoveryServiceClient::new(channel.clone()).stream_endpoints(stream).await.unwrap();
    assert_eq!(endpoints.into_inner().message().await.unwrap().unwrap().type_url, Kind::Endpoints.type_url());
    let (send, stream) = requests();
    send.send(Changes::about(Kind::Listener)).unwrap();
    let listeners = ListenerDiscoveryServiceClient::new(channel.clone()).delta_listeners(stream).await.unwrap();
    assert_eq!(listeners.into_inner().message().await.unwrap().unwrap().resources[0].name, "edge-listener-443");
    let (send, stream) = requests();
    send.send(World::about(Kind::Listener)).unwrap();
    let wrong = ClusterDiscoveryServiceClient::new(channel.clone()).stream_clusters(stream).await.unwrap();
    let refused = wrong.into_inner().message().await.unwrap_err();
    assert!(refused.message().contains("only type.googleapis.com/envoy.config.cluster.v3.Cluster"), "{refused}");
    let fetched = ClusterDiscoveryServiceClient::new(channel).fetch_clusters(ask(&[])).await.unwrap_err();
    assert_eq!(fetched.message(), "ask on a stream");
}
