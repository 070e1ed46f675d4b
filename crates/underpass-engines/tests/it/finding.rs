use underpass_engines::labels::Maker;
use underpass_engines::{Candidate, ContainerEngine, EngineKind, LocalEngine, candidates};
use underpass_testbed::{PrivateEngine, TestEngine};

use crate::on_both;

on_both!(is_what_the_variable_names, of_another_kind_is_not_taken, that_is_away_is_said_and_found_again);

async fn is_what_the_variable_names(kind: EngineKind) {
    let test = TestEngine::shared(kind);
    let (name, value) = test.variable();
    let places = candidates(None, |variable| (variable == name).then(|| value.to_owned()));
    let engine = LocalEngine::new(places, None, Maker::this_process("x").unwrap());
    let found = engine.describe().await.unwrap();
    assert_eq!((found.kind, found.address.as_str(), found.because.as_str()), (kind, value, name));
    assert!(found.version.starts_with(|c: char| c.is_ascii_digit()), "{found}");
}

async fn of_another_kind_is_not_taken(kind: EngineKind) {
    let test = TestEngine::shared(kind);
    let other = if kind == EngineKind::Docker { EngineKind::Podman } else { EngineKind::Docker };
    let place = Candidate::new("test", &test.address);
    let engine = LocalEngine::new(vec![place], Some(other), Maker::this_process("x").unwrap());
    let refused = engine.health().await.unwrap_err().to_string();
    assert!(refused.contains(&format!("it is {kind}, and {other} was asked for")), "{refused}");
}

async fn that_is_away_is_said_and_found_again(kind: EngineKind) {
    let mut private = PrivateEngine::start(kind);
    let test = private.view();
    test.engine.health().await.unwrap();
    private.stop();
    let away = test.engine.health().await.unwrap_err();
    assert_eq!(away.cause(), underpass_plan::Cause::NoContainerEngine, "{away}");
    assert!(away.to_string().contains(&test.address), "{away}");
    private.start_again();
    test.engine.health().await.unwrap();
}
