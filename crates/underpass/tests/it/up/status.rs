//! `underpass status`: a table, documents, and a stream of changes.

use std::process::Command;

use serde_json::Value;
use underpass_testbed::{Launch, Process, Signal, Underpass};

use super::{assert_contains, launch, network};
use crate::BINARY;
use crate::server::embedded_up;

fn status(server: &Underpass) -> Launch {
    launch("status").arg("--kubeconfig").arg(server.kubeconfig())
}

fn server_with_a_network() -> Underpass {
    let server = embedded_up();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &network("web"));
    kubectl.ok("wait --for=condition=Ready=False ctrnet/web --timeout=60s");
    server
}

#[test]
fn a_table_says_what_does_not_work_and_why() {
    let server = server_with_a_network();
    let table = status(&server).run().ok();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 2, "{table}");
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>(),
        ["KIND", "NAMESPACE", "NAME", "READY", "REASON", "MESSAGE", "AGE"]
    );
    let words: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(words[..4], ["ContainerNetwork", "web", "False", "NoContainerEngine"]);
    assert!(!table.contains('\x1b'), "no colours in a pipe");
}

#[test]
fn the_data_directory_says_whom_to_ask() {
    let server = server_with_a_network();
    let asked = || launch("status").arg("--data-dir").arg(server.data_dir());
    assert_contains(&asked().run().ok(), &["ContainerNetwork", "NoContainerEngine"]);
    let both = asked().arg("--kubeconfig").arg(server.kubeconfig()).run();
    assert_eq!(both.code, Some(2), "{both}");
    let nobody = tempfile::tempdir().unwrap();
    let refused = launch("status").arg("--data-dir").arg(nobody.path()).run().failed();
    assert_contains(&refused, &["there is no kubeconfig at", "start `underpass up`"]);
}

#[test]
fn without_controllers_it_says_so_and_how_to_start_them() {
    let server = crate::server::embedded_apiserver();
    let nothing = status(&server).run();
    assert_eq!(nothing.stderr, "", "nothing is there that could be wrong");
    server.kubectl().ok_with("apply -f -", &network("web"));
    let ended = status(&server).run();
    let start = format!("`underpass controllers --kubeconfig {}` starts them", server.kubeconfig().display());
    assert_contains(&ended.stderr, &["no controllers run on this API server", &start]);
    assert_contains(
        &ended.ok(),
        &["Unknown   NoControllers   no controllers run on this API server; `underpass controllers`"],
    );
    let (mut watch, _home) = status(&server).arg("--watch").spawn();
    watch.wait_for_stdout("the reason", |text| text.contains("\tUnknown\tNoControllers\t").then_some(()));
    let (controllers, _home) = launch("controllers").arg("--kubeconfig").arg(server.kubeconfig()).spawn();
    watch.wait_for_stdout("the verdict", |text| text.contains("\tFalse\tNoContainerEngine\t").then_some(()));
    assert_eq!(status(&server).run().stderr, "");
    controllers.signal(Signal::TERM);
    assert!(controllers.wait().code == Some(0));
    assert_contains(&status(&server).run().stderr, &["what is shown is as old as the last ones"]);
}

#[test]
fn an_operator_is_found_in_whichever_namespace_it_is_installed() {
    let server = crate::server::embedded_apiserver();
    server.kubectl().ok_with("apply -f -", &network("web"));
    server.kubectl().ok("create ns elsewhere");
    let lease = |holder: &str| {
        let lease = serde_json::json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": "underpass-operator", "namespace": "elsewhere" },
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": 600,
                "renewTime": format!("{:.6}", k8s_openapi::jiff::Timestamp::now()),
            },
        });
        server.kubectl().ok_with("apply -f -", &lease.to_string());
    };
    lease("underpass-operator-1");
    assert_eq!(status(&server).run().stderr, "");
    lease("");
    assert_contains(&status(&server).run().stderr, &["no controllers run on this API server"]);
}

#[test]
fn documents_can_be_read_by_programs() {
    let server = server_with_a_network();
    let list: Value = serde_json::from_str(&status(&server).arg("-o").arg("json").run().ok()).unwrap();
    assert_eq!((&list["kind"], &list["items"][0]["kind"]), (&"List".into(), &"ContainerNetwork".into()));
    let yaml: Value = serde_saphyr::from_str(&status(&server).arg("-o").arg("yaml").run().ok()).unwrap();
    assert_eq!(yaml, list);
    assert_eq!(
        server
            .kubectl()
            .ok_with(
                "apply --dry-run=server -f - -o name",
                &list.to_string().replace("\"resourceVersion\":\"\"", "\"x\":\"\"")
            )
            .lines()
            .count(),
        1
    );
}

#[test]
fn a_watch_tells_every_change_until_it_is_ended() {
    let server = server_with_a_network();
    let kubectl = server.kubectl();
    let (mut watch, _home) = status(&server).arg("--watch").spawn();
    watch.wait_for_stdout("what is there", |text| text.contains("\tweb\tFalse\tNoContainerEngine\t").then_some(()));
    kubectl.ok_with("apply -f -", &network("second"));
    watch.wait_for_stdout("what comes", |text| text.contains("\tsecond\tFalse\tNoContainerEngine\t").then_some(()));
    kubectl.ok("delete ctrnet web");
    watch.wait_for_stdout("what goes", |text| text.contains("\tweb\tFalse\tDeleted\t").then_some(()));
    watch.signal(Signal::INT);
    let ended = watch.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
}

#[test]
fn a_watch_of_documents_is_one_per_line() {
    let server = server_with_a_network();
    let (mut watch, _home) = status(&server).arg("--watch").arg("-o").arg("json").spawn();
    let first = watch.wait_for_stdout("a document", |text| text.split_once('\n').map(|(line, _)| line.to_owned()));
    let object: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(object["metadata"]["name"], "web");
    let (mut watch, _home) = status(&server).arg("--watch").arg("-o").arg("yaml").spawn();
    let text = watch.wait_for_stdout("a document", |text| text.contains("message:").then(|| text.to_owned()));
    assert!(text.starts_with("---\n"), "{text}");
}

/// `script` gives the command a terminal.
#[test]
fn on_a_terminal_the_table_is_drawn_again_with_every_change() {
    let server = server_with_a_network();
    let line = format!("stty cols 80; {BINARY} status --watch --kubeconfig {}", server.kubeconfig().display());
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env_remove("NO_COLOR");
    let mut watch = Process::start(&mut command);
    let row =
        |name: &'static str| move |text: &str| last_table(text).filter(|table| table.contains(name)).map(str::to_owned);
    let table = watch.wait_for_stdout("the table", row(" web "));
    assert_contains(&table, &["KIND", "\x1b[31mFalse\x1b[0m", "…"]);
    server.kubectl().ok_with("apply -f -", &network("second"));
    let table = watch.wait_for_stdout("the next table", row(" second "));
    assert_contains(&table, &["KIND", " web "]);
    // `script` passes it on to what it runs.
    watch.signal(Signal::TERM);
    watch.wait();
}

/// What stands on the screen since the cursor last went home.
fn last_table(text: &str) -> Option<&str> {
    let (_, tables) = text.split_once("\x1b[H")?;
    tables.rsplit("\x1b[H").find(|table| table.contains("\x1b[J"))
}

#[test]
fn the_environment_may_name_the_server() {
    let server = server_with_a_network();
    let several = format!("/nowhere:{}", server.kubeconfig().display());
    for value in [server.kubeconfig().to_str().unwrap(), &several] {
        assert_contains(&launch("status").env("KUBECONFIG", value).run().ok(), &["web", "NoContainerEngine"]);
    }
    let ended = launch("status").env("KUBECONFIG", "").run();
    assert_contains(&ended.failed(), &["there is no kubeconfig at ", ".local/state/underpass/kubeconfig"]);
}

#[test]
fn without_a_server_it_says_how_to_get_one() {
    let ended = launch("status").run();
    assert_eq!(ended.code, Some(1), "{ended}");
    assert_contains(&ended.stderr, &["there is no kubeconfig at ", "start `underpass up`", "--kubeconfig"]);
    let server = embedded_up();
    let copy = tempfile::NamedTempFile::new().unwrap();
    std::fs::copy(server.kubeconfig(), copy.path()).unwrap();
    server.kill();
    let ended = launch("status").arg("--kubeconfig").arg(copy.path()).run();
    assert_eq!(ended.code, Some(1), "{ended}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
}
