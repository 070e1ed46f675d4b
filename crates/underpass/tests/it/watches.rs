//! Watches at the end of history, and beside one that does not read.

use std::pin::{Pin, pin};

use futures::{AsyncBufRead, AsyncBufReadExt, StreamExt};
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::watcher::{self, watcher};
use serde_json::{Value, json};
use underpass_testbed::{Launch, PATIENCE, Underpass};

use crate::BINARY;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server whose history ends soon.
fn forgetful(keep_events: usize) -> Underpass {
    Launch::apiserver(BINARY).arg("--keep-events").arg(keep_events.to_string()).start()
}

#[tokio::test]
async fn a_watch_from_a_forgotten_revision_is_told_to_list_again() {
    let server = forgetful(64);
    let client = server.client().await;
    let old = write(&client, "churn", "0").await;
    forget(&client, &old).await;
    let mut lines = watch(&client, &format!("{MAPS}?watch=true&resourceVersion={old}")).await.unwrap();
    let line = next(&mut lines).await.expect("an event that says why");
    assert_eq!(line["type"], "ERROR", "{line}");
    assert_expired(&line["object"], &format!("too old resource version: {old} ("));
    assert_eq!(next(&mut lines).await, None, "nothing can follow");

    let list = get(&client, MAPS).await.unwrap();
    let fresh = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut lines = watch(&client, &format!("{MAPS}?watch=true&resourceVersion={fresh}")).await.unwrap();
    let written = write(&client, "churn", "again").await;
    assert_eq!(next(&mut lines).await.unwrap()["object"]["metadata"]["resourceVersion"], written);
}

#[tokio::test]
async fn a_list_at_a_forgotten_revision_is_refused() {
    let server = forgetful(64);
    let client = server.client().await;
    for name in ["a", "b", "c"] {
        write(&client, name, "0").await;
    }
    let page = get(&client, &format!("{MAPS}?limit=2")).await.unwrap();
    let (old, token) = (&page["metadata"]["resourceVersion"], page["metadata"]["continue"].as_str().unwrap());
    forget(&client, old.as_str().unwrap()).await;
    let exact = format!("{MAPS}?resourceVersion={}&resourceVersionMatch=Exact", old.as_str().unwrap());
    assert_expired(&refusal(&client, &exact).await, "too old");

    let refused = refusal(&client, &format!("{MAPS}?limit=2&continue={token}")).await;
    assert_expired(&refused, "too old");
    let token = refused["metadata"]["continue"].as_str().expect("a token that goes on without consistency");
    let rest = get(&client, &format!("{MAPS}?continue={token}")).await.unwrap();
    let names: Vec<_> = rest["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]).collect();
    let first: Vec<_> = page["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]).collect();
    assert_eq!((first.len(), names.contains(&&json!("churn"))), (2, true), "{first:?} then {names:?}");
}

/// kube-rs lists again only when the stream says 410; an answer with that status would make it ask for ever.
#[tokio::test]
async fn the_watcher_of_kube_rs_goes_on_after_history_was_forgotten() {
    let server = forgetful(64);
    let client = server.client().await;
    write(&client, "watched", "0").await;
    let config = watcher::Config::default().fields("metadata.name=watched").timeout(1);
    let mut events = pin!(watcher(Api::<ConfigMap>::namespaced(client.clone(), "default"), config));
    until(&mut events, |event| matches!(event, watcher::Event::InitDone)).await;
    // The watch sees none of this, ends after a second, and comes back for a revision that is gone by then.
    let old = get(&client, MAPS).await.unwrap()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    forget(&client, &old).await;
    until(&mut events, |event| matches!(event, watcher::Event::InitDone)).await;
    write(&client, "watched", "1").await;
    until(
        &mut events,
        |event| matches!(event, watcher::Event::Apply(map) if map.data.as_ref().unwrap()["text"] == "1"),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_does_not_read_is_dropped_alone() {
    const KEEP: usize = 128;
    const WRITES: usize = 640;
    const VALUE: usize = 64 << 10;
    let mut server = forgetful(KEEP);
    let client = server.client().await;
    // What history and heap need with full history; the rest of the growth would be a queue.
    churn(&client, KEEP * 2, VALUE).await;
    let start = write(&client, "churn-0", "start").await;
    let path = format!("{MAPS}?watch=true&resourceVersion={start}");
    let mut stalled = watch(&client, &path).await.unwrap();
    let mut reading = watch(&client, &path).await.unwrap();
    let before = resident(server.process().pid());
    let count = async {
        let mut revisions = Vec::new();
        while revisions.len() < WRITES {
            revisions.push(revision(&next(&mut reading).await.expect("the watch that reads goes on")));
        }
        revisions
    };
    let (all, ()) = tokio::join!(count, churn(&client, WRITES, VALUE));
    let grown = resident(server.process().pid()).saturating_sub(before);
    assert!(all.is_sorted(), "{all:?}");
    assert!(grown < (WRITES * VALUE / 2) as u64, "the server grew by {grown} bytes");

    let mut saw = Vec::new();
    // Told that it is too late or, after half a minute, cut off: either way it ends, and never skips.
    while let Ok(Some(event)) = read(&mut stalled).await {
        if event["type"] == "ERROR" {
            assert_expired(&event["object"], "too old resource version");
            break;
        }
        saw.push(revision(&event));
    }
    assert!(saw.len() < WRITES && all.starts_with(&saw), "what it was sent before is whole: {saw:?} of {all:?}");
}

/// Writes to other objects until a revision is forgotten.
async fn forget(client: &Client, revision: &str) {
    let at = format!("/api/v1/secrets?resourceVersion={revision}&resourceVersionMatch=Exact");
    let mut written = 0;
    while get(client, &at).await.is_ok() {
        written += 1;
        assert!(written < 1000, "revision {revision} is not forgotten");
        write(client, "churn", &written.to_string()).await;
    }
}

/// Writes large values to a handful of objects, with as many clients.
async fn churn(client: &Client, writes: usize, size: usize) {
    const CLIENTS: usize = 8;
    let maps = &Api::<ConfigMap>::namespaced(client.clone(), "default");
    let one = |number: usize| async move {
        let name = format!("churn-{number}");
        write(client, &name, "first").await;
        for write in 1..writes / CLIENTS {
            let patch = json!({ "data": { "text": format!("{write}-{}", "x".repeat(size)) } });
            maps.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        }
    };
    futures::future::join_all((0..CLIENTS).map(one)).await;
}

/// Puts a text into a ConfigMap, which is made if need be; returns its resourceVersion.
async fn write(client: &Client, name: &str, text: &str) -> String {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    let patch =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "text": text } });
    let map = maps.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(patch)).await.unwrap();
    map.metadata.resource_version.unwrap()
}

type Lines = Pin<Box<dyn AsyncBufRead + Send>>;

async fn watch(client: &Client, path: &str) -> kube::Result<Lines> {
    Ok(Box::pin(client.request_stream(Request::get(path).body(Vec::new()).unwrap()).await?))
}

/// The next event; `None` at the end.
async fn next(lines: &mut Lines) -> Option<Value> {
    read(lines).await.unwrap()
}

async fn read(lines: &mut Lines) -> std::io::Result<Option<Value>> {
    let mut line = String::new();
    let read = tokio::time::timeout(PATIENCE, lines.read_line(&mut line)).await.expect("an event in time")?;
    Ok((read > 0).then(|| serde_json::from_str(&line).unwrap()))
}

async fn until<K>(
    events: &mut (impl futures::Stream<Item = watcher::Result<watcher::Event<K>>> + Unpin),
    wanted: impl Fn(&watcher::Event<K>) -> bool,
) {
    let found = async {
        while let Some(event) = events.next().await {
            if event.is_ok_and(|event| wanted(&event)) {
                return;
            }
        }
        panic!("the watcher ended");
    };
    tokio::time::timeout(PATIENCE, found).await.expect("the event in time");
}

async fn get(client: &Client, path: &str) -> kube::Result<Value> {
    client.request(Request::get(path).body(Vec::new()).unwrap()).await
}

/// The Status that refuses a request.
async fn refusal(client: &Client, path: &str) -> Value {
    let request = Request::get(path).body(kube::client::Body::empty()).unwrap();
    let response = client.send(request).await.unwrap();
    assert_eq!(response.status(), 410);
    serde_json::from_slice(&response.into_body().collect_bytes().await.unwrap()).unwrap()
}

#[track_caller]
fn assert_expired(status: &Value, message: &str) {
    assert_eq!(
        (&status["kind"], &status["code"], &status["reason"]),
        (&json!("Status"), &json!(410), &json!("Expired"))
    );
    assert!(status["message"].as_str().unwrap().contains(message), "{status}");
}

fn revision(event: &Value) -> u64 {
    event["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// The memory that a process holds, in bytes.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
