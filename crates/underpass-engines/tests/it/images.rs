use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bollard::query_parameters::EventsOptions;
use futures::TryStreamExt;
use serde_json::json;
use tempfile::NamedTempFile;
use underpass_engines::labels::{IMAGE, labels};
use underpass_engines::{
    BuildRequest, ContainerEngine, ContainerRequest, EngineError, EngineKind, Ensured, Outcome, TunnelImages,
};
use underpass_testbed::{PrivateEngine, Process, Signal, TestEngine};

use crate::fake::FakeEngine;
use crate::{eventually, on_both, on_rootless_too, run, wait_for_end};

on_both!(
    is_loaded_once_and_runs,
    is_made_once_by_many,
    is_loaded_once_by_many_processes,
    is_made_by_another_process_when_its_maker_is_killed,
    is_built_on_a_local_base,
    without_a_base_names_both_attempts,
    whose_build_fails_tells_the_output,
    that_is_old_is_collected_unless_it_is_used,
);
on_rootless_too!(is_loaded_once_and_runs, is_built_on_a_local_base);

/// A program that no other test has: busybox, and something of its own behind it.
fn program(own: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&std::fs::read("/bin/busybox").unwrap()).unwrap();
    file.write_all(own.as_bytes()).unwrap();
    file
}

async fn remove(test: &TestEngine, ensured: &Ensured) {
    test.engine.remove_image(&ensured.id).await.unwrap();
    assert_eq!(test.engine.find_image(&ensured.reference).await, Ok(None));
}

/// The program is busybox, whatever its name: called with the name of an applet as its first argument.
fn request(test: &TestEngine, image: &str) -> ContainerRequest {
    ContainerRequest {
        name: test.name("c"),
        image: image.to_owned(),
        command: vec!["hello".into()],
        ..ContainerRequest::default()
    }
}

async fn is_loaded_once_and_runs(test: TestEngine) {
    let program = program(&test.name("program"));
    let images = TunnelImages::new(program.path());
    let first = images.ensure(&test.engine, None).await.unwrap();
    assert_eq!(first.outcome, Outcome::Loaded);
    assert!(first.reference.starts_with("localhost/underpass-tunnel:"), "{}", first.reference);
    let again = TunnelImages::new(program.path()).ensure(&test.engine, None).await.unwrap();
    assert_eq!(again, Ensured { outcome: Outcome::Reused, ..first.clone() });
    let image = test.engine.find_image(&first.reference).await.unwrap().unwrap();
    assert_eq!(image.labels[IMAGE], "tunnel-client");

    let id = run(&test, &request(&test, &first.reference)).await;
    wait_for_end(&test, &id).await;
    let said = test.engine.container_logs(&id, 10).await.unwrap();
    assert!(said.contains("applet not found"), "{said}");
    test.engine.remove_container(&id).await.unwrap();
    remove(&test, &first).await;
}

async fn is_made_once_by_many(test: TestEngine) {
    let program = Arc::new(program(&test.name("program")));
    let ensure = |_| {
        let (engine, program) = (test.engine.clone(), Arc::clone(&program));
        // Each as a process would: with nothing in common but the host.
        tokio::spawn(async move { TunnelImages::new(program.path()).ensure(&engine, None).await.unwrap() })
    };
    let made: Vec<Ensured> =
        futures::future::join_all((0..5).map(ensure)).await.into_iter().map(Result::unwrap).collect();
    let loads = made.iter().filter(|ensured| ensured.outcome == Outcome::Loaded).count();
    assert_eq!(loads, 1, "{made:?}");
    assert!(made.iter().all(|ensured| ensured.id == made[0].id && ensured.reference == made[0].reference));
    remove(&test, &made[0]).await;
}

/// What one of several processes does; started by [`ensuring`].
#[tokio::test]
#[ignore = "a process of another test"]
async fn ensured_by_this_process() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let kind = if variable("ENGINE") == "Docker" { EngineKind::Docker } else { EngineKind::Podman };
    let test = TestEngine::at(kind, &variable("ADDRESS"));
    let base = std::env::var("BASE").ok();
    let ensured = TunnelImages::new(variable("PROGRAM")).ensure(&test.engine, base.as_deref()).await.unwrap();
    println!("ensured {} {:?}", ensured.id, ensured.outcome);
}

fn ensuring(test: &TestEngine, program: &NamedTempFile, base: Option<&str>) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["images::ensured_by_this_process", "--exact", "--ignored", "--nocapture"]);
    command.env("ENGINE", test.kind.to_string()).env("ADDRESS", &test.address).env("PROGRAM", program.path());
    Process::start(command.envs(base.map(|base| ("BASE", base))))
}

/// Counted by the engine itself, which nobody else uses.
async fn is_loaded_once_by_many_processes(test: TestEngine) {
    let private = PrivateEngine::start(test.kind);
    let test = private.view();
    let program = program(&test.name("program"));
    let processes: Vec<Process> = (0..5).map(|_| ensuring(&test, &program, None)).collect();
    let said: Vec<String> = processes.into_iter().map(|process| process.wait().ok()).collect();
    let loaded = said.iter().filter(|said| said.contains(" Loaded")).count();
    let reused = said.iter().filter(|said| said.contains(" Reused")).count();
    assert_eq!((loaded, reused), (1, 4), "{said:?}");
    assert_eq!(loads(&test).await, 1, "as the engine counts");
}

/// In the middle of its work, which holds up the other one.
async fn is_made_by_another_process_when_its_maker_is_killed(test: TestEngine) {
    let step = test.name("a-step");
    let lines = format!(r#"ONBUILD RUN ["/busybox", "sh", "-c", "/busybox sleep 2; echo {step}"]"#);
    let base = test.image_with(&lines).await;
    let program = program(&test.name("program"));
    let maker = ensuring(&test, &program, Some(&base));
    eventually("the build", || async { runs(&step).then_some(()) }).await;
    let other = ensuring(&test, &program, Some(&base));
    maker.signal(Signal::KILL);
    assert_eq!(maker.wait().code, None, "it did not end by itself");
    let said = other.wait().ok();
    assert!(said.contains(" Built"), "{said}");
    test.remove_image_and_its_children(&base).await;
}

/// Whether a container's process has this word in its command line.
fn runs(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let commands = processes.filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok());
    commands.into_iter().any(|command| command.starts_with("/busybox") && command.contains(word))
}

/// How often the engine has loaded an archive, as its own events tell.
async fn loads(test: &TestEngine) -> usize {
    let socket = test.address.strip_prefix("unix://").unwrap();
    let docker = bollard::Docker::connect_with_unix(socket, 30, bollard::API_DEFAULT_VERSION).unwrap();
    let docker = docker.negotiate_version().await.unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() + 1;
    let options = EventsOptions {
        since: Some("1".into()),
        until: Some(now.to_string()),
        filters: Some([("type".to_owned(), vec!["image".to_owned()])].into()),
    };
    let events: Vec<_> = docker.events(Some(options)).try_collect().await.unwrap();
    events.iter().filter(|event| matches!(event.action.as_deref(), Some("load" | "loadfromarchive"))).count()
}

async fn is_built_on_a_local_base(test: TestEngine) {
    let base = test.busybox().await;
    let program = program(&test.name("program"));
    let images = TunnelImages::new(program.path());
    let bare = images.ensure(&test.engine, None).await.unwrap();
    let built = images.ensure(&test.engine, Some(&base)).await.unwrap();
    assert_eq!(built.outcome, Outcome::Built);
    assert_ne!(built.reference, bare.reference, "the base is part of the tag");
    assert_eq!(images.ensure(&test.engine, Some(&base)).await.unwrap().outcome, Outcome::Reused);

    let request = ContainerRequest {
        entrypoint: vec!["/busybox".into()],
        command: ["ls", "-l", "/"].map(str::to_owned).to_vec(),
        ..request(&test, &built.reference)
    };
    let id = run(&test, &request).await;
    wait_for_end(&test, &id).await;
    let said = test.engine.container_logs(&id, 100).await.unwrap();
    let program = said.lines().find(|line| line.ends_with(" underpass")).unwrap_or_else(|| panic!("{said}"));
    assert!(program.starts_with("-rwxr-xr-x"), "{program}");
    test.engine.remove_container(&id).await.unwrap();
    remove(&test, &built).await;
    remove(&test, &bare).await;
}

async fn without_a_base_names_both_attempts(test: TestEngine) {
    let program = program(&test.name("program"));
    let images = TunnelImages::new(program.path());
    let base = "localhost/nobody-has-this:1";
    let refused = images.ensure(&test.engine, Some(base)).await.unwrap_err();
    let words = refused.to_string();
    assert!(matches!(refused, EngineError::NoImage { .. }), "{words}");
    assert!(words.contains(base) && words.contains("pull failed") && words.contains("no local copy"), "{words}");
}

/// Long before whoever waits for the image gives up.
#[tokio::test]
async fn a_pull_that_hangs_leads_to_the_local_copy() {
    const LONG: Duration = Duration::from_secs(400);
    let (asked, mut pulls) = tokio::sync::mpsc::unbounded_channel();
    let fake = FakeEngine::start(move |question| match question.split('?').next().unwrap_or_default() {
        "/version" => Some((200, json!({ "Version": "1" }))),
        "/images/base:1/json" => Some((200, json!({ "Id": "sha256:base" }))),
        "/images/create" => {
            asked.send(()).unwrap();
            None
        }
        _ => Some((404, json!({ "message": "no such image" }))),
    });
    let (engine, program) = (fake.engine(), program("of its own"));
    let images = TunnelImages::new(program.path());
    let hurry = async {
        pulls.recv().await.unwrap();
        tokio::time::pause();
        tokio::time::advance(LONG).await;
        tokio::time::resume();
    };
    let (found, ()) = tokio::join!(images.find(&engine, Some("base:1")), hurry);
    assert_eq!(found, Ok(None), "the base is known, and nothing is built on it as yet");
}

async fn whose_build_fails_tells_the_output(test: TestEngine) {
    let base = test.busybox().await;
    let mut tar = tar::Builder::new(Vec::new());
    let dockerfile = format!("FROM {base}\nRUN [\"/busybox\", \"sh\", \"-c\", \"echo the reason is here; exit 3\"]\n");
    let mut header = tar::Header::new_gnu();
    header.set_size(dockerfile.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, "Dockerfile", dockerfile.as_bytes()).unwrap();
    let reference = format!("localhost/{}:1", test.name("broken"));
    let request =
        BuildRequest { reference: reference.clone(), context: tar.into_inner().unwrap().into(), labels: labels(&[]) };
    let refused = test.engine.build_image(request).await.unwrap_err();
    let EngineError::BuildFailed { output, .. } = &refused else { panic!("{refused}") };
    assert!(output.contains("the reason is here"), "{output}");
    assert_eq!(test.engine.find_image(&reference).await, Ok(None));
}

async fn that_is_old_is_collected_unless_it_is_used(test: TestEngine) {
    let programs = ["old", "held", "ran", "new"].map(|own| program(&test.name(own)));
    let [old, held, ran, new] = programs.each_ref().map(|program| TunnelImages::new(program.path()));
    let in_use = held.ensure(&test.engine, None).await.unwrap();
    let with_container = ran.ensure(&test.engine, None).await.unwrap();
    let container = test.engine.create_container(&request(&test, &with_container.reference)).await.unwrap();
    drop(ran);
    let unused = old.ensure(&test.engine, None).await.unwrap();
    drop(old);
    let newest = new.ensure(&test.engine, None).await.unwrap();
    let there = |ensured: &Ensured| {
        let (engine, reference) = (test.engine.clone(), ensured.reference.clone());
        async move { engine.find_image(&reference).await.unwrap().is_some() }
    };
    assert!(!there(&unused).await, "nobody uses it");
    assert!(there(&in_use).await, "a process uses it");
    assert!(there(&with_container).await, "a container uses it");
    test.engine.remove_container(&container).await.unwrap();
    for ensured in [in_use, with_container, newest] {
        let _ = test.engine.remove_image(&ensured.id).await;
    }
}
