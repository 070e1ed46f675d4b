//! What kube-rs can write: the four kinds of patch, the status apart, and the rules about versions and ownership.

use json_patch::{AddOperation, Patch as Steps, PatchOperation, RemoveOperation, TestOperation};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, ValidationDirective};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::{NAMESPACE, config_map, config_maps, create, gateway, gateways, refusal, value};

fn data(object: &ConfigMap) -> Value {
    json!(object.data)
}

fn applied(data: &Value) -> Patch<Value> {
    Patch::Apply(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c" }, "data": data }))
}

#[tokio::test(flavor = "multi_thread")]
async fn merge_and_json_patches_do_what_they_say() {
    let server = crate::up();
    let api = config_maps(&server.client().await);
    create(&api, "c", "1").await;
    let merge = Patch::Merge(json!({ "data": { "v": null, "w": "2" } }));
    assert_eq!(data(&api.patch("c", &PatchParams::default(), &merge).await.unwrap()), json!({ "w": "2" }));

    let pointer = |text: &str| text.parse().unwrap();
    let steps = Steps(vec![
        PatchOperation::Test(TestOperation { path: pointer("/data/w"), value: json!("2") }),
        PatchOperation::Add(AddOperation { path: pointer("/data/x"), value: json!("3") }),
        PatchOperation::Remove(RemoveOperation { path: pointer("/data/w") }),
    ]);
    let steps: Patch<()> = Patch::Json(steps);
    assert_eq!(data(&api.patch("c", &PatchParams::default(), &steps).await.unwrap()), json!({ "x": "3" }));
    assert_eq!(refusal(api.patch("c", &PatchParams::default(), &steps).await).0, 422, "the test in it no longer holds");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strategic_patch_finds_containers_by_their_names() {
    let server = crate::up();
    let api: Api<Deployment> = Api::namespaced(server.client().await, NAMESPACE);
    let deployment = json!({
        "metadata": { "name": "d" },
        "spec": {
            "selector": { "matchLabels": { "app": "x" } },
            "template": {
                "metadata": { "labels": { "app": "x" } },
                "spec": { "containers": [{ "name": "a", "image": "a:1" }, { "name": "b", "image": "b:1" }] },
            },
        },
    });
    api.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
    let patch = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "b", "image": "b:2" }] } } } });
    let patched = api.patch("d", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    let containers = patched.spec.unwrap().template.spec.unwrap().containers;
    let images: Vec<_> = containers.iter().filter_map(|container| container.image.as_deref()).collect();
    assert_eq!(images, ["a:1", "b:2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn appliers_own_their_fields() {
    let server = crate::up();
    let api = config_maps(&server.client().await);
    let (one, two) = (PatchParams::apply("one"), PatchParams::apply("two"));
    api.patch("c", &one, &applied(&json!({ "a": "1", "b": "1" }))).await.unwrap();
    api.patch("c", &two, &applied(&json!({ "c": "2" }))).await.unwrap();
    let contested = applied(&json!({ "c": "2", "a": "2" }));
    match api.patch("c", &two, &contested).await {
        Err(kube::Error::Api(status)) => {
            assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
            assert!(status.message.contains(r#"conflict with "one""#), "{}", status.message);
        }
        other => panic!("a conflict should have been refused: {other:?}"),
    }
    let forced = api.patch("c", &two.clone().force(), &contested).await.unwrap();
    assert_eq!(data(&forced), json!({ "a": "2", "b": "1", "c": "2" }));
    let released = api.patch("c", &one, &applied(&json!({}))).await.unwrap();
    assert_eq!(data(&released), json!({ "a": "2", "c": "2" }), "what nobody else owns goes with its owner");
    let same = api.patch("c", &one, &applied(&json!({}))).await.unwrap();
    assert_eq!(same.resource_version(), released.resource_version(), "an apply that changes nothing is no write");
}

#[tokio::test(flavor = "multi_thread")]
async fn spec_and_status_are_written_apart() {
    let server = crate::apiserver();
    let api = gateways(&server.client().await);
    let mut wanted = gateway("g", 2);
    wanted.status = Some(serde_json::from_value(json!({ "observedGeneration": 7 })).unwrap());
    let made = api.create(&PostParams::default(), &wanted).await.unwrap();
    assert!(made.status.is_none(), "{:?}", made.status);

    let both = Patch::Merge(json!({ "spec": { "replicas": 9 }, "status": { "observedGeneration": 1 } }));
    let status_only = api.patch_status("g", &PatchParams::default(), &both).await.unwrap();
    assert_eq!((status_only.spec.replicas, status_only.metadata.generation), (2, Some(1)));
    assert_eq!(status_only.status.as_ref().and_then(|status| status.observed_generation), Some(1));

    let spec_only = Patch::Merge(json!({ "spec": { "replicas": 3 }, "status": { "observedGeneration": 99 } }));
    let changed = api.patch("g", &PatchParams::default(), &spec_only).await.unwrap();
    assert_eq!((changed.spec.replicas, changed.metadata.generation), (3, Some(2)));
    assert_eq!(changed.status.as_ref().and_then(|status| status.observed_generation), Some(1));

    let mut replaced = api.get_status("g").await.unwrap();
    replaced.status.as_mut().unwrap().observed_generation = Some(2);
    replaced.spec.replicas = 9;
    let replaced = api.replace_status("g", &PostParams::default(), &replaced).await.unwrap();
    assert_eq!((replaced.spec.replicas, replaced.status.unwrap().observed_generation), (3, Some(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_writer_is_told() {
    let server = crate::up();
    let api = config_maps(&server.client().await);
    let mut stale = create(&api, "c", "1").await;
    let newer = api.replace("c", &PostParams::default(), &config_map("c", "2")).await.unwrap();
    stale.data.as_mut().unwrap().insert("v".to_owned(), "3".to_owned());
    assert_eq!(refusal(api.replace("c", &PostParams::default(), &stale).await), (409, "Conflict".to_owned()));
    assert_eq!(value(&api.get("c").await.unwrap()), "2");
    let delete = |version: Option<String>| DeleteParams {
        preconditions: Some(Preconditions { resource_version: version, uid: None }),
        ..DeleteParams::default()
    };
    assert_eq!(refusal(api.delete("c", &delete(stale.resource_version())).await).0, 409);
    api.delete("c", &delete(newer.resource_version())).await.unwrap();
    assert_eq!(refusal(api.get("c").await), (404, "NotFound".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_validates_and_keeps_nothing() {
    let server = crate::up();
    let client = server.client().await;
    let api = gateways(&client);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    assert_eq!(api.create(&dry, &gateway("g", 2)).await.unwrap().spec.client_cidrs.len(), 1, "defaults are shown");
    assert_eq!(refusal(api.create(&dry, &gateway("g", 99)).await), (422, "Invalid".to_owned()));
    assert!(api.get_opt("g").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_patches_refuse_unknown_fields() {
    let server = crate::up();
    let api = config_maps(&server.client().await);
    create(&api, "c", "1").await;
    let strict = PatchParams { field_validation: Some(ValidationDirective::Strict), ..PatchParams::default() };
    match api.patch("c", &strict, &Patch::Merge(json!({ "dat": {} }))).await {
        Err(kube::Error::Api(status)) => {
            assert_eq!(status.code, 422);
            assert!(status.message.contains(r#"strict decoding error: unknown field "dat""#), "{}", status.message);
        }
        other => panic!("an unknown field should have been refused: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_pages_by_selector_and_as_metadata() {
    let server = crate::apiserver();
    let api = config_maps(&server.client().await);
    for number in 0..5 {
        let mut object = config_map(&format!("c{number}"), "1");
        object.labels_mut().insert("even".to_owned(), (number % 2 == 0).to_string());
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    let even = ListParams::default().labels("even=true");
    let first = api.list(&even.clone().limit(2)).await.unwrap();
    let token = first.metadata.continue_.clone().expect("there is more");
    let rest = api.list(&even.clone().limit(2).continue_token(&token)).await.unwrap();
    let names: Vec<_> = first.iter().chain(rest.iter()).map(ResourceExt::name_any).collect();
    assert_eq!(names, ["c0", "c2", "c4"]);
    let metadata = api.list_metadata(&even.fields("metadata.name!=c0")).await.unwrap();
    assert_eq!(metadata.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["c2", "c4"]);
    api.delete_collection(&DeleteParams::default(), &ListParams::default().labels("even")).await.unwrap();
    assert!(api.list(&ListParams::default().labels("even")).await.unwrap().items.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn built_in_kinds_come_back_with_defaults() {
    let server = crate::up();
    let api: Api<Service> = Api::namespaced(server.client().await, NAMESPACE);
    let service = json!({ "metadata": { "generateName": "s-" }, "spec": { "ports": [{ "port": 80 }] } });
    let made = api.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    assert!(made.name_any().starts_with("s-") && made.name_any().len() > 2, "{}", made.name_any());
    let spec = made.spec.unwrap();
    assert_eq!(spec.type_.as_deref(), Some("ClusterIP"));
    let port = &spec.ports.unwrap()[0];
    assert_eq!(port.protocol.as_deref(), Some("TCP"));
}
