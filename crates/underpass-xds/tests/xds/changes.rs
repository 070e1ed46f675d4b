//! Changes to the world: an answer holds what is new and names what is gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use prost::Message;
use underpass_tables::Route;
use underpass_xds::Kind;

use crate::client::{Changes, refusal};
use crate::{NODE, Site, table};

/// `+new -gone`.
fn said(answer: &DeltaDiscoveryResponse) -> String {
    let new = answer.resources.iter().map(|resource| format!("+{}", resource.name));
    let gone = answer.removed_resources.iter().map(|name| format!("-{name}"));
    new.chain(gone).collect::<Vec<_>>().join(" ")
}

/// What a client has of it, as it says so when it comes back.
fn versions(answer: &DeltaDiscoveryResponse) -> HashMap<String, String> {
    answer.resources.iter().map(|resource| (resource.name.clone(), resource.version.clone())).collect()
}

/// Everything of the table, taken.
async fn settled(site: &Site, names: &[&str]) -> Changes {
    let mut changes = Changes::open(site).await;
    changes.subscribe(Kind::Cluster, &[]);
    changes.subscribe(Kind::Listener, &[]);
    let clusters = changes.hear().await;
    changes.subscribe(Kind::Endpoints, names);
    let endpoints = changes.hear().await;
    changes.accept(&clusters);
    changes.accept(&endpoints);
    let listeners = changes.hear().await;
    assert_eq!(listeners.type_url, Kind::Listener.type_url());
    changes.accept(&listeners);
    changes
}

#[tokio::test]
async fn only_what_changed_is_told_however_much_there_is() {
    let names: Vec<String> = (0..10_000).map(|number| format!("backend-{number:05}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut site = Site::new(&names).await;
    let mut changes = settled(&site, &names).await;
    site.put(&table(names.iter().enumerate().map(|(number, name)| (*name, if number == 7 { 2 } else { 1 }))));
    let told = changes.hear().await;
    assert_eq!(said(&told), "+backend-00007");
    assert!(told.encoded_len() < 512, "{} bytes", told.encoded_len());
}

#[tokio::test]
async fn what_is_gone_is_named_after_the_listeners_know() {
    let mut site = Site::new(&["a", "b"]).await;
    let mut changes = settled(&site, &["a", "b"]).await;
    site.change(&["a"]);
    let listener = changes.hear().await;
    assert_eq!(said(&listener), "+edge-listener-443");
    changes.accept(&listener);
    let clusters = changes.hear().await;
    assert_eq!((clusters.type_url.as_str(), said(&clusters).as_str()), (Kind::Cluster.type_url(), "-b"));
}

/// Of a cluster that it took it waits for the endpoints, which are what they were.
#[tokio::test]
async fn a_client_that_left_between_a_cluster_and_its_endpoints_is_told_the_endpoints() {
    let mut site = Site::new(&["a", "b"]).await;
    let mut table = table([("a", 1), ("b", 1)].into_iter());
    let mut changes = Changes::open(&site).await;
    changes.subscribe(Kind::Cluster, &[]);
    let mut clusters = versions(&changes.hear().await);
    changes.subscribe(Kind::Endpoints, &["a", "b"]);
    let endpoints = versions(&changes.hear().await);
    drop(changes);
    table.routes[0] = Arc::new(Route { connect_timeout: Duration::from_secs(7), ..(*table.routes[0]).clone() });
    site.put(&table);
    let mut changes = Changes::open(&site).await;
    changes.say(DeltaDiscoveryRequest { initial_resource_versions: clusters.clone(), ..Changes::about(Kind::Cluster) });
    let news = changes.hear().await;
    assert_eq!(said(&news), "+a");
    clusters.extend(versions(&news));
    drop(changes);
    let mut changes = Changes::open(&site).await;
    changes.say(DeltaDiscoveryRequest { initial_resource_versions: clusters, ..Changes::about(Kind::Cluster) });
    changes.say(DeltaDiscoveryRequest {
        resource_names_subscribe: vec!["a".into(), "b".into()],
        initial_resource_versions: endpoints,
        ..Changes::about(Kind::Endpoints)
    });
    let told = changes.hear().await;
    assert_eq!((told.type_url.as_str(), said(&told).as_str()), (Kind::Endpoints.type_url(), "+a"));
}

#[tokio::test]
async fn a_client_that_comes_back_is_told_the_difference() {
    let mut site = Site::new(&["a", "b", "c"]).await;
    let first = {
        let mut changes = Changes::open(&site).await;
        changes.subscribe(Kind::Cluster, &[]);
        changes.hear().await
    };
    let again = DeltaDiscoveryRequest { initial_resource_versions: versions(&first), ..Changes::about(Kind::Cluster) };
    let mut changes = Changes::open(&site).await;
    changes.say(again.clone());
    changes.hear_nothing().await;
    site.change(&["b", "c", "d"]);
    let mut changes = Changes::open(&site).await;
    changes.say(again);
    let news = changes.hear().await;
    assert_eq!(said(&news), "+d", "its listener may lead to a");
    changes.accept(&news);
    changes.subscribe(Kind::Endpoints, &["b", "c", "d"]);
    let endpoints = changes.hear().await;
    changes.accept(&endpoints);
    changes.subscribe(Kind::Listener, &[]);
    let listeners = changes.hear().await;
    assert_eq!(said(&listeners), "+edge-listener-443");
    changes.accept(&listeners);
    let gone = changes.hear().await;
    assert_eq!((gone.type_url.as_str(), said(&gone).as_str()), (Kind::Cluster.type_url(), "-a"));
}

#[tokio::test]
async fn subscriptions_come_and_go_one_by_one() {
    let site = Site::new(&["a", "b"]).await;
    let mut changes = Changes::open(&site).await;
    changes.subscribe(Kind::Endpoints, &["a"]);
    let first = changes.hear().await;
    assert_eq!(said(&first), "+a");
    changes.accept(&first);
    changes.subscribe(Kind::Endpoints, &["b"]);
    let second = changes.hear().await;
    assert_eq!(said(&second), "+b");
    changes.accept(&second);
    changes.unsubscribe(Kind::Endpoints, &["a"]);
    changes.hear_nothing().await;
    changes.subscribe(Kind::Endpoints, &["a", "nobody"]);
    let third = changes.hear().await;
    assert_eq!(said(&third), "+a -nobody");
    changes.accept(&third);
    changes.subscribe(Kind::Endpoints, &["b"]);
    assert_eq!(said(&changes.hear().await), "+b", "whoever asks again is told again");
}

#[tokio::test]
async fn everything_can_be_asked_for_by_a_star_and_given_up() {
    let mut site = Site::new(&["a", "b"]).await;
    let mut changes = Changes::open(&site).await;
    changes.subscribe(Kind::Cluster, &["*", "a"]);
    let first = changes.hear().await;
    assert_eq!(said(&first), "+a +b");
    changes.accept(&first);
    changes.unsubscribe(Kind::Cluster, &["*"]);
    // Its answer shows that what was said before was heard.
    changes.subscribe(Kind::Cluster, &["a"]);
    let second = changes.hear().await;
    assert_eq!(said(&second), "+a");
    changes.accept(&second);
    site.change(&["a", "b", "c"]);
    changes.hear_nothing().await;
}

/// As old clients do it: nothing is named in the first question, and names that come later are asked for besides.
#[tokio::test]
async fn whoever_names_nothing_at_first_asks_for_everything_until_it_is_given_up() {
    let mut site = Site::new(&["a", "b"]).await;
    let mut changes = Changes::open(&site).await;
    changes.subscribe(Kind::Cluster, &[]);
    let first = changes.hear().await;
    assert_eq!(said(&first), "+a +b");
    changes.accept(&first);
    changes.subscribe(Kind::Cluster, &["a"]);
    let second = changes.hear().await;
    assert_eq!(said(&second), "+a", "whoever asks by name is told, even again");
    changes.accept(&second);
    site.change(&["a", "b", "c"]);
    let third = changes.hear().await;
    assert_eq!(said(&third), "+c", "everything is still asked for");
    changes.accept(&third);
    changes.unsubscribe(Kind::Cluster, &["*"]);
    // Its answer shows that what was said before was heard.
    changes.subscribe(Kind::Cluster, &["a"]);
    let fourth = changes.hear().await;
    assert_eq!(said(&fourth), "+a");
    changes.accept(&fourth);
    site.change(&["a", "d"]);
    changes.hear_nothing().await;
}

#[tokio::test]
async fn a_name_that_is_given_up_beside_everything_is_told_once_more() {
    let site = Site::new(&["a", "b"]).await;
    let mut changes = Changes::open(&site).await;
    changes.subscribe(Kind::Cluster, &["*", "a", "nobody"]);
    let first = changes.hear().await;
    assert_eq!(said(&first), "+a +b -nobody");
    changes.accept(&first);
    changes.unsubscribe(Kind::Cluster, &["a", "nobody"]);
    assert_eq!(said(&changes.hear().await), "+a -nobody", "else it could not know whether everything has them");
}

/// What is asked for counts, whatever else a request is about: nothing repeats it.
#[tokio::test]
async fn a_question_that_answers_something_older_is_answered() {
    let site = Site::new(&["a", "b"]).await;
    let mut changes = Changes::open(&site).await;
    changes.subscribe(Kind::Endpoints, &["a"]);
    let first = changes.hear().await;
    changes.accept(&first);
    changes.say(DeltaDiscoveryRequest {
        response_nonce: "of long ago".into(),
        resource_names_subscribe: vec!["b".into()],
        ..Changes::about(Kind::Endpoints)
    });
    assert_eq!(said(&changes.hear().await), "+b");
}

fn refuse(changes: &Changes, answer: &DeltaDiscoveryResponse) {
    changes.say(DeltaDiscoveryRequest {
        response_nonce: answer.nonce.clone(),
        error_detail: refusal("no such thing"),
        ..Changes::about(Kind::Cluster)
    });
}

#[tokio::test]
async fn what_is_refused_is_reported_until_it_is_taken() {
    let mut site = Site::new(&["a"]).await;
    let rejected = |site: &Site| site.reports.of(NODE).unwrap().clusters.rejected.map(|rejected| rejected.reason);
    let mut changes = Changes::open(&site).await;
    changes.subscribe(Kind::Cluster, &[]);
    let first = changes.hear().await;
    refuse(&changes, &first);
    changes.hear_nothing().await;
    assert_eq!(rejected(&site).as_deref(), Some("no such thing"));
    site.change(&["a", "b"]);
    let second = changes.hear().await;
    assert_eq!(said(&second), "+a +b", "an answer to b alone would say nothing of a");
    refuse(&changes, &second);
    site.change(&["b"]);
    let third = changes.hear().await;
    assert_eq!(said(&third), "+b -a");
    assert_eq!(rejected(&site).as_deref(), Some("no such thing"));
    changes.accept(&third);
    changes.hear_nothing().await;
    assert_eq!(rejected(&site), None);
}

/// What it refused was taken back while it was away.
#[tokio::test]
async fn what_a_client_refused_is_forgotten_when_it_comes_back_with_everything() {
    let mut site = Site::new(&["a"]).await;
    let mut changes = Changes::open(&site).await;
    changes.subscribe(Kind::Cluster, &[]);
    let first = changes.hear().await;
    changes.accept(&first);
    site.change(&["a", "b"]);
    let second = changes.hear().await;
    refuse(&changes, &second);
    changes.hear_nothing().await;
    assert_eq!(site.reports.of(NODE).unwrap().refusal(), Some("no such thing"));
    drop(changes);
    site.change(&["a"]);
    let mut changes = Changes::open(&site).await;
    changes.say(DeltaDiscoveryRequest { initial_resource_versions: versions(&first), ..Changes::about(Kind::Cluster) });
    changes.hear_nothing().await;
    let report = site.reports.of(NODE).unwrap();
    assert_eq!(report.refusal(), None);
    assert_eq!(report.clusters.accepted.as_deref(), Some(first.system_version_info.as_str()));
}

fn mentions(answer: &DeltaDiscoveryResponse, name: &str) -> bool {
    answer.encode_to_vec().windows(name.len()).any(|bytes| bytes == name.as_bytes())
}

/// Of the same edit: another target and another name. Who comes by the old name is not led to the new target at any moment.
#[tokio::test]
async fn who_moves_and_is_renamed_is_led_to_by_nobody_in_between() {
    let mut site = Site::new(&["a", "b"]).await;
    let mut changes = settled(&site, &["a", "b"]).await;
    let mut moved = table([("new", 2), ("b", 1)].into_iter());
    moved.routes[0] = Arc::new(Route { name: "a".into(), ..(*moved.routes[0]).clone() });
    site.put(&moved);
    let between = changes.hear().await;
    assert_eq!(said(&between), "+edge-listener-443", "listeners come first");
    let names = ["a.example.com", "new.example.com", "b.example.com"];
    assert_eq!(names.map(|name| mentions(&between, name)), [false, false, true]);
    changes.hear_nothing().await;
    changes.accept(&between);
    site.says_everything().await;
    let endpoints = changes.hear().await;
    assert_eq!(said(&endpoints), "+a");
    changes.accept(&endpoints);
    let listener = changes.hear().await;
    assert_eq!(names.map(|name| mentions(&listener, name)), [false, true, true]);
}

/// Then the configuration before stays, and something newer is heard of all the same.
#[tokio::test]
async fn where_the_listener_is_refused_nothing_moves_until_something_newer_is_said() {
    let mut site = Site::new(&["a", "b"]).await;
    let mut changes = settled(&site, &["a", "b"]).await;
    site.is_in_force().await;
    let moved = |port| {
        let mut moved = table([("new", 2), ("b", port)].into_iter());
        moved.routes[0] = Arc::new(Route { name: "a".into(), ..(*moved.routes[0]).clone() });
        moved
    };
    site.put(&moved(1));
    let between = changes.hear().await;
    changes.say(DeltaDiscoveryRequest {
        response_nonce: between.nonce.clone(),
        error_detail: refusal("no"),
        ..Changes::about(Kind::Listener)
    });
    let mut answers = site.reports.changes();
    while site.reports.of(NODE).is_none_or(|report| report.refusal().is_none()) {
        answers.changed().await.unwrap();
    }
    site.publisher.go_on(&site.reports);
    assert!(site.publisher.newest().is_none(), "it is refused");
    site.put(&moved(3));
    let heard = changes.hear().await;
    assert_eq!(said(&heard), "+b", "what moved stays where it was");
}
