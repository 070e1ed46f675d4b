//! `underpass image`: the program as an image, the same every time, which both engines take; and the list of what is in it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use underpass_engines::EngineKind::{self, Docker, Podman};
use underpass_engines::{ContainerEngine, ContainerRequest, ContainerState};
use underpass_testbed::{Launch, PATIENCE, Process, TestEngine};

use crate::{BINARY, assert_contains, root};

/// What the command says: name, digest, size.
#[track_caller]
fn image(file: &Path, arguments: &[&str]) -> String {
    Launch::command(BINARY, "image").arg("--output").arg(file).args(arguments).run().ok()
}

#[test]
fn the_same_program_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one.tar"), folder.path().join("other.tar"));
    let said = image(&one, &[]);
    assert_contains(&said, &[concat!("underpass:", env!("CARGO_PKG_VERSION"), "\nsha256:")]);
    assert_eq!(said.lines().nth(1), image(&other, &[]).lines().nth(1), "the same digest");
    assert!(std::fs::read(&one).unwrap() == std::fs::read(&other).unwrap(), "and the same bytes");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left there");
    let failed = Launch::command(BINARY, "image").args(["-o", "/nowhere/image.tar"]).run().failed();
    assert_contains(&failed, &["cannot write /nowhere/image.tar"]);
}

/// A device would be gone for everybody, and a link would lead nowhere any more.
#[test]
fn only_a_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, link, file) = (folder.path().join("pipe"), folder.path().join("link"), folder.path().join("file"));
    Process::start(Command::new("mkfifo").arg(&pipe)).wait().ok();
    for output in [pipe.to_str().unwrap(), folder.path().to_str().unwrap(), "-"] {
        let refused = Launch::command(BINARY, "image").args(["-o", output]).run().failed();
        assert_contains(&refused, &[output, "is not a file"]);
    }
    std::fs::write(&file, "before").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    image(&link, &[]);
    assert!(link.is_symlink() && std::fs::metadata(&file).unwrap().len() > 1000);
    let refused = Launch::command(BINARY, "image").args(["--name", "A b::", "-o"]).arg(&file).run();
    assert_eq!(refused.code, Some(2), "{refused}");
}

async fn is_loaded_and_runs(kind: EngineKind) {
    let (test, folder) = (TestEngine::shared(kind), tempfile::tempdir().unwrap());
    let name = format!("{}:1", test.name("image"));
    let file = folder.path().join("image.tar");
    image(&file, &["--name", &name]);
    test.engine.load_image(std::fs::read(&file).unwrap().into()).await.unwrap();
    let loaded = test.engine.find_image(&name).await.unwrap().expect("it is found by the name that it was given");
    let request =
        ContainerRequest { name: test.name("c"), image: name, command: vec!["version".into()], ..Default::default() };
    let container = test.engine.create_container(&request).await.unwrap();
    test.engine.start_container(&container).await.unwrap();
    let ended = async {
        while test.engine.find_container(&container).await.unwrap().unwrap().state != ContainerState::Ended {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("it ends");
    let said = test.engine.container_logs(&container, 10).await.unwrap();
    assert_contains(&said, &[env!("CARGO_PKG_VERSION")]);
    test.engine.remove_container(&container).await.unwrap();
    test.engine.remove_image(&loaded.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn podman_takes_it() {
    is_loaded_and_runs(Podman).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docker_takes_it() {
    is_loaded_and_runs(Docker).await;
}

#[test]
fn the_bill_of_materials_has_what_is_linked_in_and_no_more() {
    let sbom = || Process::start(&mut Command::new(root().join("scripts/sbom"))).wait().ok();
    let text = sbom();
    assert_eq!(text, sbom(), "the same every time");
    let bom: Value = text.parse().unwrap();
    assert_eq!((&bom["bomFormat"], &bom["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    assert_eq!(bom["metadata"]["component"]["version"], env!("CARGO_PKG_VERSION"));
    let components = bom["components"].as_array().unwrap();
    let names: BTreeSet<&str> = components.iter().map(|part| part["name"].as_str().unwrap()).collect();
    for linked in ["tokio", "rustls", "kube-client", "underpass-operator", "rust-std", "libc6-dev"] {
        assert!(names.contains(linked), "{linked} is missing");
    }
    for other in ["proptest", "serde_derive", "cc", "underpass-testbed", "windows-sys"] {
        assert!(!names.contains(other), "{other} is not linked in");
    }
    let known: Vec<&Value> =
        components.iter().chain([&bom["metadata"]["component"]]).map(|part| &part["bom-ref"]).collect();
    for part in components {
        let ours = part["name"].as_str().unwrap().starts_with("underpass");
        assert!(part["licenses"][0]["expression"].is_string(), "{part:#}");
        assert!(ours || part["hashes"][0]["content"].as_str().is_some_and(|hash| hash.len() == 64), "{part:#}");
    }
    for node in bom["dependencies"].as_array().unwrap() {
        assert!(known.contains(&&node["ref"]));
        assert!(node["dependsOn"].as_array().unwrap().iter().all(|used| known.contains(&used)), "{node:#}");
    }
}
