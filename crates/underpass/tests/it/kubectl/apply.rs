//! Declaring: client-side and server-side apply, conflicts, pruning, diff, validation.

use super::{assert_contains, config_map, network};
use crate::{apiserver, up};

#[test]
fn client_side_apply_creates_changes_and_removes() {
    let server = apiserver();
    let kubectl = server.kubectl();
    let two_keys = config_map("a", "k", "1").replace("{k: '1'}", "{k: '1', other: x}");
    assert_eq!(kubectl.ok_with("apply -f -", &two_keys), "configmap/a created\n");
    assert_eq!(kubectl.ok_with("apply -f -", &two_keys), "configmap/a unchanged\n");
    assert_eq!(kubectl.ok_with("apply -f -", &config_map("a", "k", "2")), "configmap/a configured\n");
    assert_eq!(kubectl.json("get cm a")["data"], serde_json::json!({ "k": "2" }));
    assert_contains(&kubectl.ok("apply view-last-applied cm a"), &["k: \"2\""]);
}

#[test]
fn client_side_apply_merges_lists_of_builtin_kinds_by_their_keys() {
    let deployment = |containers: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\nspec:\n  selector: {{matchLabels: {{a: b}}}}\n  \
             template:\n    metadata: {{labels: {{a: b}}}}\n    spec: {{containers: [{containers}]}}\n"
        )
    };
    let server = apiserver();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &deployment("{name: one, image: 'i:1'}, {name: two, image: 'i:1'}"));
    kubectl
        .ok(r#"patch deploy d -p '{"spec":{"template":{"spec":{"containers":[{"name":"injected","image":"x"}]}}}}'"#);
    kubectl.ok_with("apply -f -", &deployment("{name: one, image: 'i:2'}"));
    let images =
        kubectl.ok("get deploy d -o jsonpath='{range .spec.template.spec.containers[*]}{.name}={.image} {end}'");
    let mut images: Vec<_> = images.split_whitespace().collect();
    images.sort_unstable();
    assert_eq!(images, ["injected=x", "one=i:2"], "what the file never named stays");
}

#[test]
fn server_side_apply_shares_fields_and_tells_conflicts() {
    let server = apiserver();
    let kubectl = server.kubectl();
    let (one, two) = (config_map("a", "k", "1"), config_map("a", "k", "2"));
    assert_eq!(
        kubectl.ok_with("apply --server-side --field-manager=first -f -", &one),
        "configmap/a serverside-applied\n"
    );
    kubectl.ok_with("apply --server-side --field-manager=second -f -", &one);
    let refused = kubectl.fails_with("apply --server-side --field-manager=second -f -", &two);
    assert_contains(&refused, &["Apply failed with 1 conflict: conflict with \"first\": .data.k", "--force-conflicts"]);
    kubectl.ok_with("apply --server-side --field-manager=second --force-conflicts -f -", &two);
    let object = kubectl.json("get cm a --show-managed-fields");
    assert_eq!(object["data"]["k"], "2");
    let managers = object["metadata"]["managedFields"].as_array().unwrap();
    let owns_data =
        |name: &str| managers.iter().any(|entry| entry["manager"] == name && !entry["fieldsV1"]["f:data"].is_null());
    assert!(owns_data("second") && !owns_data("first"), "{managers:#?}");
}

#[test]
fn one_can_change_from_client_side_to_server_side_and_back() {
    let server = apiserver();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &config_map("a", "old", "1"));
    let warned = kubectl.run_with("apply --server-side -f -", &config_map("a", "new", "2"));
    assert_eq!(warned.clone().ok(), "configmap/a serverside-applied\n", "{warned}");
    assert_eq!(
        kubectl.json("get cm a")["data"],
        serde_json::json!({ "new": "2" }),
        "the field of the client-side file is gone"
    );
    assert_eq!(kubectl.ok_with("apply -f -", &config_map("a", "newer", "3")), "configmap/a configured\n");
    assert_eq!(kubectl.json("get cm a")["data"]["newer"], "3");
}

#[test]
fn pruning_deletes_what_the_files_no_longer_have() {
    let server = apiserver();
    let kubectl = server.kubectl();
    let label = |name: &str| config_map(name, "k", "v").replace(&format!("app: {name}"), "set: s");
    kubectl.ok_with("apply -f -", &[label("kept"), label("dropped"), config_map("foreign", "k", "v")].join("---\n"));
    let pruned = kubectl.ok_with("apply --prune -l set=s --prune-allowlist=core/v1/ConfigMap -f -", &label("kept"));
    assert_eq!(pruned, "configmap/kept unchanged\nconfigmap/dropped pruned\n");
    assert_eq!(kubectl.ok("get cm kept foreign -o name"), "configmap/kept\nconfigmap/foreign\n");
}

#[test]
fn diff_shows_the_change_and_makes_none() {
    let server = apiserver();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply --server-side -f -", &config_map("a", "k", "1"));
    assert_eq!(kubectl.ok_with("diff --server-side -f -", &config_map("a", "k", "1")), "");
    for flags in ["--server-side", ""] {
        let diff = kubectl.run_with(&format!("diff {flags} -f -"), &config_map("a", "k", "2"));
        assert_eq!(diff.code, Some(1), "{diff}");
        assert_contains(&diff.stdout, &["-  k: \"1\"", "+  k: \"2\""]);
    }
    let new = kubectl.run_with("diff -f -", &config_map("b", "k", "2"));
    assert_eq!(new.code, Some(1), "{new}");
    assert_contains(&new.stdout, &["+kind: ConfigMap", "+  name: b"]);
    assert_eq!(kubectl.ok("get cm a -o jsonpath='{.data.k}'"), "1");
    assert_contains(&kubectl.fails("get cm b"), &["(NotFound)"]);
}

#[test]
fn dry_runs_change_nothing() {
    let server = apiserver();
    let kubectl = server.kubectl();
    let text = network("net");
    assert_eq!(
        kubectl.ok_with("apply --dry-run=client -f -", &text),
        "containernetwork.underpass.dev/net created (dry run)\n"
    );
    assert_eq!(
        kubectl.ok_with("apply --dry-run=server -f -", &text),
        "containernetwork.underpass.dev/net created (server dry run)\n"
    );
    let shown = kubectl.ok_with("create --dry-run=server -o yaml -f -", &text);
    assert_contains(&shown, &["mode: session\n", "uid: "]);
    assert!(!shown.contains("resourceVersion"), "nothing was stored, so there is no version:\n{shown}");
    assert_eq!(kubectl.ok("get ctrnet -o name"), "");
    kubectl.ok_with("create -f -", &text);
    assert_eq!(
        kubectl.ok("delete ctrnet net --dry-run=server"),
        "containernetwork.underpass.dev \"net\" deleted (server dry run)\n"
    );
    assert_eq!(kubectl.ok("get ctrnet -o name"), "containernetwork.underpass.dev/net\n");
}

#[test]
fn unknown_fields_are_refused_warned_of_or_ignored() {
    let server = apiserver();
    let kubectl = server.kubectl();
    let text = network("net").replace("spec: {}", "spec: {colour: red}");
    let refused = kubectl.fails_with("apply --validate=strict -f -", &text);
    assert_contains(&refused, &["(BadRequest)", "strict decoding error: unknown field \"spec.colour\""]);
    let refused = kubectl.fails_with("apply --server-side -f -", &text);
    assert_contains(&refused, &[".spec.colour: field not declared in schema"]);
    let warned = kubectl.run_with("apply --validate=warn -f -", &text);
    assert_contains(&warned.stderr, &["Warning: unknown field \"spec.colour\""]);
    assert_eq!(warned.ok(), "containernetwork.underpass.dev/net created\n");
    let ignored = kubectl.run_with("apply --validate=ignore -f -", &text.replace("name: net", "name: other"));
    assert_eq!(
        (ignored.stderr.as_str(), ignored.stdout.as_str()),
        ("", "containernetwork.underpass.dev/other created\n")
    );
    assert!(kubectl.json("get ctrnet net")["spec"].get("colour").is_none(), "an unknown field is dropped");
    let builtin = config_map("c", "k", "v").replace("data:", "dat:");
    assert_contains(&kubectl.fails_with("create -f -", &builtin), &["strict decoding error: unknown field \"dat\""]);
}

#[test]
fn a_bad_manifest_is_refused_with_the_field_and_the_reason() {
    let server = up();
    let kubectl = server.kubectl();
    let refused = kubectl.fails_with("apply -f -", &network("net").replace("spec: {}", "spec: {mode: sometimes}"));
    assert_contains(&refused, &["spec.mode: Unsupported value: \"sometimes\"", "\"session\", \"persistent\""]);
    let refused = kubectl.fails_with("apply -f -", &config_map("Bad_Name", "k", "v"));
    assert_contains(&refused, &["metadata.name: Invalid value: \"Bad_Name\"", "RFC 1123"]);
    let refused = kubectl.fails_with("apply -n nowhere -f -", &config_map("a", "k", "v"));
    assert_contains(&refused, &["(NotFound)", "namespaces \"nowhere\" not found"]);
    let refused = kubectl.fails_with("apply -f -", &network("net").replace("ContainerNetwork", "ContainerNotwork"));
    assert_contains(&refused, &["no matches for kind \"ContainerNotwork\" in version \"underpass.dev/v1alpha1\""]);
}
