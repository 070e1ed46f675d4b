//! `kill -9` in the middle of concurrent writes, over and over on the same data directory: what clients were told stays true.

mod checker;
mod history;
mod watcher;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use http::Request;
use kube::Client;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use underpass_testbed::{Launch, PATIENCE, Signal, Underpass, wait_until};

use crate::BINARY;
use history::{History, Key, Kind, Outcome, Recorder, Revision, State, Watched};
use watcher::Watcher;
use writer::Writer;

const ROUNDS: u64 = 22;
const WRITERS: u64 = 8;
/// Watches per kind that live through all rounds.
const WATCHERS: usize = 2;
/// How many more acknowledged writes a server lives to see.
const WRITES_TO_LIVE: std::ops::Range<usize> = 1..120;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_and_nothing_else_appears() {
    let folder = tempfile::tempdir().unwrap();
    let mut trial = Trial::begin(folder.path()).await;
    let mut writers: Vec<Writer> = (0..WRITERS).map(|id| Writer::new(&format!("writer-{id}"), id)).collect();
    for round in 0..ROUNDS {
        trial.crash(&mut writers, round).await;
        trial.restart().await;
        trial.judge().await;
    }
    let operations = trial.recorder.operations();
    let cut_off = operations.iter().filter(|it| it.outcome == Outcome::Unknown).count();
    // Else the kills hit a server that had nothing to do, and nothing was tried.
    assert!(cut_off as u64 >= ROUNDS, "only {cut_off} of {} operations were cut off", operations.len());
}

/// One data directory and all who use it, server after server.
struct Trial<'a> {
    folder: &'a Path,
    server: Underpass,
    servers: watch::Sender<Client>,
    recorder: Arc<Recorder>,
    watchers: Vec<Watcher>,
    /// The revision before the first write.
    start: Revision,
    chance: StdRng,
    /// Writes the last object of a round, which everybody must come to see.
    closer: Writer,
    rounds: usize,
}

impl<'a> Trial<'a> {
    async fn begin(folder: &'a Path) -> Trial<'a> {
        let server = start(folder);
        let client = server.client().await;
        let start = prepare(&client).await;
        let (servers, current) = watch::channel(client);
        let watcher =
            |kind: Kind, number| Watcher::start(&format!("{kind:?} watch {number}"), kind, start, current.clone());
        let watchers = Kind::ALL.into_iter().flat_map(|kind| (0..WATCHERS).map(move |number| (kind, number)));
        Trial {
            folder,
            server,
            watchers: watchers.map(|(kind, number)| watcher(kind, number)).collect(),
            servers,
            recorder: Arc::new(Recorder::new()),
            start,
            chance: StdRng::seed_from_u64(7),
            closer: Writer::new("closer", 7),
            rounds: 0,
        }
    }

    fn client(&self) -> Client {
        self.servers.borrow().clone()
    }

    /// Lets all writers work, and kills the server while they do.
    async fn crash(&mut self, writers: &mut Vec<Writer>, round: u64) {
        let mut working = JoinSet::new();
        for mut writer in writers.drain(..) {
            let (client, recorder) = (self.client(), Arc::clone(&self.recorder));
            working.spawn(async move {
                writer.work(&client, &recorder).await;
                writer
            });
        }
        let enough = self.recorder.acknowledged() + self.chance.random_range(WRITES_TO_LIVE);
        tokio::select! {
            () = self.recorder.reaches(enough) => {}
            ended = working.join_next() => panic!("in round {round} the server cut off {:?} by itself", ended.map(|it| it.is_ok())),
        }
        self.server.process().signal(Signal::KILL);
        *writers = working.join_all().await;
    }

    async fn restart(&mut self) {
        wait_until("the end of a killed server", PATIENCE, || (!self.server.process().is_running()).then_some(()));
        self.server = start(self.folder);
        self.servers.send_replace(self.server.client().await);
        self.rounds += 1;
    }

    /// Checks everything that happened since the beginning.
    async fn judge(&mut self) {
        let client = self.client();
        let mut listed = Vec::new();
        let mut logs = Vec::new();
        for kind in Kind::ALL {
            let last = self.close(&client, kind).await;
            for watcher in self.watchers.iter_mut().filter(|watcher| watcher.kind() == kind) {
                watcher.reaches(last).await;
            }
            let events = watcher::log(&client, kind, self.start, last).await;
            logs.push(Watched { name: format!("{kind:?} log"), kind, events });
            listed.extend(list(&client, kind).await);
        }
        let watched = self.watchers.iter().map(Watcher::watched).chain(logs).collect();
        let (operations, reads) = (self.recorder.operations(), self.recorder.reads());
        let flaws = checker::check(&History { operations, reads, watched, listed });
        assert!(flaws.is_empty(), "after restart {}: {flaws:#?}", self.rounds);
    }

    /// Writes an object after all others; whoever has seen it has seen all.
    async fn close(&mut self, client: &Client, kind: Kind) -> Revision {
        let key = Key { kind, name: format!("round-{}", self.rounds) };
        match self.closer.create(client, &self.recorder, key).await {
            Ok(Outcome::Done { revision: Some(revision) }) => revision,
            other => panic!("a quiet server refused a write: {other:?}"),
        }
    }
}

fn start(folder: &Path) -> Underpass {
    Launch::apiserver(BINARY).data_dir(folder).start()
}

/// Makes the namespace and the kind that writers use; returns the revision from which to watch.
async fn prepare(client: &Client) -> Revision {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "crash" } });
    post(client, "/api/v1/namespaces", &namespace).await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    post(client, definitions, &definition()).await;
    // The server gives every namespace this object, a moment later; it is none of the writers'.
    eventually(client, &format!("{}/kube-root-ca.crt", writer::collection(Kind::ConfigMap))).await;
    let widgets = eventually(client, writer::collection(Kind::Widget)).await;
    widgets["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// What is at a path, as soon as something is.
async fn eventually(client: &Client, path: &str) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match get(client, path).await {
            Ok(found) => return found,
            Err(error) => assert!(Instant::now() < deadline, "{path}: {error}"),
        }
    }
}

fn definition() -> Value {
    let payload = json!({ "type": "string", "minLength": 1, "pattern": "^[a-z]+-" });
    let spec = json!({ "type": "object", "required": ["payload"], "properties": { "payload": payload } });
    let schema = json!({ "type": "object", "required": ["spec"], "properties": { "spec": spec } });
    let version = json!({ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.crash.example.com" },
        "spec": {
            "group": "crash.example.com",
            "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" },
            "versions": [version],
        },
    })
}

async fn list(client: &Client, kind: Kind) -> Vec<State> {
    let list = get(client, writer::collection(kind)).await.unwrap();
    let items = list["items"].as_array().unwrap().iter().filter(|item| item["metadata"]["name"] != "kube-root-ca.crt");
    items.map(|item| State::of(kind, item).unwrap()).collect()
}

async fn get(client: &Client, path: &str) -> kube::Result<Value> {
    client.request(Request::get(path).body(Vec::new()).unwrap()).await
}

async fn post(client: &Client, path: &str, object: &Value) {
    let request = Request::post(path).header("content-type", "application/json");
    client.request::<Value>(request.body(object.to_string().into_bytes()).unwrap()).await.unwrap();
}
