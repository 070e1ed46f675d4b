//! Controllers that cannot work say why, and do not start.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use support::{Diary, FakeApi, pace, seat};
use tokio_util::sync::CancellationToken;
use underpass_operator::{Health, Metrics, RunError, Settings, Unreachable, run};

#[tokio::test]
async fn missing_definitions_are_named_with_the_way_to_get_them() {
    let diary = Diary::default();
    let settings = Settings {
        machine: None,
        cluster: None,
        pace: pace(),
        metrics: Metrics::default(),
        health: Health::default(),
        first_look: None,
        seat: seat("only"),
    };
    let error = run(FakeApi::new(diary).client(), settings, CancellationToken::new()).await.unwrap_err();
    let RunError::Start(Unreachable::MissingKinds(missing)) = error else { panic!("{error:?}") };
    assert!(missing.contains("containernetworks.underpass.dev, "), "{missing}");
    assert!(Unreachable::MissingKinds(missing).to_string().contains("underpass crds | kubectl apply"));
}
