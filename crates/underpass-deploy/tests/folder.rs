//! What lies under `deploy/` is what the objects say. `UPDATE=1 cargo test -p underpass-deploy` rewrites it. Whether a cluster and Helm
//! agree is tested on a lab.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use underpass_deploy::{INSTALLED, Platform, Settings, chart, objects};
use underpass_plan::{Action, proxy_deployment};
use underpass_resources::proxy_server::{CONSTRAINTS_ROLE, REPLICAS_CONSTRAINTS_ROLE, TARGETS_ROLE};

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
                (&json!(["bind"]), &json!([TARGETS_ROLE, CONSTRAINTS_ROLE, REPLICAS_CONSTRAINTS_ROLE]))
            );
        } else {
            assert!(!has("verbs", "bind"), "{text}");
        }
        assert!(!has("resources", "pods") || rule["verbs"] == json!(["get", "list", "watch"]), "{text}");
    }
}

/// As OpenShift would judge them; nothing that we have at hand does.
#[test]
fn constraints_allow_what_the_pods_of_proxies_ask_for_and_no_more() {
    for (replicas, name) in [(1, CONSTRAINTS_ROLE), (3, REPLICAS_CONSTRAINTS_ROLE)] {
        let all = objects(&Settings { platform: Platform::OpenShift, ..Settings::default() });
        let is_meant =
            |object: &&Value| object["kind"] == "SecurityContextConstraints" && object["metadata"]["name"] == name;
        let constraints = all.iter().find(is_meant).unwrap();
        let pod = pod_on_openshift(replicas);
        let mut asked = BTreeSet::new();
        for container in pod["containers"].as_array().unwrap() {
            let context = &container["securityContext"];
            assert_eq!(context["capabilities"]["drop"], constraints["requiredDropCapabilities"]);
            assert_eq!(context["readOnlyRootFilesystem"], constraints["readOnlyRootFilesystem"]);
            assert_eq!(context["allowPrivilegeEscalation"], constraints["allowPrivilegeEscalation"]);
            asked.extend(words(&context["capabilities"]["add"]).map(str::to_owned));
            // Whoever names no user gets one of the namespace, but only under MustRunAsRange: under the others the image's, which of Envoy
            // is root.
            let user =
                [&context["runAsUser"], &pod["securityContext"]["runAsUser"]].into_iter().find(|it| !it.is_null());
            let expected = if user.is_some() { "RunAsAny" } else { "MustRunAsRange" };
            assert_eq!(constraints["runAsUser"]["type"], expected, "{container:#}");
            assert_eq!(user == Some(&json!(0)), container["name"] == "address");
        }
        assert_eq!(asked, words(&constraints["allowedCapabilities"]).map(str::to_owned).collect());
        for volume in pod["volumes"].as_array().unwrap() {
            let known = words(&constraints["volumes"]).any(|kind| !volume[kind].is_null());
            assert!(known, "{volume}");
        }
        assert_eq!(json!(["runtime/default"]), constraints["seccompProfiles"]);
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    }
}

/// Of a proxy with so many replicas on a secondary network.
fn pod_on_openshift(replicas: u8) -> Value {
    let observed = json!({
        "object": {
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer",
            "metadata": { "name": "edge", "namespace": "hosted", "uid": "u-1" },
            "spec": {
                "networkConfig": { "serverIP": "192.168.100.4/24", "networkAttachmentName": "vlan" },
                "replicas": replicas,
                "backends": [{
                    "name": "api", "hostname": "api.example.com", "port": 443,
                    "targetService": "api", "targetPort": 6443, "targetNamespace": "cp",
                }],
            },
        },
        "attachment": { "found": { "config": json!({ "type": "macvlan", "ipam": { "type": "static" } }).to_string() } },
        "site": { "image": "underpass:1", "openshift": true },
        "now": "2026-01-01T00:00:00Z",
    });
    let plan = proxy_deployment::plan(&serde_json::from_value(observed).unwrap());
    let deployment = plan.actions.into_iter().find_map(|action| match action {
        Action::ApplyObject { object, .. } if object["kind"] == "Deployment" => Some(object),
        _ => None,
    });
    deployment.unwrap()["spec"]["template"]["spec"].take()
}

fn words(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}
