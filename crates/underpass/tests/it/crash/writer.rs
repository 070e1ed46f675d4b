//! Clients that write at random, and tell the recorder what they asked for and what came of it.

use http::{Method, Request};
use kube::{Client, Error};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use super::history::{Key, Kind, Operation, Outcome, Recorder, State, Verb};

/// Few enough that clients meet on them.
const NAMES: usize = 6;
/// Payloads up to this size: some span several pages of a store.
const LARGEST: usize = 12_000;

/// The server is gone.
#[derive(Debug)]
pub(crate) struct Cut;

pub(crate) struct Writer {
    id: String,
    chance: StdRng,
    sent: usize,
}

impl Writer {
    pub(crate) fn new(id: &str, seed: u64) -> Writer {
        Writer { id: id.to_owned(), chance: StdRng::seed_from_u64(seed), sent: 0 }
    }

    /// Writes until the server is gone.
    pub(crate) async fn work(&mut self, client: &Client, recorder: &Recorder) {
        while self.step(client, recorder).await.is_ok() {}
    }

    /// Looks at an object, then does what can be done with it.
    async fn step(&mut self, client: &Client, recorder: &Recorder) -> Result<(), Cut> {
        let kind = Kind::ALL[self.chance.random_range(0..Kind::ALL.len())];
        let key = Key { kind, name: format!("object-{}", self.chance.random_range(0..NAMES)) };
        let Some(found) = read(client, &key).await? else {
            return self.create(client, recorder, key).await.map(drop);
        };
        recorder.read(found.clone());
        let at = found.revision;
        let verb = match self.chance.random_range(0..10) {
            0..4 => Verb::Update { at },
            4..8 => Verb::Patch,
            _ => Verb::Delete { at, uid: found.uid.clone() },
        };
        self.attempt(client, recorder, key, verb).await.map(drop)
    }

    pub(crate) async fn create(&mut self, client: &Client, recorder: &Recorder, key: Key) -> Result<Outcome, Cut> {
        self.attempt(client, recorder, key, Verb::Create).await
    }

    async fn attempt(&mut self, client: &Client, recorder: &Recorder, key: Key, verb: Verb) -> Result<Outcome, Cut> {
        let payload = match verb {
            Verb::Delete { .. } => String::new(),
            Verb::Create | Verb::Update { .. } | Verb::Patch => self.payload(),
        };
        let request = request(&key, &verb, &payload);
        let begun = recorder.now();
        let outcome = match client.request::<Value>(request).await {
            Ok(object) => Outcome::Done { revision: State::of(key.kind, &object).map(|state| state.revision) },
            Err(Error::Api(status)) => Outcome::Refused { code: status.code },
            Err(_) => Outcome::Unknown,
        };
        recorder.ended(Operation { key, verb, payload, begun, ended: recorder.now(), outcome: outcome.clone() });
        if outcome == Outcome::Unknown { Err(Cut) } else { Ok(outcome) }
    }

    /// Never the same twice, and of any length.
    fn payload(&mut self) -> String {
        self.sent += 1;
        let length = self.chance.random_range(0..LARGEST) / self.chance.random_range(1..100);
        format!("{}-{}-{}", self.id, self.sent, "x".repeat(length))
    }
}

pub(crate) async fn read(client: &Client, key: &Key) -> Result<Option<State>, Cut> {
    let request = send(Method::GET, &path(key), "", &Value::Null);
    match client.request::<Value>(request).await {
        Ok(object) => Ok(Some(State::of(key.kind, &object).expect("an object of ours has all that ours have"))),
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        Err(Error::Api(status)) => panic!("a read was refused: {status:?}"),
        Err(_) => Err(Cut),
    }
}

pub(crate) fn collection(kind: Kind) -> &'static str {
    match kind {
        Kind::ConfigMap => "/api/v1/namespaces/crash/configmaps",
        Kind::Widget => "/apis/crash.example.com/v1/namespaces/crash/widgets",
    }
}

fn path(key: &Key) -> String {
    format!("{}/{}", collection(key.kind), key.name)
}

fn request(key: &Key, verb: &Verb, payload: &str) -> Request<Vec<u8>> {
    let json_type = "application/json";
    match verb {
        Verb::Create => send(Method::POST, collection(key.kind), json_type, &object(key, payload)),
        Verb::Update { at } => {
            let mut object = object(key, payload);
            object["metadata"]["resourceVersion"] = at.to_string().into();
            send(Method::PUT, &path(key), json_type, &object)
        }
        Verb::Patch => {
            let (part, field) = key.kind.payload_field();
            let patch = json!({ part: { field: payload } });
            send(Method::PATCH, &path(key), "application/merge-patch+json", &patch)
        }
        Verb::Delete { at, uid } => {
            let preconditions = json!({ "uid": uid, "resourceVersion": at.to_string() });
            let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions });
            send(Method::DELETE, &path(key), json_type, &options)
        }
    }
}

fn object(key: &Key, payload: &str) -> Value {
    let (api_version, kind) = match key.kind {
        Kind::ConfigMap => ("v1", "ConfigMap"),
        Kind::Widget => ("crash.example.com/v1", "Widget"),
    };
    let (part, field) = key.kind.payload_field();
    json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": key.name }, part: { field: payload } })
}

fn send(method: Method, path: &str, content_type: &str, body: &Value) -> Request<Vec<u8>> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    request.body(body).expect("method, path and header are well-formed")
}
