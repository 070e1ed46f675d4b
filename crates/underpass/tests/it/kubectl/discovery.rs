//! What the server says about itself: resources, versions, schemas, who one is.

use super::{assert_contains, rows};
use crate::apiserver;
use crate::server::Own;

#[test]
fn resources_are_listed_with_short_names_verbs_and_categories() {
    let server = apiserver();
    let kubectl = server.kubectl();
    let ours = kubectl.ok("api-resources --api-group=underpass.dev -o wide --sort-by=name");
    let rows = rows(&ours);
    let verbs = "delete,deletecollection,get,list,patch,create,update,watch";
    let network =
        ["containernetworks", "ctrnet", "underpass.dev/v1alpha1", "false", "ContainerNetwork", verbs, "underpass"];
    assert_eq!(rows[1], network);
    assert_eq!(rows.len(), 1 + 6, "{ours}");
    assert_eq!(kubectl.ok("api-resources --api-group=hostedcluster.densityops.com -o name").lines().count(), 4);
    let namespaced = kubectl.ok("api-resources --namespaced=false -o name");
    assert_contains(
        &namespaced,
        &[
            "namespaces\n",
            "nodes\n",
            "customresourcedefinitions.apiextensions.k8s.io\n",
            "containernetworks.underpass.dev\n",
        ],
    );
    let core = kubectl.ok("api-resources --api-group= -o name");
    for name in [
        "configmaps",
        "events",
        "namespaces",
        "nodes",
        "pods",
        "podtemplates",
        "secrets",
        "serviceaccounts",
        "services",
    ] {
        assert!(core.lines().any(|line| line == name), "{name} is missing in:\n{core}");
    }
}

#[test]
fn versions_are_listed() {
    let server = apiserver();
    let kubectl = server.kubectl();
    let versions = kubectl.ok("api-versions");
    let expected = [
        "apiextensions.k8s.io/v1",
        "apps/v1",
        "authentication.k8s.io/v1",
        "authorization.k8s.io/v1",
        "coordination.k8s.io/v1",
        "discovery.k8s.io/v1",
        "events.k8s.io/v1",
        "hostedcluster.densityops.com/v1alpha1",
        "underpass.dev/v1alpha1",
        "v1",
    ];
    let mut found: Vec<_> = versions.lines().collect();
    let own = Own::GroupsAndVersion.holds();
    found.retain(|version| own || expected.contains(version));
    assert_eq!(found, expected);
    assert_contains(&kubectl.ok("version"), &["Server Version: v1.", if own { "+underpass-" } else { "" }]);
    assert_contains(&kubectl.ok("cluster-info"), &[server.api()]);
}

#[test]
fn every_kind_of_ours_is_explained_with_all_its_fields() {
    let server = apiserver();
    let kubectl = server.kubectl();
    for kind in underpass_resources::KINDS {
        let text = kubectl.ok(&format!("explain {}.{} --recursive", kind.plural, kind.group));
        assert_contains(
            &text,
            &[
                &format!("KIND:       {}", kind.kind),
                "  spec\t<Object>",
                "  status\t<Object>",
                "    conditions\t<[]Object>",
            ],
        );
        assert!(!text.contains("<empty>"), "{} is not described:\n{text}", kind.kind);
    }
    let backends = kubectl.ok("explain proxyserver.spec.backends");
    assert_contains(&backends, &["FIELD: backends <[]Object>", "hostname\t<string> -required-", "enum: "]);
    assert!(!backends.contains("<no description>"), "{backends}");
    assert_contains(&kubectl.fails("explain proxyserver.spec.nothing"), &["field \"nothing\" does not exist"]);
}

#[test]
fn kubernetes_kinds_are_explained() {
    let server = apiserver();
    let kubectl = server.kubectl();
    let containers = kubectl.ok("explain pod.spec.containers");
    assert_contains(
        &containers,
        &["FIELD: containers <[]Container>", "  image\t<string>", "  name\t<string> -required-"],
    );
    assert_contains(
        &kubectl.ok("explain deploy.spec.strategy --recursive"),
        &["rollingUpdate\t<RollingUpdateDeployment>", "maxSurge\t<IntOrString>"],
    );
    let version = kubectl.ok("explain events --api-version=events.k8s.io/v1");
    assert_contains(&version, &["GROUP:      events.k8s.io", "VERSION:    v1", "  regarding\t<ObjectReference>"]);
}
