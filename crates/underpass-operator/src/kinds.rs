//! Our kinds as the client addresses them.

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use underpass_resources::{Kind, VERSION};

/// The objects of a kind: in one namespace, or in all of them (and those of a cluster-scoped kind) without one.
pub fn api(client: &Client, kind: &Kind, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = resource(kind);
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

pub fn resource(kind: &Kind) -> ApiResource {
    let names = GroupVersionKind::gvk(kind.group, VERSION, kind.kind);
    ApiResource::from_gvk_with_plural(&names, kind.plural)
}
