//! The state of the world: every answer holds everything of its kind, but for endpoints.

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use prost::Message;
use underpass_xds::Kind;

use crate::client::{World, node, refusal};
use crate::{NODE, Site, table};

fn clusters(answer: &DiscoveryResponse) -> Vec<String> {
    assert_eq!(answer.type_url, Kind::Cluster.type_url());
    answer.resources.iter().map(|body| Cluster::decode(&*body.value).unwrap().name).collect()
}

fn endpoints(answer: &DiscoveryResponse) -> Vec<String> {
    assert_eq!(answer.type_url, Kind::Endpoints.type_url());
    answer.resources.iter().map(|body| ClusterLoadAssignment::decode(&*body.value).unwrap().cluster_name).collect()
}

#[tokio::test]
async fn a_change_is_told_in_order_and_everything_that_is_left_is_in_it() {
    let mut site = Site::new(&["a", "b"]).await;
    let mut world = World::open(&site).await;
    world.settle(&["a", "b"]).await;
    site.change(&["b", "c"]);
    let more = world.hear().await;
    assert_eq!(clusters(&more), ["a", "b", "c"], "the listener still leads to a");
    world.accept(&more, &[]);
    world.say(DiscoveryRequest {
        resource_names: ["a", "b", "c"].map(String::from).into(),
        ..World::about(Kind::Endpoints)
    });
    let news = world.hear().await;
    assert_eq!(endpoints(&news), ["c"], "the others are as they were");
    world.accept(&news, &["a", "b", "c"]);
    let listeners = world.hear().await;
    assert_eq!(listeners.type_url, Kind::Listener.type_url());
    world.accept(&listeners, &[]);
    assert_eq!(clusters(&world.hear().await), ["b", "c"]);
}

#[tokio::test]
async fn what_is_refused_is_reported_and_not_repeated_until_it_changes() {
    let mut site = Site::new(&["a"]).await;
    let mut world = World::open(&site).await;
    world.ask(Kind::Cluster, &[]);
    let first = world.hear().await;
    world.say(DiscoveryRequest {
        response_nonce: first.nonce.clone(),
        error_detail: refusal("no such thing"),
        ..World::about(Kind::Cluster)
    });
    world.hear_nothing().await;
    let report = site.reports.of(NODE).unwrap();
    let rejected = report.clusters.rejected.unwrap();
    assert_eq!((&*rejected.version, rejected.reason.as_str()), (first.version_info.as_str(), "no such thing"));
    site.change(&["a", "b"]);
    let second = world.hear().await;
    assert_eq!(clusters(&second), ["a", "b"]);
    world.accept(&second, &[]);
    world.hear_nothing().await;
    let report = site.reports.of(NODE).unwrap();
    assert_eq!((report.streams, report.clusters.rejected), (1, None));
    assert_eq!(report.clusters.accepted.as_deref(), Some(second.version_info.as_str()));
}

/// As an Envoy does it, which says the newest nonce with everything.
#[tokio::test]
async fn more_can_be_asked_for_after_an_answer_was_taken() {
    let mut site = Site::new(&["a"]).await;
    let mut world = World::open(&site).await;
    world.settle(&["a"]).await;
    site.put(&table([("a", 2)].into_iter()));
    let endpoints_of_a = world.hear().await;
    world.accept(&endpoints_of_a, &["a"]);
    site.put(&table([("a", 2), ("b", 1)].into_iter()));
    let more = world.hear().await;
    assert_eq!(clusters(&more), ["a", "b"]);
    world.accept(&more, &[]);
    world.accept(&endpoints_of_a, &["a", "b"]);
    assert_eq!(endpoints(&world.hear().await), ["b"]);
}

#[tokio::test]
async fn an_answer_to_something_older_changes_nothing() {
    let mut site = Site::new(&["a"]).await;
    let mut world = World::open(&site).await;
    world.ask(Kind::Cluster, &[]);
    let first = world.hear().await;
    world.accept(&first, &[]);
    site.change(&["a", "b"]);
    let second = world.hear().await;
    world.accept(&first, &["nobody"]);
    site.change(&["a", "b", "c"]);
    world.hear_nothing().await;
    world.accept(&second, &[]);
    assert_eq!(clusters(&world.hear().await), ["a", "b", "c"], "still everything is asked for");
}

#[tokio::test]
async fn a_client_that_comes_back_with_what_it_would_get_is_told_nothing() {
    let mut site = Site::new(&["a"]).await;
    let mut world = World::open(&site).await;
    world.ask(Kind::Cluster, &[]);
    let first = world.hear().await;
    drop(world);
    // Another process, which makes the same of the same.
    site = Site::new(&["a"]).await;
    let mut world = World::open(&site).await;
    world.say(DiscoveryRequest { version_info: first.version_info.clone(), ..World::about(Kind::Cluster) });
    world.hear_nothing().await;
    site.change(&["a", "b"]);
    assert_eq!(clusters(&world.hear().await), ["a", "b"]);
}

/// A version says of which state of the world it is, and not what of it somebody had.
#[tokio::test]
async fn a_client_that_comes_back_and_asks_for_more_is_told_more() {
    let site = Site::new(&["a", "b"]).await;
    for (kind, told) in [(Kind::Cluster, clusters as fn(&_) -> _), (Kind::Endpoints, endpoints)] {
        let mut version = String::new();
        for (names, is_news) in [(&["a"][..], true), (&["a", "b"], true), (&["a", "b"], false)] {
            let mut world = World::open(&site).await;
            let resource_names = names.iter().map(ToString::to_string).collect();
            world.say(DiscoveryRequest { version_info: version.clone(), resource_names, ..World::about(kind) });
            if is_news {
                let answer = world.hear().await;
                assert_eq!(told(&answer), names);
                version = answer.version_info;
            } else {
                world.hear_nothing().await;
            }
        }
    }
}

#[tokio::test]
async fn only_what_is_asked_for_by_name_is_told() {
    let site = Site::new(&["a", "b"]).await;
    let mut world = World::open(&site).await;
    world.ask(Kind::Cluster, &["b", "nobody"]);
    let first = world.hear().await;
    assert_eq!(clusters(&first), ["b"]);
    world.accept(&first, &["a", "b"]);
    assert_eq!(clusters(&world.hear().await), ["a", "b"]);
}

#[tokio::test]
async fn what_is_asked_for_no_more_is_not_told_and_nothing_is_not_everything() {
    let mut site = Site::new(&["a", "b"]).await;
    let mut world = World::open(&site).await;
    world.ask(Kind::Cluster, &[]);
    let first = world.hear().await;
    assert_eq!(clusters(&first), ["a", "b"]);
    world.accept(&first, &["a"]);
    let second = world.hear().await;
    assert_eq!(clusters(&second), ["a"]);
    world.accept(&second, &[]);
    site.change(&["a", "b", "c"]);
    world.hear_nothing().await;
    world.accept(&second, &["*"]);
    assert_eq!(clusters(&world.hear().await), ["a", "b", "c"]);
}

#[tokio::test]
async fn endpoints_that_change_are_told_alone() {
    let mut site = Site::new(&["a", "b"]).await;
    let mut world = World::open(&site).await;
    world.settle(&["a", "b"]).await;
    site.put(&table([("a", 1), ("b", 2)].into_iter()));
    assert_eq!(endpoints(&world.hear().await), ["b"]);
}

#[tokio::test]
async fn whoever_comes_before_there_is_anything_to_tell_waits() {
    let mut site = Site::empty().await;
    let mut world = World::open(&site).await;
    world.ask(Kind::Cluster, &[]);
    world.hear_nothing().await;
    site.change(&["a"]);
    assert_eq!(clusters(&world.hear().await), ["a"]);
}

#[tokio::test]
async fn kinds_that_we_never_have_are_answered_with_nothing() {
    let site = Site::new(&["a"]).await;
    let mut world = World::open(&site).await;
    let secrets = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
    world.say(DiscoveryRequest { type_url: secrets.into(), node: node("edge"), ..DiscoveryRequest::default() });
    let answer = world.hear().await;
    assert_eq!((answer.type_url.as_str(), answer.resources.len()), (secrets, 0));
}

#[tokio::test]
async fn others_are_told_nothing() {
    let site = Site::new(&["a"]).await;
    for (id, reason) in [("clusters/other", "for clusters/edge or edge alone"), ("", "node.id")] {
        let mut world = World::open(&site).await;
        world.say(DiscoveryRequest { node: node(id), ..World::about(Kind::Cluster) });
        let refused = world.hear_refusal().await;
        assert!(refused.message().contains(reason), "{refused}");
    }
}

#[tokio::test]
async fn ten_thousand_backends_are_told_in_one_answer() {
    let mut site = Site::empty().await;
    let names: Vec<String> = (0..10_000).map(|number| format!("backend-{number:05}")).collect();
    site.put(&table(names.iter().map(|name| (name.as_str(), 1))));
    let mut world = World::open(&site).await;
    world.ask(Kind::Cluster, &[]);
    assert_eq!(clusters(&world.hear().await), names);
}
