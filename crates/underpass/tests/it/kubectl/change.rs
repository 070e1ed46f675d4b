//! Changing what is there: the four kinds of patch, labels, annotations, edit, replace, scale.

use serde_json::json;

use super::{assert_contains, config_map, network, rows};
use crate::server::Own;
use crate::{apiserver, up};

#[test]
fn all_kinds_of_patch_change_a_builtin_kind() {
    let server = apiserver();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply --server-side -f -", &config_map("a", "k", "1"));
    kubectl.ok(r#"patch cm a --type=json -p '[{"op":"test","path":"/data/k","value":"1"},{"op":"add","path":"/data/json","value":"x"}]'"#);
    kubectl.ok(r#"patch cm a --type=merge -p '{"data":{"merge":"y","json":null}}'"#);
    kubectl.ok(r#"patch cm a --type=strategic -p '{"data":{"strategic":"z"}}'"#);
    assert_eq!(kubectl.json("get cm a")["data"], json!({ "k": "1", "merge": "y", "strategic": "z" }));
    kubectl.ok_with("apply --server-side -f -", &config_map("a", "k", "2"));
    assert_eq!(kubectl.json("get cm a")["data"], json!({ "k": "2", "merge": "y", "strategic": "z" }));
    assert_contains(&kubectl.ok(r#"patch cm a --type=merge -p '{"data":{"k":"2"}}'"#), &["patched (no change)"]);
    let refused = kubectl.fails(r#"patch cm a --type=json -p '[{"op":"test","path":"/data/k","value":"9"}]'"#);
    assert_contains(&refused, if Own::WhyAPatchFailed.holds() { &["/data/k"] } else { &["The request is invalid"] });
    let refused = kubectl.fails(r#"patch cm a --type=merge -p '{"data":{"k":5}}'"#);
    assert_contains(&refused, if Own::WhyAPatchFailed.holds() { &["data.k"] } else { &["The request is invalid"] });
}

#[test]
fn a_strategic_patch_finds_items_by_their_key() {
    let server = apiserver();
    let kubectl = server.kubectl();
    kubectl.ok("run p --image=busybox --env=A=1 --env=B=2");
    kubectl.ok(r#"patch pod p -p '{"spec":{"containers":[{"name":"p","image":"busybox:2"}]}}'"#);
    let containers = &kubectl.json("get pod p")["spec"]["containers"];
    assert_eq!(containers.as_array().unwrap().len(), 1);
    assert_eq!(containers[0]["image"], "busybox:2");
    assert_eq!(containers[0]["env"], json!([{ "name": "A", "value": "1" }, { "name": "B", "value": "2" }]));
}

#[test]
fn custom_kinds_take_every_patch_but_the_strategic() {
    let server = apiserver();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply --server-side -f -", &network("net"));
    kubectl.ok(r#"patch ctrnet net --type=merge -p '{"metadata":{"labels":{"a":"b"}}}'"#);
    kubectl.ok(r#"patch ctrnet net --type=json -p '[{"op":"add","path":"/metadata/labels/c","value":"d"}]'"#);
    assert_eq!(kubectl.json("get ctrnet net")["metadata"]["labels"], json!({ "a": "b", "c": "d" }));
    let refused = kubectl.fails(r#"patch ctrnet net -p '{"metadata":{"labels":{"a":"x"}}}'"#);
    assert_contains(
        &refused,
        &["application/strategic-merge-patch+json is not supported by underpass.dev/v1alpha1, Kind=ContainerNetwork"],
    );
    let refused =
        kubectl.fails(r#"patch ctrnet net --type=merge -p '{"spec":{"mode":"persistent","networkName":"x"}}'"#);
    assert_contains(&refused, &["spec.mode", "cannot be changed"]);
}

#[test]
fn status_and_spec_are_written_apart() {
    let server = apiserver();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &network("net"));
    kubectl.ok(r#"patch ctrnet net --type=merge -p '{"status":{"message":"ignored"}}'"#);
    assert!(kubectl.json("get ctrnet net").get("status").is_none());
    kubectl.ok(r#"patch ctrnet net --subresource=status --type=merge -p '{"status":{"message":"said"},"metadata":{"labels":{"x":"y"}},"spec":{"ipv6":true}}'"#);
    let object = kubectl.json("get ctrnet net --subresource=status");
    assert_eq!(object["status"]["message"], "said");
    assert_eq!((&object["spec"]["ipv6"], &object["metadata"]["labels"]["x"]), (&json!(false), &json!(null)));
    assert_eq!(object["metadata"]["generation"], 1, "the status does not count");
    kubectl.ok(r#"patch ctrnet net --subresource=status --type=json -p '[{"op":"replace","path":"/status/message","value":"again"}]'"#);
    assert_eq!(kubectl.ok("get ctrnet net -o jsonpath='{.status.message}'"), "again");
}

#[test]
fn labels_and_annotations_come_and_go() {
    let server = up();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &network("net"));
    assert_eq!(kubectl.ok("label ctrnet net tier=a"), "containernetwork.underpass.dev/net labeled\n");
    assert_contains(
        &kubectl.fails("label ctrnet net tier=b"),
        &["'tier' already has a value (a), and --overwrite is false"],
    );
    assert_eq!(kubectl.ok("label ctrnet net tier=b --overwrite"), "containernetwork.underpass.dev/net labeled\n");
    assert_eq!(kubectl.ok("get ctrnet -l tier=b -o name"), "containernetwork.underpass.dev/net\n");
    assert_eq!(kubectl.ok("label ctrnet net tier-"), "containernetwork.underpass.dev/net unlabeled\n");
    assert_eq!(kubectl.ok("annotate ctrnet net note='two words'"), "containernetwork.underpass.dev/net annotated\n");
    assert_eq!(kubectl.ok("get ctrnet net -o jsonpath='{.metadata.annotations.note}'"), "two words");
    assert_contains(&kubectl.fails("label ctrnet net 'bad key=x'"), &["bad key"]);
}

#[test]
fn an_edit_is_saved() {
    let server = apiserver();
    let kubectl = server.kubectl().with_editor("sed -i s/before/after/");
    kubectl.ok_with("apply -f -", &config_map("a", "k", "before"));
    assert_eq!(kubectl.ok("edit cm a"), "configmap/a edited\n");
    assert_eq!(kubectl.ok("get cm a -o jsonpath='{.data.k}'"), "after");
    let unchanged = kubectl.run("edit cm a");
    assert_contains(&(unchanged.stdout + &unchanged.stderr), &["no changes made"]);
}

#[test]
fn a_replacement_needs_the_version_it_replaces_only_when_it_names_one() {
    let server = apiserver();
    let kubectl = server.kubectl();
    kubectl.ok_with("create -f -", &config_map("a", "k", "1"));
    let old = kubectl.ok("get cm a -o json");
    assert_eq!(kubectl.ok_with("replace -f -", &config_map("a", "only", "2")), "configmap/a replaced\n");
    assert_eq!(kubectl.json("get cm a")["data"], json!({ "only": "2" }));
    let conflict = kubectl.fails_with("replace -f -", &old);
    assert_contains(
        &conflict,
        &["(Conflict)", "the object has been modified; please apply your changes to the latest version"],
    );
    assert_contains(&kubectl.fails_with("replace -f -", &config_map("b", "k", "1")), &["(NotFound)"]);
    let uid = kubectl.ok("get cm a -o jsonpath='{.metadata.uid}'");
    kubectl.ok_with("replace --force -f -", &config_map("a", "k", "3"));
    assert_ne!(kubectl.ok("get cm a -o jsonpath='{.metadata.uid}'"), uid, "deleted and made anew");
}

#[test]
fn a_deployment_is_scaled() {
    let server = apiserver();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", DEPLOYMENT);
    assert_eq!(kubectl.ok("scale deploy web --replicas=5"), "deployment.apps/web scaled\n");
    assert_eq!(rows(&kubectl.ok("get deploy web"))[1][1], "0/5");
    assert_contains(
        &kubectl.fails("scale deploy web --current-replicas=2 --replicas=1"),
        &["Expected replicas to be 2, was 5"],
    );
    assert_eq!(kubectl.ok("set image deploy/web c=nginx:2"), "deployment.apps/web image updated\n");
    assert_eq!(kubectl.ok("get deploy web -o jsonpath='{.spec.template.spec.containers[0].image}'"), "nginx:2");
    assert_eq!(kubectl.ok("get deploy web -o jsonpath='{.metadata.generation}'"), "3");
}

#[test]
fn an_immutable_config_map_stays() {
    let server = apiserver();
    let kubectl = server.kubectl();
    kubectl.ok_with("create -f -", &(config_map("a", "k", "1") + "immutable: true\n"));
    let refused = kubectl.fails(r#"patch cm a -p '{"data":{"k":"2"}}'"#);
    assert_contains(&refused, &["data: Forbidden: field is immutable when `immutable` is set"]);
    kubectl.ok("label cm a still=possible");
}

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: nginx}]}
";
