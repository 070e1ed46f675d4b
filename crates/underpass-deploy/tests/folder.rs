//! What lies under `deploy/` is what the objects say. `UPDATE=1 cargo test -p underpass-deploy` rewrites it. Whether a cluster and Helm
//! agree is tested on a lab.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use underpass_deploy::{INSTALLED, Platform, Settings, chart, objects};
use underpass_resources::proxy_server::{CONSTRAINTS_ROLE, TARGETS_ROLE};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn manifests(platform: Platform) -> String {
    let all = objects(&Settings { platform, ..Settings::default() });
    all.iter().map(|object| serde_saphyr::to_string(object).unwrap()).collect::<Vec<_>>().join("---\n")
}

fn wanted() -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::from([
        ("kubernetes.yaml".into(), manifests(Platform::Kubernetes)),
        ("openshift.yaml".into(), manifests(Platform::OpenShift)),
    ]);
    files.extend(chart().into_iter().map(|file| (Path::new("helm/underpass").join(file.path), file.text)));
    files
}

#[test]
fn the_folder_is_not_stale() {
    for (path, text) in wanted() {
        let path = folder().join(path);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let present = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(present == text, "{} is stale: run UPDATE=1 cargo test -p underpass-deploy", path.display());
    }
}

#[test]
fn every_object_has_the_label_by_which_it_is_found_again() {
    let (label, value) = INSTALLED;
    for object in objects(&Settings { platform: Platform::OpenShift, ..Settings::default() }) {
        assert_eq!(object["metadata"]["labels"][label], value, "{object}");
    }
}

#[test]
fn no_two_objects_have_the_same_name() {
    let all = objects(&Settings { platform: Platform::OpenShift, ..Settings::default() });
    let names: BTreeSet<(String, String)> =
        all.iter().map(|object| (object["kind"].to_string(), object["metadata"]["name"].to_string())).collect();
    assert_eq!(names.len(), all.len());
}

/// Roles that it writes cannot give more than it has, but for those that it may bind by name; it sees pods and makes them only by Deployments,
/// and no secret is ever read.
#[test]
fn the_operator_cannot_make_itself_more_powerful() {
    let all = objects(&Settings { platform: Platform::OpenShift, ..Settings::default() });
    let rules = |object: &Value| object["rules"].as_array().cloned().unwrap_or_default();
    for rule in all.iter().flat_map(rules) {
        let text = rule.to_string();
        for forbidden in
            ["\"*\"", "secrets", "\"escalate\"", "impersonate", "pods/", "tokenreviews", "serviceaccounts/token"]
        {
            assert!(!text.contains(forbidden), "{forbidden} in {text}");
        }
        let has = |field: &str, word: &str| rule[field].as_array().is_some_and(|all| all.iter().any(|one| one == word));
        if has("resources", "clusterroles") {
            assert_eq!(
                (&rule["verbs"], &rule["resourceNames"]),
                (&json!(["bind"]), &json!([TARGETS_ROLE, CONSTRAINTS_ROLE]))
            );
        } else {
            assert!(!has("verbs", "bind"), "{text}");
        }
        assert!(!has("resources", "pods") || rule["verbs"] == json!(["get", "list", "watch"]), "{text}");
    }
}
