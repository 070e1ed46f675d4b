//! Real Podman and real Docker. Every test runs on both, and on rootless Podman where that is another world.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::print_stderr, reason = "what is not tested is said")]
#![allow(clippy::print_stdout, reason = "a process of a test tells its result")]

mod changes;
mod containers;
mod fake;
mod finding;
mod images;
mod networks;
mod versions;

use std::time::Duration;

use underpass_engines::labels::{OBJECT, UID, labels};
use underpass_engines::{Container, ContainerEngine, ContainerRequest, ContainerState, NetworkChoice};
use underpass_plan::NetworkRequest;
use underpass_plan::container_network::Network;
use underpass_testbed::TestEngine;

/// Declares each test twice: `podman::name` and `docker::name`.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod podman {
            use underpass_engines::EngineKind::Podman;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(underpass_testbed::TestEngine::shared(Podman)).await })*
        }
        mod docker {
            use underpass_engines::EngineKind::Docker;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(underpass_testbed::TestEngine::shared(Docker)).await })*
        }
    };
}
pub(crate) use on_both;

/// Declares a test for the Podman of a user without rights; it says so loudly where the machine cannot run one.
macro_rules! on_rootless_too {
    ($($name:ident),* $(,)?) => {
        mod rootless {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                match underpass_testbed::TestEngine::rootless() {
                    Ok(test) => super::$name(test).await,
                    Err(why) => eprintln!("NOT TESTED on rootless Podman: {why}"),
                }
            })*
        }
    };
}
pub(crate) use on_rootless_too;

fn network_request(name: &str) -> NetworkRequest {
    NetworkRequest {
        name: name.to_owned(),
        object: "dev".to_owned(),
        ipv6: false,
        owner: Some(format!("uid-of-{name}")),
    }
}

async fn make_network(test: &TestEngine) -> Network {
    let name = test.name("net");
    test.engine.create_network(&network_request(&name)).await.unwrap();
    test.engine.find_network(&name).await.unwrap().unwrap()
}

/// A container that runs a line of shell, on a network if one is given.
async fn shell(test: &TestEngine, network: Option<(&Network, &[&str])>, line: &str) -> ContainerRequest {
    ContainerRequest {
        name: test.name("c"),
        image: test.busybox().await,
        command: ["sh", "-c", line].map(str::to_owned).to_vec(),
        network: network.map(|(network, aliases)| NetworkChoice {
            id: network.id.clone(),
            aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(),
        }),
        labels: labels(&[(OBJECT, "dev"), (UID, "uid")]),
        ..ContainerRequest::default()
    }
}

async fn run(test: &TestEngine, request: &ContainerRequest) -> String {
    let id = test.engine.create_container(request).await.unwrap();
    test.engine.start_container(&id).await.unwrap();
    id
}

async fn wait_for_end(test: &TestEngine, id: &str) -> Container {
    eventually("the container has ended", || async {
        let container = test.engine.find_container(id).await.unwrap().unwrap();
        (container.state == ContainerState::Ended).then_some(container)
    })
    .await
}

/// Looks until there is something to see.
async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let looking = async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), looking).await.unwrap_or_else(|_| panic!("never came: {what}"))
}
