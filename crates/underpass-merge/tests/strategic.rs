//! Strategic merge patch: one table of what patches do to a Deployment, one of patches that are refused.

mod shapes;

use serde_json::{Value, json};
use shapes::deployment;
use underpass_merge::{StrategicProblem, strategic_merge_patch};

fn with_pod(spec: &Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

#[test]
fn lists_of_a_pod_merge_by_their_key() {
    let a = json!({"name": "a", "image": "1"});
    let b = json!({"name": "b", "image": "1"});
    let c = json!({"name": "c", "image": "1"});
    let cases = [
        (
            "a container is changed by name",
            json!({"containers": [a, b]}),
            json!({"containers": [{"name": "b", "image": "2"}]}),
            json!({"containers": [a, {"name": "b", "image": "2"}]}),
        ),
        (
            "a new container comes first",
            json!({"containers": [a, b]}),
            json!({"containers": [c]}),
            json!({"containers": [c, a, b]}),
        ),
        (
            "the patch decides the order of what it names",
            json!({"containers": [a, b, c]}),
            json!({"containers": [{"name": "c"}, {"name": "a"}]}),
            json!({"containers": [b, c, a]}),
        ),
        (
            "a container is deleted",
            json!({"containers": [a, b]}),
            json!({"containers": [{"name": "a", "$patch": "delete"}]}),
            json!({"containers": [b]}),
        ),
        (
            "the list is replaced",
            json!({"containers": [a, b]}),
            json!({"containers": [c, {"$patch": "replace"}]}),
            json!({"containers": [c]}),
        ),
        (
            "the order is set",
            json!({"containers": [a, b]}),
            json!({"containers": [c], "$setElementOrder/containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}]}),
            json!({"containers": [b, c, a]}),
        ),
        (
            "the order is set without a change",
            json!({"containers": [a, b]}),
            json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}),
            json!({"containers": [b, a]}),
        ),
        (
            "the order of a list that is not there",
            json!({}),
            json!({"$setElementOrder/containers": [{"name": "b"}]}),
            json!({}),
        ),
        (
            "what only the server has keeps its place",
            json!({"containers": [a, b, c]}),
            json!({"containers": [{"name": "c"}], "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]}),
            json!({"containers": [b, c, a]}),
        ),
        (
            "a new item takes the room of a deleted one",
            json!({"containers": [a, b]}),
            json!({"containers": [{"name": "b", "$patch": "delete"}, c], "$setElementOrder/containers": [{"name": "c"}]}),
            json!({"containers": [a, c]}),
        ),
        (
            "no list yet",
            json!({}),
            json!({"containers": [a, {"name": "x", "$patch": "delete"}]}),
            json!({"containers": [a]}),
        ),
        ("null deletes", json!({"containers": [a]}), json!({"containers": null}), json!({})),
        (
            "env merges inside the container",
            json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}]}),
            json!({"containers": [{"name": "a", "env": [{"name": "Y", "value": "3"}]}]}),
            json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "3"}]}]}),
        ),
        (
            "ports merge by number",
            json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}),
            json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 81}]}]}),
            json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP", "name": "http"}, {"containerPort": 81}]}]}),
        ),
        (
            "commands are replaced",
            json!({"containers": [{"name": "a", "command": ["x", "y"]}]}),
            json!({"containers": [{"name": "a", "command": ["z"]}]}),
            json!({"containers": [{"name": "a", "command": ["z"]}]}),
        ),
        (
            "tolerations are replaced",
            json!({"tolerations": [{"key": "a"}, {"key": "b"}]}),
            json!({"tolerations": [{"key": "c"}]}),
            json!({"tolerations": [{"key": "c"}]}),
        ),
        (
            "a volume keeps only one source",
            json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
            json!({"volumes": [{"name": "v", "emptyDir": {}, "$retainKeys": ["name", "emptyDir"]}]}),
            json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
        ),
        (
            "a new volume loses its directive",
            json!({"volumes": []}),
            json!({"volumes": [{"name": "v", "$retainKeys": ["name"]}]}),
            json!({"volumes": [{"name": "v"}]}),
        ),
    ];
    for (name, live, patch, expected) in cases {
        let patched = strategic_merge_patch(&deployment(), with_pod(&live), &with_pod(&patch)).unwrap();
        assert_eq!(patched, with_pod(&expected), "{name}");
    }
}

#[test]
fn objects_and_primitive_lists_merge() {
    let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
    let cases = [
        (
            "objects merge",
            json!({"spec": {"replicas": 1, "paused": true}}),
            json!({"spec": {"replicas": 2}}),
            json!({"spec": {"replicas": 2, "paused": true}}),
        ),
        (
            "null deletes",
            json!({"spec": {"replicas": 1, "paused": true}}),
            json!({"spec": {"replicas": null, "strategy": null}}),
            json!({"spec": {"paused": true}}),
        ),
        (
            "nulls of a new object are dropped",
            json!({}),
            json!({"spec": {"replicas": null, "paused": true}}),
            json!({"spec": {"paused": true}}),
        ),
        (
            "an object is replaced",
            json!({"spec": {"strategy": {"type": "A", "rollingUpdate": {}}}}),
            json!({"spec": {"strategy": {"$patch": "replace", "type": "B"}}}),
            json!({"spec": {"strategy": {"type": "B"}}}),
        ),
        (
            "an object is emptied",
            json!({"spec": {"strategy": {"type": "A"}}}),
            json!({"spec": {"strategy": {"$patch": "delete"}}}),
            json!({"spec": {"strategy": {}}}),
        ),
        (
            "keys are retained",
            json!({"spec": {"strategy": {"type": "A", "rollingUpdate": {}}}}),
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "B"}}}),
            json!({"spec": {"strategy": {"type": "B"}}}),
        ),
        (
            "finalizers are a set",
            finalizers(json!(["a", "b"])),
            finalizers(json!(["b", "c"])),
            finalizers(json!(["a", "b", "c"])),
        ),
        (
            "a finalizer goes",
            finalizers(json!(["a", "b"])),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a", "x"]}}),
            finalizers(json!(["b"])),
        ),
        (
            "one comes, one goes, in order",
            finalizers(json!(["a", "b"])),
            json!({"metadata": {"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["c", "b"]}}),
            finalizers(json!(["c", "b"])),
        ),
        (
            "nothing to delete from",
            json!({"metadata": {}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}),
            json!({"metadata": {}}),
        ),
        (
            "owners merge by uid",
            json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}]}}),
            json!({"metadata": {"ownerReferences": [{"uid": "2", "name": "b"}, {"uid": "1", "$patch": "delete"}]}}),
            json!({"metadata": {"ownerReferences": [{"uid": "2", "name": "b"}]}}),
        ),
        (
            "labels merge",
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
            json!({"metadata": {"labels": {"b": null, "c": "3"}}}),
            json!({"metadata": {"labels": {"a": "1", "c": "3"}}}),
        ),
        (
            "another type replaces",
            json!({"spec": {"strategy": "x"}}),
            json!({"spec": {"strategy": {"type": "B"}}}),
            json!({"spec": {"strategy": {"type": "B"}}}),
        ),
        (
            "the whole object is replaced",
            json!({"spec": {"replicas": 1}}),
            json!({"$patch": "replace", "spec": {"paused": true}}),
            json!({"spec": {"paused": true}}),
        ),
    ];
    for (name, live, patch, expected) in cases {
        assert_eq!(strategic_merge_patch(&deployment(), live, &patch).unwrap(), expected, "{name}");
    }
}

#[test]
fn a_bad_patch_is_refused_with_its_place() {
    use StrategicProblem::*;
    let containers = |items: Value| with_pod(&json!({"containers": items}));
    let pod = ".spec.template.spec";
    let cases = [
        (json!([]), "", NotAnObject),
        (json!({"$patch": "merge"}), "", UnknownPatchType("\"merge\"".to_owned())),
        (json!({"spec": {"$patch": 1}}), ".spec", UnknownPatchType("1".to_owned())),
        (json!({"spec": {"$path": "x"}}), ".spec.$path", UnknownDirective("$path".to_owned())),
        (containers(json!([{"name": "a", "$patch": "merge"}])), ".containers", MergeDirectiveInList),
        (containers(json!([{"name": "a", "$patch": "x"}])), ".containers", UnknownPatchType("\"x\"".to_owned())),
        (containers(json!([{"image": "1"}])), ".containers", NoMergeKey("name".to_owned())),
        (containers(json!([{"$patch": "delete"}])), ".containers", NoMergeKey("name".to_owned())),
        (containers(json!(["a"])), ".containers", MixedItems),
        (
            json!({"spec": {"$retainKeys": "replicas"}}),
            ".spec",
            DirectiveNotAList { directive: "$retainKeys".to_owned() },
        ),
        (json!({"spec": {"$retainKeys": ["paused"], "replicas": 1}}), ".spec", NotRetained("replicas".to_owned())),
        (
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}}),
            ".metadata.finalizers",
            DirectiveNotAList { directive: "$deleteFromPrimitiveList/".to_owned() },
        ),
        (
            with_pod(&json!({"$setElementOrder/containers": {}})),
            "",
            DirectiveNotAList { directive: "$setElementOrder/containers".to_owned() },
        ),
        (
            with_pod(
                &json!({"containers": [{"name": "c"}, {"name": "b"}], "$setElementOrder/containers": [{"name": "b"}, {"name": "c"}]}),
            ),
            ".containers",
            OrderMismatch,
        ),
        (
            with_pod(&json!({"containers": [{"name": "c"}], "$setElementOrder/containers": [{"name": "b"}]})),
            ".containers",
            OrderMismatch,
        ),
    ];
    for (patch, field, problem) in cases {
        let mut live = with_pod(&json!({"containers": [{"name": "a"}]}));
        live["metadata"] = json!({});
        let error = strategic_merge_patch(&deployment(), live, &patch).unwrap_err();
        let field = if patch.pointer("/spec/template").is_some() { format!("{pod}{field}") } else { field.to_owned() };
        assert_eq!((error.field, error.problem), (field, problem), "{patch}");
    }
}
