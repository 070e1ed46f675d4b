//! `-f`: applied once ready; what is wrong is said with file, document and field.

use underpass_testbed::Launch;

use super::{assert_contains, network, write};
use crate::BINARY;

#[test]
fn files_with_many_documents_are_applied_in_an_order_that_works() {
    let folder = tempfile::tempdir().unwrap();
    let namespaced = "apiVersion: underpass.dev/v1alpha1\nkind: GatewayClient\nmetadata: {name: c, namespace: team}\nspec: {gatewayName: g}\n";
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n";
    let first = write(
        folder.path(),
        "first.yaml",
        &format!("# a comment\n---\n{namespaced}---\n{namespace}---\n{}", network("one")),
    );
    let second = write(
        folder.path(),
        "second.json",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"k":"v"}}"#,
    );
    let mut server = Launch::up(BINARY).file(&first).file(&second).start();
    server.process().wait_for_stderr("all documents", |text| (text.matches("applied ").count() == 4).then_some(()));
    let kubectl = server.kubectl();
    assert_eq!(kubectl.ok("get gwc -n team -o name"), "gatewayclient.underpass.dev/c\n");
    assert_eq!(kubectl.ok("get ctrnet/one cm/c -o name"), "containernetwork.underpass.dev/one\nconfigmap/c\n");
    let manager = "jsonpath='{.metadata.managedFields[0].manager}'";
    assert_eq!(kubectl.ok(&format!("get cm c --show-managed-fields -o {manager}")), "underpass-apply");
}

#[test]
fn a_file_that_cannot_be_read_or_parsed_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.yaml");
    let broken = write(folder.path(), "broken.yaml", &format!("{}---\nkind: [\n", network("net")));
    let empty = write(folder.path(), "empty.yaml", "# nothing yet\n");
    let list = write(folder.path(), "list.yaml", "[]\n");
    let unknown = write(folder.path(), "unknown.yaml", &network("net").replace("Network\n", "Netwrok\n"));
    let nameless = write(folder.path(), "nameless.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n");
    for (file, words) in [
        (&empty, vec!["empty.yaml holds no object"]),
        (&list, vec!["list.yaml, document 1 holds a list, where an object"]),
        (
            &unknown,
            vec!["unknown.yaml, document 1 (ContainerNetwrok net): underpass.dev has no ContainerNetwrok in version"],
        ),
        (&missing, vec!["cannot read", "missing.yaml"]),
        (&broken, vec!["broken.yaml, document 2 cannot be parsed"]),
        (&nameless, vec!["nameless.yaml, document 1", "metadata.name is missing"]),
    ] {
        let (process, _home) = Launch::up(BINARY).file(file).spawn_server();
        let ended = process.wait();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended}");
        assert_contains(&ended.stderr, &words);
        assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
    }
}

#[test]
fn a_kind_that_the_server_does_not_have_is_named_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    for (version, kind) in [("v1", "Foo"), ("nope.dev/v1", "Foo")] {
        let file =
            write(folder.path(), "foo.yaml", &format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n"));
        let (process, _home) = Launch::up(BINARY).arg("--log-level").arg("error").file(&file).spawn_server();
        let said = process.wait().failed();
        let end = format!(
            "foo.yaml, document 1 ({kind} x) was not applied: the server has no kind {kind} in {version}; `kubectl api-resources` shows those that it has\n"
        );
        assert!(said.ends_with(&end) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn a_mistake_in_an_object_of_ours_is_found_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let bad = network("bad").replace("spec: {}", "spec: {mode: sometimes}");
    let file = write(folder.path(), "two.yaml", &format!("{}---\n{bad}", network("good")));
    let (process, _home) = Launch::up(BINARY).file(&file).spawn_server();
    let ended = process.wait();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended}");
    assert_contains(&ended.stderr, &["two.yaml, document 2 (ContainerNetwork bad): spec.mode", "\"sometimes\""]);
    assert!(!ended.stderr.contains("applied"), "{ended}");
}

#[test]
fn what_only_the_server_can_refuse_is_named_and_nothing_is_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let bad = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Bad_Name}\n";
    let file = write(folder.path(), "two.yaml", &format!("{}---\n{bad}", network("good")));
    let (process, _home) = Launch::up(BINARY).data_dir(&data).file(&file).spawn_server();
    let ended = process.wait();
    assert_eq!(ended.code, Some(1), "{ended}");
    assert_contains(&ended.stderr, &["two.yaml, document 2 (ConfigMap Bad_Name) was not applied", "metadata.name"]);
    assert_contains(
        &ended.stderr,
        &[
            "applied before that, and kept: ContainerNetwork good\n",
            &format!("to remove them, start `underpass up --data-dir {}` and end it with Ctrl-C", data.display()),
        ],
    );
    let next = Launch::up(BINARY).data_dir(&data).start();
    assert_eq!(next.kubectl().ok("get ctrnet -o name"), "containernetwork.underpass.dev/good\n");
}

#[test]
fn without_a_place_to_keep_it_what_was_applied_before_a_refusal_goes() {
    let folder = tempfile::tempdir().unwrap();
    let bad = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Bad_Name}\n";
    let file = write(folder.path(), "two.yaml", &format!("{}---\n{bad}", network("good")));
    let (process, _home) = Launch::up(BINARY).file(&file).spawn_server();
    let ended = process.wait();
    assert_eq!(ended.code, Some(1), "{ended}");
    let kept = "with --ephemeral nothing is kept: what was applied before goes now (ContainerNetwork good)\n";
    let places = ["was not applied: ", kept, "deleted  ContainerNetwork good\n"]
        .map(|words| ended.stderr.find(words).unwrap_or_else(|| panic!("{words}: {ended}")));
    assert!(places.is_sorted(), "{ended}");
}

#[test]
fn a_definition_whose_names_are_taken_is_told() {
    let definition = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"others.underpass.dev"},
        "spec":{"group":"underpass.dev","scope":"Cluster","names":{"plural":"others","kind":"ContainerNetwork"},
        "versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "definition.json", definition);
    let (process, _home) = Launch::up(BINARY).file(&file).spawn_server();
    let said = process.wait().failed();
    assert_contains(
        &said,
        &["was not applied: the server does not serve it; `kubectl describe crd others.underpass.dev`"],
    );
}

#[test]
fn standard_input_is_a_file_too() {
    let planned = Launch::command(BINARY, "plan").arg("-f").arg("-").run_with(&network("net")).ok();
    assert_contains(&planned, &["ContainerNetwork net"]);
    for nothing in ["", "null", "# nothing\n"] {
        let ended = Launch::command(BINARY, "plan").arg("-f").arg("-").run_with(nothing);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended}");
        assert_eq!(ended.stderr, "underpass: stdin holds no object: it is empty, or nothing but comments\n");
    }
}
