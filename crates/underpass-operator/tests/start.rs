//! Controllers that cannot work say why, and do not start.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use support::{Diary, FakeApi, MemoryEngine, pace, seat};
use tokio_util::sync::CancellationToken;
use underpass_operator::{Metrics, RunError, Settings, Unreachable, run};

#[tokio::test]
async fn missing_definitions_are_named_with_the_way_to_get_them() {
    let diary = Diary::default();
    let engine = Arc::new(MemoryEngine::new(diary.clone()));
    let settings = Settings {
        engine,
        folder: "/nowhere".into(),
        instance: "test".into(),
        program: "/nowhere/underpass".into(),
        watchdog: None,
        pace: pace(),
        metrics: Metrics::default(),
        seat: seat("only"),
    };
    let error = run(FakeApi::new(diary).client(), settings, CancellationToken::new()).await.unwrap_err();
    let RunError::Start(Unreachable::MissingKinds(missing)) = error else { panic!("{error:?}") };
    assert!(missing.contains("containernetworks.underpass.dev, "), "{missing}");
    assert!(Unreachable::MissingKinds(missing).to_string().contains("underpass crds | kubectl apply"));
}
