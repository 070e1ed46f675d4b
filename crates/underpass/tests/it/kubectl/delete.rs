//! Deleting: what depends on the deleted, finalizers, collections, namespaces with content.

use super::{assert_contains, config_map};
use crate::apiserver;
use underpass_testbed::{Kubectl, PATIENCE, wait_until};

/// Makes an owner and a ConfigMap `NAME-child` that names it as its owner.
fn family(kubectl: &Kubectl, name: &str) {
    kubectl.ok_with("create -f -", &config_map(name, "k", "v"));
    let uid = kubectl.ok(&format!("get cm {name} -o jsonpath='{{.metadata.uid}}'"));
    let owner = format!("[{{apiVersion: v1, kind: ConfigMap, name: {name}, uid: {uid}, blockOwnerDeletion: true}}]");
    let child = config_map(&format!("{name}-child"), "k", "v")
        .replace("metadata: {", &format!("metadata: {{ownerReferences: {owner}, "));
    kubectl.ok_with("create -f -", &child);
}

#[test]
fn background_deletes_the_owner_and_then_what_it_owns() {
    let server = apiserver();
    let kubectl = server.kubectl();
    family(&kubectl, "a");
    assert_contains(&kubectl.ok("delete cm a --cascade=background"), &["configmap \"a\" deleted"]);
    kubectl.ok("wait --for=delete cm/a-child --timeout=60s");
    assert_contains(&kubectl.fails("get cm a-child"), &["(NotFound)"]);
}

#[test]
fn foreground_deletes_what_is_owned_first() {
    let server = apiserver();
    let kubectl = server.kubectl();
    family(&kubectl, "a");
    kubectl.ok(r#"patch cm a-child --type=merge -p '{"metadata":{"finalizers":["example.com/hold"]}}'"#);
    kubectl.ok("delete cm a --cascade=foreground --wait=false");
    wait_until("the child on its way", PATIENCE, || {
        let child = kubectl.json("get cm a-child");
        child["metadata"].get("deletionTimestamp").is_some().then_some(())
    });
    let owner = kubectl.json("get cm a");
    assert_eq!(owner["metadata"]["finalizers"], serde_json::json!(["foregroundDeletion"]));
    kubectl.ok(r#"patch cm a-child --type=json -p '[{"op":"remove","path":"/metadata/finalizers"}]'"#);
    kubectl.ok("wait --for=delete cm/a cm/a-child --timeout=60s");
    assert_eq!(kubectl.ok("get cm -l app -o name"), "");
}

#[test]
fn orphans_stay_and_forget_their_owner() {
    let server = apiserver();
    let kubectl = server.kubectl();
    family(&kubectl, "a");
    kubectl.ok("delete cm a --cascade=orphan");
    assert_contains(&kubectl.fails("get cm a"), &["(NotFound)"]);
    let child = kubectl.json("get cm a-child");
    assert!(child["metadata"].get("ownerReferences").is_none(), "{child:#}");
}

#[test]
fn a_finalizer_holds_an_object_until_it_is_removed() {
    let server = apiserver();
    let kubectl = server.kubectl();
    let held = config_map("a", "k", "v").replace("metadata: {", "metadata: {finalizers: [example.com/hold], ");
    kubectl.ok_with("create -f -", &held);
    let timed_out = kubectl.fails("delete cm a --timeout=1s");
    assert_contains(&timed_out, &["timed out waiting for the condition on configmaps/a"]);
    let object = kubectl.json("get cm a");
    assert!(object["metadata"]["deletionTimestamp"].is_string(), "{object:#}");
    let refused = kubectl
        .fails(r#"patch cm a --type=merge -p '{"metadata":{"finalizers":["example.com/hold","example.com/new"]}}'"#);
    assert_contains(
        &refused,
        &["metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted"],
    );
    let delete = kubectl.start("delete cm a --wait=true --timeout=60s");
    kubectl.ok(r#"patch cm a --type=json -p '[{"op":"remove","path":"/metadata/finalizers"}]'"#);
    delete.wait();
    assert_contains(&kubectl.fails("get cm a"), &["(NotFound)"]);
}

#[test]
fn many_are_deleted_by_label_and_all_at_once() {
    let server = apiserver();
    let kubectl = server.kubectl();
    kubectl.ok_with("create -f -", &["a", "b", "c"].map(|name| config_map(name, "k", "v")).join("---\n"));
    assert_eq!(kubectl.ok("delete cm -l 'app in (a,b)' -o name"), "configmap/a\nconfigmap/b\n");
    assert_contains(&kubectl.ok("delete --raw /api/v1/namespaces/default/configmaps"), &["\"items\""]);
    assert_eq!(kubectl.ok("get cm -l app -o name"), "");
    assert_eq!(kubectl.ok("delete cm nope --ignore-not-found"), "");
    assert_contains(&kubectl.fails("delete cm nope"), &["Error from server (NotFound): configmaps \"nope\" not found"]);
}

#[test]
fn a_namespace_goes_with_its_content_and_not_before() {
    let server = apiserver();
    let kubectl = server.kubectl();
    kubectl.ok_with("create -f -", "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n");
    wait_until("what each namespace has", PATIENCE, || {
        let names = kubectl.ok("get sa,cm -n team -o name");
        (names == "serviceaccount/default\nconfigmap/kube-root-ca.crt\n").then_some(())
    });
    let held = config_map("held", "k", "v").replace("metadata: {", "metadata: {finalizers: [example.com/hold], ");
    kubectl.ok_with("create -n team -f -", &[held, config_map("plain", "k", "v")].join("---\n"));
    kubectl.ok_with(
        "apply -n team -f -",
        "apiVersion: underpass.dev/v1alpha1\nkind: GatewayClient\nmetadata: {name: c}\nspec: {gatewayName: g}\n",
    );
    kubectl.ok("delete ns team --wait=false");
    wait_until("everything that nothing holds to be gone", PATIENCE, || {
        let names = kubectl.ok("get cm,gwc,sa -n team -o name");
        (names == "configmap/held\n").then_some(())
    });
    assert_contains(&kubectl.ok("get ns team"), &["Terminating"]);
    let refused = kubectl.fails_with("create -n team -f -", &config_map("new", "k", "v"));
    assert_contains(
        &refused,
        &["(Forbidden)", "unable to create new content in namespace team because it is being terminated"],
    );
    kubectl.ok(r#"patch cm held -n team --type=json -p '[{"op":"remove","path":"/metadata/finalizers"}]'"#);
    kubectl.ok("wait --for=delete ns/team --timeout=60s");
    assert_contains(&kubectl.fails("delete ns default"), &["(Forbidden)"]);
}
