//! A random walk of damaged bodies: good manifests with wrong types, nulls, odd keys and broken bytes in them, through every kind of
//! write. Whatever is refused or accepted, nothing breaks: no answer blames the server, and what is stored can be read again.

mod manifests;
mod mutation;

use futures::StreamExt;
use http::Method;
use kube::Client;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::hostile::{get, send};
use crate::server::embedded_apiserver;
use manifests::{Sample, samples};
use mutation::{damaged_bytes, damaged_options, damaged_value, json_patch};

const WALKS: u64 = 8;
const STEPS: usize = 350;

#[tokio::test]
async fn damaged_bodies_break_nothing() {
    let server = embedded_apiserver();
    let client = server.client().await;
    let samples = samples();
    for sample in samples.iter() {
        let (code, why) = sample.create(&client, &sample.object).await;
        assert!(code < 300, "{}: {code} {why}", sample.path);
        if sample.path.ends_with("customresourcedefinitions") {
            server.kubectl().ok("wait --for=condition=Established crd/wells.damage.io --timeout=60s");
        }
    }
    let walks = (0..WALKS).map(|seed| walk(&client, &samples, seed));
    futures::stream::iter(walks).buffer_unordered(8).collect::<Vec<()>>().await;
    for sample in &samples {
        all_is_readable(&client, sample).await;
        server.kubectl().ok(&format!("get {} -A -o yaml", sample.full_name()));
    }
    let (code, _) = get(&client, "/api/v1/namespaces/default").await;
    assert_eq!(code, 200);
}

/// One sequence of requests, the same at every run.
async fn walk(client: &Client, samples: &[Sample], seed: u64) {
    let mut chance = StdRng::seed_from_u64(seed);
    for step in 0..STEPS {
        let sample = &samples[chance.random_range(0..samples.len())];
        let (method, path, body, type_) = request(sample, &mut chance);
        let shown = String::from_utf8_lossy(&body).chars().take(2000).collect::<String>();
        let (code, answer) = send(client, method.clone(), &path, body, type_).await;
        assert!(code.as_u16() < 500, "walk {seed}, step {step}: {method} {path} {type_}: {code} {answer}\n{shown}");
    }
}

fn request(sample: &Sample, chance: &mut StdRng) -> (Method, String, Vec<u8>, &'static str) {
    let object = damaged_value(&sample.object, chance);
    let one = format!("{}/{}", sample.path, sample.name());
    let sub = match chance.random_range(0..10) {
        0 | 1 if sample.has_status => "/status",
        2 | 3 if sample.plural() == "deployments" => "/scale",
        _ => "",
    };
    let below = format!("{one}{sub}?fieldManager=walk");
    let (method, path, body, type_) = match chance.random_range(0..8) {
        0 => (Method::POST, sample.path.clone(), object, "application/json"),
        1 | 2 => (Method::PUT, below, object, "application/json"),
        3 => (Method::PATCH, below, object, "application/merge-patch+json"),
        4 => (Method::PATCH, below, object, "application/strategic-merge-patch+json"),
        5 => (Method::PATCH, below + "&force=true", object, "application/apply-patch+yaml"),
        6 => (Method::PATCH, below, json_patch(&sample.object, chance), "application/json-patch+json"),
        _ => return delete_or_restore(sample, &one, chance),
    };
    (method, path, damaged_bytes(body.to_string().into_bytes(), chance), type_)
}

/// Deleted objects come back, so that the other writes find something.
fn delete_or_restore(sample: &Sample, one: &str, chance: &mut StdRng) -> (Method, String, Vec<u8>, &'static str) {
    if chance.random_bool(0.6) {
        return (Method::POST, sample.path.clone(), sample.object.to_string().into_bytes(), "application/json");
    }
    // The definition stays: without it there is no custom resource to damage.
    let dry = if sample.is_needed() { "?dryRun=All" } else { "" };
    let options = damaged_options(chance).to_string().into_bytes();
    (Method::DELETE, format!("{one}{dry}"), damaged_bytes(options, chance), "application/json")
}

/// Every object of the list can be read alone, and is the same.
async fn all_is_readable(client: &Client, sample: &Sample) {
    let (code, list) = get(client, &sample.path).await;
    assert_eq!(code, 200, "{}: {list}", sample.path);
    for item in list["items"].as_array().into_iter().flatten() {
        let name = item["metadata"]["name"].as_str().unwrap_or_default();
        let (code, object) = get(client, &format!("{}/{name}", sample.path)).await;
        assert_eq!(code, 200, "{}/{name}: {object}", sample.path);
        assert_eq!(object["metadata"]["uid"], item["metadata"]["uid"], "{}/{name}", sample.path);
    }
}

impl Sample {
    async fn create(&self, client: &Client, object: &Value) -> (u16, Value) {
        let body = object.to_string().into_bytes();
        let (code, answer) = send(client, Method::POST, &self.path, body, "application/json").await;
        (code.as_u16(), json!(answer))
    }
}
