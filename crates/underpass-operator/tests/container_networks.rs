//! The whole pattern with a ContainerNetwork: keys in, what the API and the engine were told out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::{UnboundedSender, unbounded};
use http::StatusCode;
use serde_json::{Value, json};
use support::{Diary, FakeApi, MemoryEngine, outside, pace, until};
use tokio_util::sync::{CancellationToken, DropGuard};
use underpass_engines::EngineError;
use underpass_operator::{Applier, ContainerNetworks, Key, Metrics, drive};

const PATH: &str = "/apis/underpass.dev/v1alpha1/containernetworks/dev";
const NETWORK: &str = "dev-5f0c6a1e9d";

/// A running loop over one API and one engine; it stops when this goes.
struct Rig {
    api: FakeApi,
    engine: MemoryEngine,
    diary: Diary,
    keys: UnboundedSender<Key>,
    _stop: DropGuard,
}

impl Rig {
    fn start() -> Self {
        let diary = Diary::default();
        let (api, engine) = (FakeApi::new(diary.clone()), MemoryEngine::new(diary.clone()));
        let (keys, triggers) = unbounded();
        let stop = CancellationToken::new();
        let reconciler = Arc::new(ContainerNetworks::new(api.client(), Arc::new(engine.clone()), Arc::default()));
        let applier = Arc::new(Applier::new(api.client(), Some(outside(Arc::new(engine.clone()))), Metrics::default()));
        tokio::spawn(drive(reconciler, triggers, applier, pace(), None, stop.clone()));
        Self { api, engine, diary, keys, _stop: stop.drop_guard() }
    }

    fn put(&self, spec: &Value) {
        self.api.put(
            PATH,
            json!({
                "apiVersion": "underpass.dev/v1alpha1",
                "kind": "ContainerNetwork",
                "metadata": { "name": "dev", "uid": "5f0c6a1e-9d1b-4c53-8a43-0f6d1f1b2c3d", "generation": 1 },
                "spec": spec,
            }),
        );
        self.signal();
    }

    fn signal(&self) {
        self.keys.unbounded_send(Key::cluster("dev")).unwrap();
    }

    fn ready(&self) -> (String, String) {
        let object = self.api.get(PATH).unwrap_or_default();
        let condition = &object["status"]["conditions"][0];
        let word = |name: &str| condition[name].as_str().unwrap_or_default().to_owned();
        (word("status"), word("reason"))
    }

    async fn until_ready_is(&self, status: &str, reason: &str) {
        until(&format!("Ready={status} {reason}"), || self.ready() == (status.to_owned(), reason.to_owned())).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_network_is_made_shown_and_taken_away_in_order() {
    let rig = Rig::start();
    rig.put(&json!({}));
    rig.until_ready_is("True", "NetworkExists").await;
    rig.api.delete(PATH);
    rig.signal();
    until("the object is gone", || rig.api.get(PATH).is_none()).await;
    assert_eq!(
        rig.diary.deeds(),
        [
            r#"finalizers ["underpass.dev/container-network"]"#,
            "status False Creating",
            &format!("create {NETWORK}"),
            "status True NetworkExists",
            "status False Removing",
            &format!("remove id-of-{NETWORK}"),
            "status False Removed",
            "finalizers null",
        ]
    );
    assert!(!rig.engine.has(NETWORK));
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_object_causes_no_writes() {
    let rig = Rig::start();
    rig.put(&json!({}));
    rig.until_ready_is("True", "NetworkExists").await;
    let before = rig.diary.lines();
    for _ in 0..20 {
        rig.signal();
        // Longer than the period: signals and the period both lead to passes.
        tokio::time::sleep(Duration::from_secs(90)).await;
    }
    assert_eq!(rig.diary.lines(), before);
}

#[tokio::test(start_paused = true)]
async fn without_an_engine_the_object_says_so_and_can_go() {
    let rig = Rig::start();
    rig.engine.trouble(Some(EngineError::Unavailable("nowhere".into())));
    rig.put(&json!({}));
    rig.until_ready_is("False", "NoContainerEngine").await;
    assert_eq!(rig.diary.lines(), ["status False NoContainerEngine", "event Warning NoContainerEngine"]);
    rig.api.delete(PATH);
    assert_eq!(rig.api.get(PATH), None, "nothing was made, so nothing may hold the object");
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_comes_back_is_noticed_without_a_signal() {
    let rig = Rig::start();
    rig.engine.trouble(Some(EngineError::Unavailable("nowhere".into())));
    rig.put(&json!({}));
    rig.until_ready_is("False", "NoContainerEngine").await;
    rig.engine.trouble(None);
    rig.until_ready_is("True", "NetworkExists").await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_refuses_to_tell_is_told_of_and_asked_again() {
    let rig = Rig::start();
    rig.engine.refuse_questions(usize::MAX);
    rig.put(&json!({}));
    rig.until_ready_is("False", "NoContainerEngine").await;
    let status = &rig.api.get(PATH).unwrap()["status"];
    assert_eq!(status["message"], format!("the network {NETWORK} cannot be looked at: the engine refused: not now"));
    rig.engine.refuse_questions(0);
    rig.until_ready_is("True", "NetworkExists").await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_does_not_stand_is_no_news() {
    let rig = Rig::start();
    rig.engine.refuse_questions(2);
    rig.put(&json!({}));
    rig.until_ready_is("True", "NetworkExists").await;
    let told = rig.diary.lines();
    assert!(!told.iter().any(|line| line.contains("NoContainerEngine")), "{told:?}");
}

#[tokio::test]
async fn a_failed_action_is_reported_at_once_and_repeated_until_it_works() {
    let rig = Rig::start();
    rig.engine.trouble(Some(EngineError::AddressesExhausted("full".into())));
    rig.put(&json!({}));
    rig.until_ready_is("False", "AddressesExhausted").await;
    let tries = || rig.diary.lines().iter().filter(|line| line.starts_with("create ")).count();
    until("it is tried again", || tries() >= 3).await;
    let reports = rig.diary.lines().iter().filter(|line| *line == "status False AddressesExhausted").count();
    assert_eq!(reports, 1, "the same failure is no news");
    rig.engine.trouble(None);
    rig.until_ready_is("True", "NetworkExists").await;
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_met_by_another_pass() {
    let rig = Rig::start();
    rig.api.refuse(StatusCode::CONFLICT);
    rig.api.refuse(StatusCode::CONFLICT);
    rig.put(&json!({}));
    rig.until_ready_is("True", "NetworkExists").await;
}

#[tokio::test(start_paused = true)]
async fn events_tell_of_changes_once() {
    let rig = Rig::start();
    rig.put(&json!({}));
    rig.until_ready_is("True", "NetworkExists").await;
    rig.signal();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let events: Vec<_> = rig.diary.lines().into_iter().filter(|line| line.starts_with("event ")).collect();
    assert_eq!(events, ["event Normal Creating", "event Normal NetworkExists"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_said_again_is_counted_and_what_is_new_is_another_event() {
    let rig = Rig::start();
    for place in ["here", "here", "there"] {
        rig.engine.trouble(Some(EngineError::Unavailable(place.into())));
        rig.put(&json!({}));
        rig.until_ready_is("False", "NoContainerEngine").await;
        rig.engine.trouble(None);
        rig.until_ready_is("True", "NetworkExists").await;
        rig.api.delete(PATH);
        rig.signal();
        until("the object is gone", || rig.api.get(PATH).is_none()).await;
    }
    let events = rig.diary.lines().into_iter().filter(|line| line.contains("NoContainerEngine"));
    let events: Vec<_> = events.filter(|line| line.starts_with("event ")).collect();
    assert_eq!(
        events,
        ["event Warning NoContainerEngine", "event again NoContainerEngine 2", "event Warning NoContainerEngine"]
    );
}
