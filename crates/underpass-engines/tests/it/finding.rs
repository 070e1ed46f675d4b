use tokio::net::{TcpListener, UnixStream};
use underpass_engines::labels::{INSTANCE, Maker};
use underpass_engines::{Candidate, ContainerEngine, ContainerState, EngineKind, LocalEngine, candidates};
use underpass_testbed::{PrivateEngine, TestEngine};

use crate::{on_both, shell};

on_both!(
    is_what_the_variable_names,
    is_reached_over_tcp,
    of_another_kind_is_not_taken,
    that_is_away_is_said_and_found_again
);

async fn is_what_the_variable_names(test: TestEngine) {
    let (name, value) = test.variable();
    let places = candidates(None, |variable| (variable == name).then(|| value.to_owned()));
    let engine = LocalEngine::new(places, None, Maker::this_process("x").unwrap());
    let found = engine.describe().await.unwrap();
    assert_eq!((found.kind, found.address.as_str(), found.because.as_str()), (test.kind, value, name));
    assert!(found.version.starts_with(|c: char| c.is_ascii_digit()), "{found}");
}

async fn of_another_kind_is_not_taken(test: TestEngine) {
    let kind = test.kind;
    let other = if kind == EngineKind::Docker { EngineKind::Podman } else { EngineKind::Docker };
    let place = Candidate::new("test", &test.address);
    let engine = LocalEngine::new(vec![place], Some(other), Maker::this_process("x").unwrap());
    let refused = engine.health().await.unwrap_err().to_string();
    assert!(refused.contains(&format!("it is {kind}, and {other} was asked for")), "{refused}");
}

async fn that_is_away_is_said_and_found_again(test: TestEngine) {
    let mut private = PrivateEngine::start(test.kind);
    let test = private.view();
    test.engine.health().await.unwrap();
    private.stop();
    let away = test.engine.health().await.unwrap_err();
    assert_eq!(away.cause(), underpass_plan::Cause::NoContainerEngine, "{away}");
    assert!(away.to_string().contains(&test.address), "{away}");
    private.start_again();
    test.engine.health().await.unwrap();
}

/// Containers too: they are asked for in a way of our own.
async fn is_reached_over_tcp(test: TestEngine) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let socket = test.address.strip_prefix("unix://").unwrap().to_owned();
    let bridge = tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut far = UnixStream::connect(&socket).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
        }
    });
    let remote = LocalEngine::new(vec![Candidate::new("test", address)], None, Maker::this_process("x").unwrap());
    let id = test.engine.create_container(&shell(&test, None, "true").await).await.unwrap();
    let found = remote.find_container(&id).await.unwrap().unwrap();
    assert_eq!(found.state, ContainerState::Created);
    assert_eq!(remote.list_containers(&[(INSTANCE, &test.instance)]).await.unwrap(), [found]);
    bridge.abort();
}
