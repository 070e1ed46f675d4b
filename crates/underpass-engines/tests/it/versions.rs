//! Engines of versions that the tests' own are not.

use serde_json::{Value, json};
use underpass_engines::{ContainerEngine, ContainerState};

use crate::fake::FakeEngine;

/// The oldest that Docker 29 takes, unless its owner says otherwise.
const MINIMUM: u32 = 44;

#[tokio::test]
async fn an_engine_that_has_dropped_old_versions_is_driven() {
    let docker = FakeEngine::start(|question| Some(docker_29(question)));
    let engine = docker.engine();
    engine.health().await.unwrap();
    let found = engine.find_container("c1").await.unwrap().unwrap();
    assert_eq!((found.name.as_str(), found.state), ("web", ContainerState::Running));
    let listed = engine.list_containers(&[("a", "b")]).await.unwrap();
    assert_eq!(engine.list_containers_on("n1", None).await.unwrap(), listed);
    assert_eq!(listed, [found]);
    assert_eq!(engine.find_container("c2").await.unwrap(), None);
    assert_eq!(engine.find_network("dev").await.unwrap().unwrap().id, "n1");
    assert_eq!(engine.list_volumes(&[]).await.unwrap(), []);
    assert_eq!(engine.list_images(&[]).await.unwrap(), []);
}

fn docker_29(question: &str) -> (u16, Value) {
    let path = question.split('?').next().unwrap_or_default();
    let (version, path) = versioned(path).map_or((None, path), |(version, path)| (Some(version), path));
    if let Some(version) = version.filter(|version| *version < MINIMUM) {
        let message = format!(
            "client version 1.{version} is too old. Minimum supported API version is 1.{MINIMUM}, please upgrade your client to a newer version"
        );
        return (400, json!({ "message": message }));
    }
    match path {
        "/_ping" => (200, json!("OK")),
        "/version" => {
            (200, json!({ "Version": "29.0.0", "ApiVersion": "1.52", "MinAPIVersion": format!("1.{MINIMUM}") }))
        }
        "/containers/json" => (200, json!([{ "Id": "c1" }])),
        "/containers/c1/json" => (200, container()),
        "/networks" => (200, json!([network()])),
        "/networks/n1" => (200, network()),
        "/volumes" => (200, json!({ "Volumes": [] })),
        "/images/json" => (200, json!([])),
        _ => (404, json!({ "message": format!("page not found: {path}") })),
    }
}

/// The minor version that a path names, and what is behind it.
fn versioned(path: &str) -> Option<(u32, &str)> {
    let (version, _) = path.strip_prefix("/v1.")?.split_once('/')?;
    Some((version.parse().ok()?, &path["/v1.".len() + version.len()..]))
}

fn container() -> Value {
    json!({
        "Id": "c1",
        "Name": "/web",
        "Image": "sha256:1",
        "Created": "2026-01-02T03:04:05.678Z",
        "State": { "Status": "running", "Pid": 7, "ExitCode": 0, "Error": "" },
        "Config": { "Labels": { "a": "b" } },
        "NetworkSettings": { "Ports": {}, "Networks": { "dev": { "IPAddress": "10.89.0.2", "Aliases": ["h"] } } },
    })
}

fn network() -> Value {
    json!({ "Id": "n1", "Name": "dev", "Driver": "bridge", "EnableIPv6": false, "IPAM": { "Config": [] }, "Containers": {} })
}
