//! What is done of a plan of which a part cannot be done.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use serde_json::json;
use support::{Diary, FakeApi};
use underpass_operator::{Applier, ApplyError, Metrics};
use underpass_plan::{Action, Finalizer, ObjectKind, Place, Plan, Subject};

const BINDING: ObjectKind =
    ObjectKind { api_version: "rbac.authorization.k8s.io/v1", kind: "RoleBinding", plural: "rolebindings" };
const DEPLOYMENT: ObjectKind = ObjectKind { api_version: "apps/v1", kind: "Deployment", plural: "deployments" };
const PROXY: &str = "/apis/hostedcluster.densityops.com/v1alpha1/namespaces/hosted/proxyservers/edge";

fn place(kind: ObjectKind, namespace: &str) -> Place {
    Place { kind, namespace: namespace.to_owned(), name: "edge".to_owned() }
}

fn apply(kind: ObjectKind, namespace: &str) -> Action {
    let object = json!({ "apiVersion": kind.api_version, "kind": kind.kind, "metadata": { "name": "edge" } });
    Action::ApplyObject { place: place(kind, namespace), object: Box::new(object) }
}

/// An API server with the ProxyServer, and with everything that may be written in these namespaces.
fn api(writable: &[&str]) -> FakeApi {
    let api = FakeApi::new(Diary::default());
    api.put(PROXY, json!({ "metadata": { "uid": "u", "finalizers": ["underpass.dev/proxy-server"] } }));
    for namespace in writable {
        for kind in [BINDING, DEPLOYMENT] {
            let path = format!("/apis/{}/namespaces/{namespace}/{}/edge", kind.api_version, kind.plural);
            api.put(&path, json!({ "metadata": { "finalizers": ["untouched"] } }));
        }
    }
    api
}

async fn carry_out(api: &FakeApi, actions: Vec<Action>) -> Result<(), ApplyError> {
    let metadata = serde_json::from_value(json!({ "name": "edge", "namespace": "hosted", "uid": "u" })).unwrap();
    let subject = Subject::new("hostedcluster.densityops.com/v1alpha1", "ProxyServer", &metadata);
    let finalizer = Finalizer::Remove("underpass.dev/proxy-server");
    let plan = Plan { actions, finalizer, ..Plan::nothing(subject, "a test") };
    Applier::new(api.client(), None, Metrics::default()).apply(&plan).await.map(drop)
}

fn is_touched(api: &FakeApi, kind: ObjectKind, namespace: &str) -> bool {
    let path = format!("/apis/{}/namespaces/{namespace}/{}/edge", kind.api_version, kind.plural);
    api.get(&path).unwrap()["metadata"]["finalizers"].is_null()
}

#[tokio::test]
async fn what_is_refused_stops_what_builds_on_it_and_nothing_else() {
    let api = api(&["hosted", "b"]);
    let all = vec![apply(BINDING, "a"), apply(BINDING, "b"), apply(DEPLOYMENT, "hosted"), apply(BINDING, "c")];
    let told = carry_out(&api, all).await;
    let Err(ApplyError::Action(source)) = told else { panic!("{told:?}") };
    assert!(source.to_string().starts_with("RoleBinding a/edge cannot be written"), "the first: {source}");
    assert!(is_touched(&api, BINDING, "b"));
    assert!(!is_touched(&api, DEPLOYMENT, "hosted"), "its pods would lack a right");
}

/// Of what is left nobody would know any more.
#[tokio::test]
async fn the_finalizer_stays_while_anything_failed() {
    let api = api(&["b"]);
    assert!(carry_out(&api, vec![apply(BINDING, "a"), apply(BINDING, "b")]).await.is_err());
    assert!(api.get(PROXY).unwrap()["metadata"]["finalizers"].is_array());
    assert!(carry_out(&api, vec![apply(BINDING, "b")]).await.is_ok());
    assert!(api.get(PROXY).unwrap()["metadata"]["finalizers"].is_null());
}
