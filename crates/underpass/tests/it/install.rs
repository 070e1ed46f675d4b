//! What is put onto a cluster, as far as no cluster is needed for it. The rest is tested on a lab (`tests/lab`).

use std::process::Command;

use serde_json::Value;
use underpass_testbed::{Ended, Process};

use crate::server::embedded_apiserver;
use crate::{BINARY, assert_contains, root};

fn underpass(words: &[&str]) -> Ended {
    Process::start(Command::new(BINARY).args(words)).wait()
}

#[test]
fn a_dry_run_prints_the_manifests_of_the_release() {
    for platform in ["kubernetes", "openshift"] {
        let printed = underpass(&["install", "--dry-run", "--platform", platform]).ok();
        let released = std::fs::read_to_string(root().join(format!("deploy/{platform}.yaml"))).unwrap();
        assert!(printed == released, "{platform} differs from what is printed");
    }
}

#[test]
fn what_is_said_is_in_what_is_printed() {
    let words = ["--namespace", "crossings", "--image", "example/u:1", "--replicas", "3", "--api-server-port", "7443"];
    let printed = underpass(&[&["install", "--dry-run", "-o", "json"], &words[..]].concat()).ok();
    let list: Value = serde_json::from_str(&printed).unwrap();
    let of = |kind: &str| list["items"].as_array().unwrap().iter().find(|object| object["kind"] == kind).unwrap();
    assert_eq!(of("Namespace")["metadata"]["name"], "crossings");
    let deployment = of("Deployment");
    assert_eq!(
        (&deployment["metadata"]["namespace"], &deployment["spec"]["replicas"]),
        (&"crossings".into(), &3.into())
    );
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "example/u:1");
    assert_eq!(of("NetworkPolicy")["spec"]["egress"][1]["ports"][1]["port"], 7443);
    assert_eq!(of("ClusterRoleBinding")["subjects"][0]["namespace"], "crossings");
}

/// Its controllers would fight those that it has.
#[test]
fn an_embedded_server_is_no_cluster() {
    let server = embedded_apiserver();
    for command in ["install", "uninstall"] {
        let refused = underpass(&[command, "--kubeconfig", &server.kubeconfig().display().to_string()]).failed();
        assert_contains(&refused, &["is an embedded API server of underpass, which runs no pods", "--context"]);
    }
    assert_eq!(server.kubectl().ok("get deployments -A -o name"), "");
}

#[test]
fn without_a_kubeconfig_it_says_where_one_is_expected() {
    let refused = underpass(&["install", "--kubeconfig", "/nowhere/kubeconfig"]).failed();
    assert_contains(&refused, &["there is no kubeconfig at /nowhere/kubeconfig: say with --kubeconfig which cluster"]);
}
