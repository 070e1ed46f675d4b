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
    assert_eq!(of("NetworkPolicy")["spec"]["egress"][0]["ports"][1]["port"], 7443);
    assert_eq!(of("ClusterRoleBinding")["subjects"][0]["namespace"], "crossings");
}

/// On the command line already: nodes would find out much later.
#[test]
fn an_image_is_a_name_that_nodes_understand() {
    for image in ["a b", "", "/x", "Upper/case:1", &"a".repeat(513)] {
        let refused = underpass(&["install", "--dry-run", "--image", image]);
        assert_eq!(refused.code, Some(2), "{refused}");
        assert_contains(&refused.stderr, &["--image", "not a container image: write a reference such as"]);
    }
    underpass(&["install", "--dry-run", "--image", "registry.example.com:5000/Team_1/image:tag@sha256:0a"]).ok();
}

/// Asked for help behind the rest of its words: a flag that does not exist is refused before that.
#[test]
fn what_helm_says_at_the_end_can_be_typed() {
    let notes = std::fs::read_to_string(root().join("deploy/helm/underpass/templates/NOTES.txt")).unwrap();
    let typed: Vec<&str> = notes.lines().filter_map(|line| line.trim().strip_prefix("underpass ")).collect();
    assert!(!typed.is_empty(), "{notes}");
    for words in typed {
        let words: Vec<&str> = words.split(' ').chain(["--help"]).collect();
        underpass(&words).ok();
    }
    assert_eq!(underpass(&["uninstall", "--namespace", "x", "--help"]).code, Some(2), "such a flag would be found");
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
