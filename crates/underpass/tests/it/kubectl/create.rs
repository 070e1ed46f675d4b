//! Making: every sample file, names made by the server.

use super::{assert_contains, config_map};
use crate::{apiserver, manifests, root};

#[test]
fn every_sample_can_be_created_and_deleted() {
    let server = apiserver();
    let kubectl = server.kubectl();
    for file in manifests::good() {
        let seed = file.starts_with("testdata");
        if seed {
            // The founding documents take their namespace for granted.
            kubectl.ok_with("create -f -", "apiVersion: v1\nkind: Namespace\nmetadata: {name: hosted-clusters}\n");
        }
        let path = root().join(&file);
        let lines = kubectl.ok(&format!("create --validate=strict -f {}", path.display()));
        assert_eq!(lines.matches(" created\n").count(), manifests::documents(&path).len(), "{file}: {lines}");
        assert!(!kubectl.ok("get underpass -A -o name").is_empty(), "{file}");
        kubectl.ok(&format!("delete --ignore-not-found --timeout=60s -f {}", path.display()));
        if seed {
            kubectl.ok("delete ns hosted-clusters --timeout=60s");
        }
        assert_eq!(kubectl.ok("get underpass -A -o name"), "", "{file}");
    }
}

#[test]
fn the_server_makes_names() {
    let server = apiserver();
    let kubectl = server.kubectl();
    let text = config_map("x", "k", "v").replace("{name: x", "{generateName: job-");
    let (first, second) =
        (kubectl.ok_with("create -f - -o name", &text), kubectl.ok_with("create -f - -o name", &text));
    for name in [&first, &second] {
        let suffix = name.trim_end().strip_prefix("configmap/job-").unwrap();
        assert!(suffix.len() == 5 && suffix.chars().all(|letter| letter.is_ascii_alphanumeric()), "{name}");
    }
    assert_ne!(first, second);
    kubectl.ok_with("create -f -", &config_map("a", "k", "v"));
    assert_contains(
        &kubectl.fails_with("create -f -", &config_map("a", "k", "v")),
        &["(AlreadyExists)", "configmaps \"a\" already exists"],
    );
}

#[test]
fn the_writer_is_remembered_under_the_name_it_gives() {
    let server = apiserver();
    let kubectl = server.kubectl();
    kubectl.ok_with("create --field-manager=robot -f -", &config_map("a", "k", "v"));
    let object = kubectl.json("get cm a --show-managed-fields");
    let entry = &object["metadata"]["managedFields"][0];
    assert_eq!((&entry["manager"], &entry["operation"]), (&"robot".into(), &"Update".into()));
    assert!(entry["fieldsV1"]["f:data"]["f:k"].is_object(), "{entry:#}");
}
