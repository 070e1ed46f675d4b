//! Watchers and reflectors of kube-rs: however the first list is fetched, the mirror equals what the server holds.

use std::collections::BTreeMap;
use std::fmt::Debug;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{NAMESPACE, config_map, config_maps, create, gateway, gateways, soon, until, value};

/// Follows `api` in the background, until the test's runtime ends.
fn mirror<K>(api: Api<K>, config: watcher::Config) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let stream = watcher(api, config).default_backoff().reflect(writer).for_each(|_| std::future::ready(()));
    tokio::spawn(stream);
    store
}

fn mirrored(store: &Store<ConfigMap>) -> BTreeMap<String, String> {
    store.state().iter().map(|object| (object.name_any(), value_or_empty(object))).collect()
}

fn value_or_empty(object: &ConfigMap) -> String {
    object.data.as_ref().and_then(|data| data.get("v")).cloned().unwrap_or_default()
}

async fn held(api: &Api<ConfigMap>) -> BTreeMap<String, String> {
    let list = api.list(&ListParams::default()).await.unwrap();
    list.iter().map(|object| (object.name_any(), value_or_empty(object))).collect()
}

async fn a_mirror_follows(config: watcher::Config) {
    let server = crate::up();
    let client = server.client().await;
    let api = config_maps(&client);
    for number in 0..25 {
        create(&api, &format!("c{number:02}"), "first").await;
    }
    let store = mirror(api.clone(), config);
    soon("the first list", store.wait_until_ready()).await.unwrap();
    assert_eq!(mirrored(&store), held(&api).await);

    create(&api, "late", "first").await;
    for number in 0..10 {
        api.replace(&format!("c{number:02}"), &PostParams::default(), &config_map(&format!("c{number:02}"), "second"))
            .await
            .unwrap();
    }
    for number in 20..25 {
        api.delete(&format!("c{number:02}"), &DeleteParams::default()).await.unwrap();
    }
    let expected = held(&api).await;
    until("the mirror to follow", || std::future::ready(mirrored(&store) == expected)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_by_list_and_watch_follows() {
    a_mirror_follows(watcher::Config::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_by_pages_follows() {
    a_mirror_follows(watcher::Config::default().page_size(7)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_by_streamed_list_follows() {
    a_mirror_follows(watcher::Config::default().streaming_lists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_of_any_version_follows() {
    a_mirror_follows(watcher::Config::default().any_semantic()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_that_must_reconnect_every_second_misses_nothing() {
    let server = crate::apiserver();
    let client = server.client().await;
    let api = config_maps(&client);
    // The least that the watcher allows: each watch lives for a second, and the next one resumes.
    let store = mirror(api.clone(), watcher::Config::default().timeout(1));
    soon("the first list", store.wait_until_ready()).await.unwrap();
    for number in 0..60 {
        create(&api, &format!("c{number:02}"), "first").await;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let expected = held(&api).await;
    until("the mirror to follow", || std::future::ready(mirrored(&store) == expected)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn our_kinds_are_mirrored_with_their_defaults() {
    let server = crate::apiserver();
    let client = server.client().await;
    gateways(&client).create(&PostParams::default(), &gateway("g", 2)).await.unwrap();
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let store = mirror(gateways(&client), config);
        soon("the first list", store.wait_until_ready()).await.unwrap();
        let found = store.state();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name_any().as_str(), found[0].spec.replicas), ("g", 2));
        assert_eq!(found[0].spec, gateways(&client).get("g").await.unwrap().spec);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_of_metadata_holds_no_data() {
    let server = crate::apiserver();
    let client = server.client().await;
    let mut labelled = config_map("c", "first");
    labelled.labels_mut().insert("a".to_owned(), "b".to_owned());
    config_maps(&client).create(&PostParams::default(), &labelled).await.unwrap();
    let api: Api<PartialObjectMeta<ConfigMap>> = Api::namespaced(client.clone(), NAMESPACE);
    let store = mirror(api, watcher::Config::default().labels("a=b"));
    soon("the first list", store.wait_until_ready()).await.unwrap();
    assert_eq!(store.state().iter().map(|meta| meta.name_any()).collect::<Vec<_>>(), ["c"]);
    let mut sizes = Vec::new();
    for metadata in store.state() {
        sizes.push(serde_json::to_value(&*metadata).unwrap().get("data").is_some());
    }
    assert_eq!(sizes, [false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_object_is_watched_from_nothing_to_nothing() {
    let server = crate::apiserver();
    let client = server.client().await;
    let api = config_maps(&client);
    let mut seen = Box::pin(watcher::watch_object(api.clone(), "c"));
    assert!(soon("nothing", seen.try_next()).await.unwrap().unwrap().is_none());
    create(&api, "c", "first").await;
    let found = soon("the object", seen.try_next()).await.unwrap().unwrap().unwrap();
    assert_eq!(value(&found), "first");
    let patch = Patch::Merge(json!({ "data": { "v": "second" } }));
    api.patch("c", &PatchParams::default(), &patch).await.unwrap();
    let found = soon("the change", seen.try_next()).await.unwrap().unwrap().unwrap();
    assert_eq!(value(&found), "second");
    api.delete("c", &DeleteParams::default()).await.unwrap();
    assert!(soon("nothing again", seen.try_next()).await.unwrap().unwrap().is_none());
}
