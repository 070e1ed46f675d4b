//! Objects of the cluster that plans make and remove, whichever kind they are.

use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};
use underpass_plan::proxy_deployment::report_writer;
use underpass_plan::{Action, ObjectKind, Place, Subject};

use crate::act::ActionError;
use crate::apply::FIELD_MANAGER;
use crate::kinds;

/// Who writes components, which are objects of our kinds. Their finalizers are applied by [`FIELD_MANAGER`], by whose word everything else that it
/// has ever said would go.
const COMPONENT_MANAGER: &str = "underpass-component";

/// The objects of that kind in a namespace; of a kind that has none, all of them.
pub(crate) fn api(client: &Client, kind: ObjectKind, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource(kind)),
        None => Api::all_with(client.clone(), &resource(kind)),
    }
}

pub(crate) fn resource(kind: ObjectKind) -> ApiResource {
    let (group, version) = kind.api_version.split_once('/').unwrap_or(("", kind.api_version));
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind.kind), kind.plural)
}

/// What stands at a place.
pub(crate) async fn read(client: &Client, place: &Place) -> kube::Result<Option<Value>> {
    let found = api(client, place.kind, Some(&place.namespace)).get_opt(&place.name).await?;
    Ok(found.map(|object| json!(object)))
}

/// Whether it is one of those that are done here.
pub(crate) fn concerns(action: &Action) -> bool {
    matches!(action, Action::ApplyObject { .. } | Action::DeleteObject { .. } | Action::ForgetReport { .. })
}

pub(crate) async fn act(client: &Client, subject: &Subject, action: &Action) -> Result<(), ActionError> {
    match action {
        Action::ApplyObject { place, object } => apply(client, place, object).await,
        Action::DeleteObject { place, uid } => delete(client, place, uid).await,
        Action::ForgetReport { pod } => forget_report(client, subject, pod).await,
        _ => Ok(()),
    }
}

async fn apply(client: &Client, place: &Place, object: &Value) -> Result<(), ActionError> {
    let is_component = underpass_resources::kind(place.kind.kind).is_some();
    let manager = if is_component { COMPONENT_MANAGER } else { FIELD_MANAGER };
    let params = PatchParams::apply(manager).force();
    let api = api(client, place.kind, Some(&place.namespace));
    let applied = api.patch(&place.name, &params, &Patch::Apply(object)).await;
    applied.map(drop).map_err(|source| ActionError::Object { place: place.clone(), source: source.into() })
}

/// What it owns goes after it, but before its name can be used again.
async fn delete(client: &Client, place: &Place, uid: &str) -> Result<(), ActionError> {
    let precondition = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams::foreground().preconditions(precondition);
    match api(client, place.kind, Some(&place.namespace)).delete(&place.name, &params).await {
        Ok(_) => Ok(()),
        // Gone, or another one by now.
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(source) => Err(ActionError::Delete { place: place.clone(), source: source.into() }),
    }
}

/// Says nothing in the pod's name: what it alone has said is then nobody's, and goes.
async fn forget_report(client: &Client, subject: &Subject, pod: &str) -> Result<(), ActionError> {
    let Some(kind) = underpass_resources::kind(&subject.kind) else { return Ok(()) };
    let nothing = json!({
        "apiVersion": subject.api_version, "kind": subject.kind,
        "metadata": { "name": subject.name, "uid": subject.uid },
    });
    let params = PatchParams::apply(&report_writer(pod)).force();
    let api = kinds::api(client, kind, subject.namespace.as_deref());
    let said = api.patch_status(&subject.name, &params, &Patch::Apply(&nothing)).await;
    said.map(drop).map_err(|source| ActionError::Report { pod: pod.to_owned(), source: source.into() })
}
