//! What a tunnel proxy says where the container engine refuses to tell, and where a registry does not answer.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use support::{Diary, FakeApi, MemoryEngine, outside, until};
use underpass_operator::{Key, Reconcile, TunnelProxies};
use underpass_plan::tunnel_proxy::{Engine, Image, Observed};

const OURS: &str = "/apis/underpass.dev/v1alpha1";

fn api() -> FakeApi {
    let api = FakeApi::new(Diary::default());
    let proxy = json!({
        "metadata": { "name": "p", "uid": "u-1", "generation": 1 },
        "spec": { "containerNetworkName": "dev", "aliases": ["h"], "tunnels": [] },
    });
    let network = json!({
        "metadata": { "name": "dev" },
        "spec": {},
        "status": { "state": "Running", "id": "n1", "networkName": "dev" },
    });
    let list = |items| json!({ "metadata": {}, "items": items });
    api.put(&format!("{OURS}/containernetworktunnelproxies/p"), proxy.clone());
    api.put(&format!("{OURS}/containernetworktunnelproxies"), list(json!([proxy])));
    api.put(&format!("{OURS}/containernetworks"), list(json!([network])));
    api.put("/apis/discovery.k8s.io/v1/endpointslices", list(json!([])));
    api
}

async fn seen(engine: &MemoryEngine) -> Observed {
    let proxies = TunnelProxies::new(api().client(), outside(Arc::new(engine.clone())), Arc::default());
    proxies.observe(&Key::cluster("p"), None).await.unwrap().unwrap()
}

/// Its containers are the first question, those of others on the network the second; each is asked four times.
#[tokio::test(start_paused = true)]
async fn an_engine_that_refuses_is_as_one_that_is_away_and_says_why() {
    let engine = MemoryEngine::default();
    assert!(matches!(seen(&engine).await.engine, Engine::Available { .. }));
    engine.refuse_questions(3);
    assert!(matches!(seen(&engine).await.engine, Engine::Available { .. }), "it is over before it is told");
    engine.refuse_questions(usize::MAX);
    let Engine::Unavailable { why } = seen(&engine).await.engine else { panic!("it did not answer") };
    assert_eq!(why, "the client proxy's container cannot be looked at: the engine refused: not now");
    engine.refuse_questions(0);
    engine.refuse_to_tell_of_others();
    let Engine::Unavailable { why } = seen(&engine).await.engine else { panic!("it did not answer") };
    assert_eq!(why, "the containers on the network cannot be looked at: the engine refused: not now");
}

/// A pull is part of the making: it takes as long.
#[tokio::test]
async fn an_image_whose_base_is_pulled_is_being_made() {
    let diary = Diary::default();
    let images = outside(Arc::new(MemoryEngine::new(diary.clone()))).images;
    images.ensure(Some("base:1"), &Key::cluster("p"));
    until("the pull", || diary.lines().contains(&"pull base:1".to_owned())).await;
    assert_eq!(images.state(Some("base:1"), Timestamp::now()), Image::Working);
    assert_eq!(images.state(None, Timestamp::now()), Image::Unknown);
}
