//! What odd writes come to. Every expectation here was read off a kube-apiserver.

use http::Method;
use kube::Client;
use serde_json::{Value, json};

use crate::apiserver;
use crate::hostile::{DEFINITIONS, MAPS, ask, definition, get, post};
use crate::server::Own;

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "a": "1" } })
}

/// Sends `body` to one ConfigMap and returns the code and the answer.
async fn to_map(client: &Client, type_: &str, query: &str, body: &Value) -> (u16, Value) {
    let method = if type_ == JSON { Method::PUT } else { Method::PATCH };
    let (code, answer) = ask(client, method, &format!("{MAPS}/m{query}"), body, type_).await;
    (code.as_u16(), answer)
}

#[tokio::test]
async fn nothing_is_stored_that_the_stored_version_does_not_declare() {
    let server = apiserver();
    let client = server.client().await;
    let version = |name: &str, storage: bool, fields: Value| {
        let spec = json!({ "type": "object", "properties": fields });
        let schema = json!({ "type": "object", "properties": { "spec": spec } });
        json!({ "name": name, "served": true, "storage": storage, "schema": { "openAPIV3Schema": schema } })
    };
    let text = json!({ "type": "string" });
    let versions = [
        version("v1", true, json!({ "a": text, "d": { "type": "string", "default": "dd" } })),
        version("v2", false, json!({ "a": text, "b": text })),
    ];
    post(&client, DEFINITIONS, &definition("twos", "z.io", "Two", &versions)).await;
    server.kubectl().ok("wait --for=condition=Established crd/twos.z.io --timeout=60s");
    let two =
        json!({ "apiVersion": "z.io/v2", "kind": "Two", "metadata": { "name": "t" }, "spec": { "a": "1", "b": "2" } });
    let (_, made) = post(&client, "/apis/z.io/v2/namespaces/default/twos", &two).await;
    assert_eq!(made["spec"], json!({ "a": "1" }));
    let path = "/apis/z.io/v1/namespaces/default/twos/t";
    assert_eq!(get(&client, path).await.1["spec"], json!({ "a": "1", "d": "dd" }));
    let label = json!({ "metadata": { "labels": { "x": "y" } } });
    let (_, labelled) = ask(&client, Method::PATCH, path, &label, MERGE).await;
    assert_eq!(labelled["metadata"]["generation"], 1, "{labelled}");
}

#[tokio::test]
async fn nulls_and_empty_maps_are_stored_as_kubernetes_stores_them() {
    let server = apiserver();
    let client = server.client().await;
    let (_, made) =
        post(&client, MAPS, &json!({ "metadata": { "name": "m", "labels": { "l": null } }, "data": { "a": null } }))
            .await;
    assert_eq!((&made["data"], &made["metadata"]["labels"]), (&json!({ "a": "" }), &json!({ "l": "" })));
    let (_, emptied) =
        to_map(&client, MERGE, "", &json!({ "data": { "a": null }, "metadata": { "labels": null } })).await;
    assert_eq!(emptied.get("data"), None, "{emptied}");
    assert_eq!(emptied["metadata"].get("managedFields"), None, "{emptied}");
}

#[tokio::test]
async fn patches_are_refused_for_what_they_make() {
    let server = apiserver();
    let client = server.client().await;
    post(&client, MAPS, &map("m")).await;
    let time = "2024-01-01T00:00:00Z";
    for type_ in [MERGE, STRATEGIC] {
        for (patch, expected) in [
            (json!({ "metadata": null }), 400),
            (json!({ "metadata": { "name": null } }), 400),
            (json!({ "metadata": "x" }), 422),
            (json!({ "metadata": { "deletionTimestamp": time } }), 422),
            (json!({ "metadata": { "creationTimestamp": "x" } }), 422),
            (json!({ "metadata": { "uid": "zz" } }), 422),
            (json!({ "metadata": { "resourceVersion": "0" } }), 200),
            (json!({ "data": [] }), 422),
            (json!({ "data": { "a": 1 } }), 422),
            (json!({ "kind": "Secret" }), if type_ == MERGE { 422 } else { 200 }),
            (json!({ "kind": 1 }), 422),
            (json!([]), 400),
        ] {
            let (code, answer) = to_map(&client, type_, "", &patch).await;
            assert_eq!(code, expected, "{type_} {patch}: {answer}");
        }
    }
    let many = vec![json!({ "op": "test", "path": "/data/a", "value": "1" }); 10_001];
    for (patch, expected) in [
        (json!({}), 400),
        (json!([1]), 400),
        (json!([null]), 422),
        (json!([{ "op": null, "path": "/data" }]), 422),
        (json!(many), 413),
        (json!([{ "op": "add", "path": "", "value": {} }]), 422),
        (json!([{ "op": "remove", "path": "/metadata" }]), 400),
        (json!([{ "op": "replace", "path": "/data", "value": [] }]), 422),
        (json!([{ "op": "replace", "path": "/data/new", "value": "x" }]), 200),
        (json!([{ "op": "copy", "from": "/data/none", "path": "/data/copied" }]), 200),
        (json!([{ "op": "add", "path": "/data/added" }]), 200),
    ] {
        let (code, answer) = to_map(&client, JSON_PATCH, "", &patch).await;
        assert_eq!(code, expected, "{answer}");
    }
    assert_eq!(
        get(&client, &format!("{MAPS}/m")).await.1["data"],
        json!({ "a": "1", "new": "x", "copied": "", "added": "" })
    );
    let odd = json!([{ "op": "test", "path": "/data/a", "value": "1", "foo": 1 }]);
    assert_eq!(to_map(&client, JSON_PATCH, "?fieldValidation=Strict", &odd).await.0, 422);
}

/// Of its own kinds Kubernetes knows the kind by the path.
#[tokio::test]
async fn a_patch_may_not_take_the_kind_from_a_custom_resource() {
    let server = apiserver();
    let client = server.client().await;
    post(&client, MAPS, &map("m")).await;
    assert_eq!(to_map(&client, MERGE, "", &json!({ "kind": null })).await.0, 200);
    let networks = "/apis/underpass.dev/v1alpha1/containernetworks";
    let network = json!({ "apiVersion": "underpass.dev/v1alpha1", "kind": "ContainerNetwork", "metadata": { "name": "n" }, "spec": {} });
    assert_eq!(post(&client, networks, &network).await.0, 200);
    for (type_, patch) in [(MERGE, json!({ "kind": null })), (JSON_PATCH, json!([{ "op": "remove", "path": "/kind" }]))]
    {
        let (code, why) = ask(&client, Method::PATCH, &format!("{networks}/n"), &patch, type_).await;
        assert_eq!(code, 422, "{why}");
        assert!(why.to_string().contains("Object 'Kind' is missing in"), "{why}");
    }
}

#[tokio::test]
async fn a_definition_in_a_group_of_kubernetes_says_whether_it_is_approved() {
    let server = apiserver();
    let client = server.client().await;
    let version =
        json!({ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object" } } });
    for (group, approval, expected) in [
        (
            "a.k8s.io",
            "https://example.com/1",
            Some(("True", "ApprovedAnnotation", "approved in https://example.com/1")),
        ),
        (
            "b.k8s.io",
            "unapproved, a test",
            Some(("False", "UnapprovedAnnotation", "not approved: \"unapproved, a test\"")),
        ),
        ("example.com", "https://example.com/1", None),
    ] {
        let mut definition = definition("widgets", group, "Widget", std::slice::from_ref(&version));
        definition["metadata"]["annotations"] = json!({ "api-approved.kubernetes.io": approval });
        assert_eq!(post(&client, DEFINITIONS, &definition).await.0, 200);
        server.kubectl().ok(&format!("wait --for=condition=Established crd/widgets.{group} --timeout=60s"));
        let stored = get(&client, &format!("{DEFINITIONS}/widgets.{group}")).await.1;
        let conditions = stored["status"]["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|condition| condition["type"] == "KubernetesAPIApprovalPolicyConformant");
        let word = |condition: &Value, name: &str| condition[name].as_str().unwrap().to_owned();
        let found = found.map(|found| (word(found, "status"), word(found, "reason"), word(found, "message")));
        let expected = expected.map(|(status, reason, why)| (status.to_owned(), reason.to_owned(), why.to_owned()));
        assert_eq!(found, expected, "{group}");
    }
}

#[tokio::test]
async fn an_apply_says_what_it_is_and_whose() {
    let server = apiserver();
    let client = server.client().await;
    let mut versioned = map("m");
    versioned["metadata"]["resourceVersion"] = json!("7");
    for (query, body, expected) in [
        ("", map("m"), 422),
        ("?fieldManager=x", json!({ "kind": "ConfigMap", "metadata": { "name": "m" } }), 400),
        ("?fieldManager=x", json!({ "apiVersion": "v1", "metadata": { "name": "m" } }), 400),
        ("?fieldManager=x", json!({ "apiVersion": "v1", "kind": "ConfigMap" }), 400),
        ("?fieldManager=x", versioned, 200),
        ("?fieldManager=x", json!({ "apiVersion": "v1", "kind": "ConfigMap" }), 200),
    ] {
        let (code, answer) = to_map(&client, APPLY, query, &body).await;
        assert_eq!(code, expected, "{query} {body}: {answer}");
    }
}

#[tokio::test]
async fn wrong_options_are_invalid_by_name() {
    let server = apiserver();
    let client = server.client().await;
    post(&client, MAPS, &map("m")).await;
    for (type_, query, kind) in [
        (JSON, "?dryRun=foo", "UpdateOptions"),
        (JSON, "?fieldValidation=strict", "UpdateOptions"),
        (JSON, "?fieldManager=%07", "UpdateOptions"),
        (MERGE, "?force=true", "PatchOptions"),
    ] {
        let (code, answer) = to_map(&client, type_, query, &map("m")).await;
        assert_eq!(code, 422, "{query}: {answer}");
        assert!(answer.to_string().contains(&format!("{kind}.meta.k8s.io")), "{query}: {answer}");
    }
    for query in ["resourceVersionMatch=Exact", "sendInitialEvents=true", "resourceVersionMatch=x&resourceVersion=1"] {
        let (code, answer) = get(&client, &format!("{MAPS}?{query}")).await;
        assert_eq!(code, 422, "{query}: {answer}");
        assert!(answer.to_string().contains("ListOptions.meta.k8s.io"), "{query}: {answer}");
    }
    let unreadable = if Own::UnreadableDeleteOptions.holds() { 400 } else { 500 };
    for (options, expected) in [
        (json!({ "dryRun": ["foo"] }), 422),
        (json!({ "propagationPolicy": "foo" }), 422),
        (json!({ "dryRun": "All" }), unreadable),
        (json!([]), unreadable),
    ] {
        let (code, answer) = ask(&client, Method::DELETE, &format!("{MAPS}/m"), &options, JSON).await;
        assert_eq!(code, expected, "{options}: {answer}");
    }
    assert_eq!(get(&client, &format!("{MAPS}/m")).await.0, 200);
}

#[tokio::test]
async fn metadata_is_checked_as_a_whole() {
    let server = apiserver();
    let client = server.client().await;
    let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": "x", "uid": "u1" });
    for (metadata, expected) in [
        (json!({ "generateName": "x".repeat(300) }), 422),
        (json!({ "name": "a", "generateName": "Xx_" }), 422),
        (json!({ "name": "a", "finalizers": ["foo"] }), 422),
        (json!({ "name": "a", "finalizers": ["orphan", "foregroundDeletion"] }), 422),
        (
            json!({ "name": "a", "ownerReferences": [{ "apiVersion": "v1", "kind": "Event", "name": "x", "uid": "u" }] }),
            422,
        ),
        (json!({ "name": "a", "resourceVersion": "0" }), 200),
    ] {
        let (code, answer) = post(&client, MAPS, &json!({ "metadata": metadata })).await;
        assert_eq!(code, expected, "{metadata}: {answer}");
    }
    let (_, owned) = post(
        &client,
        &format!("{MAPS}?dryRun=All"),
        &json!({ "metadata": { "name": "o", "ownerReferences": [owner, owner] } }),
    )
    .await;
    assert_eq!(owned["metadata"]["ownerReferences"].as_array().map(Vec::len), Some(1), "{owned}");
    post(&client, MAPS, &map("m")).await;
    for (metadata, expected) in [
        (json!({ "name": "m", "resourceVersion": "0" }), 200),
        (json!({ "name": "m", "uid": "zz" }), 409),
        (json!({}), 400),
        (json!({ "name": "m", "deletionTimestamp": "2024-01-01T00:00:00Z" }), 422),
    ] {
        let (code, answer) = to_map(&client, JSON, "", &json!({ "metadata": metadata })).await;
        assert_eq!(code, expected, "{metadata}: {answer}");
    }
}

#[tokio::test]
async fn replicas_are_a_number_and_not_negative() {
    let server = apiserver();
    let client = server.client().await;
    server.kubectl().ok("create deployment d --image=i --replicas=2");
    let scale = "/apis/apps/v1/namespaces/default/deployments/d/scale";
    for (method, type_, body, expected) in [
        (Method::PATCH, MERGE, json!({ "spec": { "replicas": -1 } }), 422),
        (Method::PATCH, MERGE, json!({ "kind": "Foo" }), 422),
        (Method::PATCH, MERGE, json!({ "metadata": { "namespace": "zz" } }), 400),
        (Method::PUT, JSON, json!({ "metadata": { "name": "d" }, "spec": { "replicas": "1" } }), 400),
        (Method::PUT, JSON, json!({ "spec": { "replicas": 1 } }), 400),
        (Method::PUT, JSON, json!([]), 400),
    ] {
        let (code, answer) = ask(&client, method, scale, &body, type_).await;
        assert_eq!(code, expected, "{body}: {answer}");
    }
    assert_eq!(get(&client, scale).await.1["spec"]["replicas"], 2);
}

#[tokio::test]
async fn strict_decoding_says_of_what() {
    let server = apiserver();
    let client = server.client().await;
    let twice = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: '1', a: '2'}\nfoo: 1\n".to_vec();
    let strict = format!("{MAPS}?fieldValidation=Strict");
    let (code, why) = crate::hostile::send(&client, Method::POST, &strict, twice, "application/yaml").await;
    assert_eq!(code, 400);
    let expected = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: yaml: unmarshal errors:\n  \
                    line 4: key \"a\" already set in map, unknown field \"foo\"";
    assert_eq!(why, expected);
}
