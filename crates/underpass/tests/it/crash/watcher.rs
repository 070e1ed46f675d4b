//! Watches that outlive the server: each resumes where it stopped, on whichever server is there next.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use http::Request;
use kube::core::{DynamicObject, WatchEvent};
use kube::{Client, Error};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::history::{Change, Kind, Revision, Seen, State, Watched};
use super::writer::collection;

/// A watch, as long as there is a server.
pub(crate) struct Watcher {
    watched: Arc<Mutex<Watched>>,
    newest: watch::Receiver<Revision>,
    task: JoinHandle<()>,
}

impl Watcher {
    /// Watches all that comes after a revision on each server that `servers` names.
    pub(crate) fn start(name: &str, kind: Kind, after: Revision, mut servers: watch::Receiver<Client>) -> Watcher {
        let watched = Arc::new(Mutex::new(Watched { name: name.to_owned(), kind, events: Vec::new() }));
        let (told, newest) = watch::channel(after);
        let record = Arc::clone(&watched);
        let task = tokio::spawn(async move {
            loop {
                let client = servers.borrow_and_update().clone();
                let from = *told.borrow();
                follow(&client, kind, from, |event| {
                    let revision = event.state.revision;
                    record.lock().events.push(event);
                    told.send_replace(revision);
                    true
                })
                .await;
                if servers.changed().await.is_err() {
                    return;
                }
            }
        });
        Watcher { watched, newest, task }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.watched.lock().kind
    }

    /// Waits until everything up to a revision was seen.
    pub(crate) async fn reaches(&mut self, revision: Revision) {
        if self.newest.wait_for(|newest| *newest >= revision).await.is_err() {
            panic!("the watch ended: {:?}", (&mut self.task).await);
        }
    }

    pub(crate) fn watched(&self) -> Watched {
        self.watched.lock().clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// All events after one revision, up to another.
pub(crate) async fn log(client: &Client, kind: Kind, after: Revision, upto: Revision) -> Vec<Seen> {
    let mut events = Vec::new();
    follow(client, kind, after, |event| {
        let more = event.state.revision < upto;
        events.push(event);
        more
    })
    .await;
    events
}

/// Hands on events until `more` says no or the connection ends.
async fn follow(client: &Client, kind: Kind, after: Revision, mut more: impl FnMut(Seen) -> bool) {
    let path = format!("{}?watch=true&resourceVersion={after}", collection(kind));
    let request = Request::get(path).body(Vec::new()).expect("the path is well-formed");
    let stream = match client.request_events::<DynamicObject>(request).await {
        Ok(stream) => stream,
        Err(Error::Api(status)) => panic!("the watch from {after} was refused: {status:?}"),
        Err(_) => return,
    };
    let mut stream = pin!(stream);
    while let Some(Ok(event)) = stream.next().await {
        if !more(seen(kind, event)) {
            return;
        }
    }
}

fn seen(kind: Kind, event: WatchEvent<DynamicObject>) -> Seen {
    let (change, object) = match event {
        WatchEvent::Added(object) => (Change::Added, object),
        WatchEvent::Modified(object) => (Change::Modified, object),
        WatchEvent::Deleted(object) => (Change::Deleted, object),
        WatchEvent::Bookmark(_) => panic!("nobody asked for a bookmark"),
        WatchEvent::Error(status) => panic!("the watch was broken off: {status:?}"),
    };
    let object: Value = serde_json::to_value(object).expect("what was JSON can be JSON");
    Seen { change, state: State::of(kind, &object).expect("an object of ours has all that ours have") }
}
