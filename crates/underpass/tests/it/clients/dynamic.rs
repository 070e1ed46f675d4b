//! kube-rs without types: what is served is found by discovery, also what was defined a moment ago.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Discovery, Scope, verbs};
use kube::runtime::{conditions, wait};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::{NAMESPACE, refusal, soon, until};

#[tokio::test(flavor = "multi_thread")]
async fn all_that_is_served_is_discovered_and_can_be_listed() {
    let server = crate::up();
    let client = server.client().await;
    let discovery = Discovery::new(client.clone()).run().await.unwrap();
    let mut kinds = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if capabilities.supports_operation(verbs::LIST) {
                Api::<DynamicObject>::all_with(client.clone(), &resource).list(&ListParams::default()).await.unwrap();
                kinds.push(format!("{}.{}", resource.kind, resource.group));
            }
        }
    }
    for expected in ["ConfigMap.", "Lease.coordination.k8s.io", "Event.events.k8s.io", "Deployment.apps"] {
        assert!(kinds.iter().any(|kind| kind == expected), "{expected} is missing: {kinds:?}");
    }
    for kind in underpass_resources::KINDS {
        assert!(
            kinds.iter().any(|found| found.starts_with(&format!("{}.", kind.kind))),
            "{} is missing: {kinds:?}",
            kind.kind
        );
    }
    let network = GroupVersionKind::gvk("underpass.dev", "v1alpha1", "ContainerNetwork");
    let (_, capabilities) = discovery.resolve_gvk(&network).expect("ContainerNetwork is served");
    assert!(capabilities.scope == Scope::Cluster);
    let subresources: Vec<_> = capabilities.subresources.iter().map(|(resource, _)| resource.plural.as_str()).collect();
    assert_eq!(subresources, ["status"]);
}

async fn define(client: &Client) -> ApiResource {
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": { "plural": "widgets", "kind": "Widget" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": { "spec": {
                        "type": "object",
                        "properties": { "size": { "type": "integer", "default": 3 }, "color": { "type": "string" } },
                        "x-kubernetes-validations": [{ "rule": "self.size >= oldSelf.size", "message": "it only grows" }],
                    } },
                } },
            }],
        },
    }))
    .unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let established = wait::await_condition(definitions, "widgets.example.com", conditions::is_crd_established());
    soon("the definition to be established", established).await.unwrap();
    ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_is_used_as_soon_as_it_is_established() {
    let server = crate::apiserver();
    let client = server.client().await;
    let resource = define(&client).await;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &resource);
    let widget = DynamicObject::new("w", &resource).data(json!({ "spec": { "color": "red", "shape": "round" } }));
    let made = api.create(&PostParams::default(), &widget).await.unwrap();
    assert_eq!(made.data["spec"], json!({ "color": "red", "size": 3 }), "defaulted and pruned");

    let grow = Patch::Merge(json!({ "spec": { "size": 4 } }));
    assert_eq!(api.patch("w", &PatchParams::default(), &grow).await.unwrap().data["spec"]["size"], 4);
    let shrink = Patch::Merge(json!({ "spec": { "size": 1 } }));
    assert_eq!(refusal(api.patch("w", &PatchParams::default(), &shrink).await), (422, "Invalid".to_owned()));

    let list = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["w"]);
    assert_eq!(list.types.kind, "WidgetList");

    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let uid = definitions.get("widgets.example.com").await.unwrap().uid().unwrap();
    definitions.delete("widgets.example.com", &DeleteParams::default()).await.unwrap();
    let gone = wait::await_condition(definitions, "widgets.example.com", conditions::is_deleted(&uid));
    soon("the definition to go", gone).await.unwrap();
    until("the kind to go with it", || async { api.list(&ListParams::default()).await.is_err() }).await;
    assert_eq!(refusal(api.list(&ListParams::default()).await).0, 404);
}
