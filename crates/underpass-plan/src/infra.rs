//! An Infra: the objects that make up the infrastructure of one hosted cluster, made from one.
//!
//! Nothing is built here: each component is an object of its own kind, with a controller of its own, and what that says of it is summed up.
//! The objects stand in the namespace of their Infra, so that owner references remove them after it. A component that is disabled is removed.

mod proxy;
mod status;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use underpass_resources::{HOSTED_CLUSTER_GROUP, Infra};

use crate::made::{OWNER_ANNOTATION, OWNER_LABEL, is_made_for, sealed, stands};
use crate::place::Place;
use crate::plan::{Action, Failure, Finalizer, Plan, Subject};
use crate::proxy_server::key;

/// Nobody is told when an object of others goes.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// All that the decision may look at.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    pub object: Infra,
    /// What stands at its [`places`], whoever made it.
    #[serde(default)]
    pub found: Vec<Value>,
    #[serde(default)]
    pub failure: Option<Failure>,
    pub now: Timestamp,
}

/// How a component is.
enum Component {
    /// Not wanted, and nothing of it is there.
    Absent,
    /// Not wanted any more, and still there.
    Leaving(Place),
    /// Cannot be asked for, because of what the Infra does not say.
    Unspoken,
    /// Somebody else's object has its name.
    Taken(Place),
    /// Asked for; in the words of its own object, if it has said anything about what it was asked.
    NotReady {
        place: Place,
        said: Option<String>,
    },
    Ready,
}

/// Every place at which a component may stand.
pub fn places(infra: &Infra) -> Vec<Place> {
    vec![proxy::place(infra)]
}

pub fn plan(observed: &Observed) -> Plan {
    let infra = &observed.object;
    let subject = Subject::new("hostedcluster.densityops.com/v1alpha1", "Infra", &infra.metadata);
    if infra.metadata.deletion_timestamp.is_some() {
        return Plan::nothing(subject, "it is being deleted, and its components go after it");
    }
    let place = proxy::place(infra);
    let wanted = proxy::wanted(infra).map(|spec| named(infra, &place, &spec));
    let wait = observed.failure.as_ref().and_then(|failure| failure.wait(observed.now));
    let action = if wait.is_some() { None } else { action(observed, &place, wanted.as_ref()) };
    let component = component(observed, place, wanted.as_ref());
    let look_again = matches!(component, Component::Taken(_)).then_some(LOOK_AGAIN);
    let (status, events) = status::tell(observed, &component);
    Plan {
        subject,
        finalizer: Finalizer::Leave,
        status,
        events,
        reasons: vec![reason(observed, action.as_ref(), wait.is_some())],
        actions: action.into_iter().collect(),
        look_again_after: wait.or(look_again),
    }
}

/// What has to be done about a component, if anything.
fn action(observed: &Observed, place: &Place, wanted: Option<&Value>) -> Option<Action> {
    let found = observed.found.iter().find(|found| place.is_of(found));
    match (wanted, found) {
        (Some(wanted), None) => Some(Action::ApplyObject { place: place.clone(), object: Box::new(wanted.clone()) }),
        (_, Some(found)) if !is_ours(observed, found) || is_leaving(found) => None,
        (Some(wanted), Some(found)) if !stands(wanted, found) => {
            Some(Action::ApplyObject { place: place.clone(), object: Box::new(wanted.clone()) })
        }
        (None, Some(found)) if !is_unspoken(observed) => {
            let uid = found["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            Some(Action::DeleteObject { place: place.clone(), uid })
        }
        _ => None,
    }
}

fn component(observed: &Observed, place: Place, wanted: Option<&Value>) -> Component {
    let found = observed.found.iter().find(|found| place.is_of(found));
    match (wanted, found) {
        (None, _) if is_unspoken(observed) => Component::Unspoken,
        (None, Some(found)) if is_ours(observed, found) => Component::Leaving(place),
        (None, _) => Component::Absent,
        (Some(_), None) => Component::NotReady { place, said: None },
        (Some(_), Some(found)) if !is_ours(observed, found) => Component::Taken(place),
        (Some(wanted), Some(found)) if !stands(wanted, found) => Component::NotReady { place, said: None },
        (Some(_), Some(found)) => match ready_condition(found) {
            Some(ready) if ready["status"] == "True" => Component::Ready,
            ready => Component::NotReady { place, said: ready.map(in_words) },
        },
    }
}

/// Whether a proxy is wanted of which nothing can be made. One that is there stays as it is.
fn is_unspoken(observed: &Observed) -> bool {
    observed.object.spec.proxy().is_some() && proxy::wanted(&observed.object).is_none()
}

/// What the object says of itself as it is now, not of what it was.
fn ready_condition(found: &Value) -> Option<&Value> {
    let generation = &found["metadata"]["generation"];
    let conditions = found["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == "Ready" && &condition["observedGeneration"] == generation)
}

fn in_words(condition: &Value) -> String {
    let word = |field: &str| condition[field].as_str().unwrap_or_default();
    format!("{}: {}", word("reason"), word("message"))
}

fn is_ours(observed: &Observed, found: &Value) -> bool {
    is_made_for(observed.object.metadata.uid.as_deref(), found)
}

fn is_leaving(found: &Value) -> bool {
    !found["metadata"]["deletionTimestamp"].is_null()
}

/// Gives a component its name and its owner.
fn named(infra: &Infra, place: &Place, spec: &Value) -> Value {
    let (namespace, name) = key(&infra.metadata);
    sealed(json!({
        "apiVersion": place.kind.api_version,
        "kind": place.kind.kind,
        "metadata": {
            "name": place.name,
            "namespace": place.namespace,
            "labels": { "app.kubernetes.io/managed-by": "underpass", OWNER_LABEL: infra.metadata.uid },
            "annotations": { OWNER_ANNOTATION: format!("{namespace}/{name}") },
            "ownerReferences": [{
                "apiVersion": format!("{HOSTED_CLUSTER_GROUP}/v1alpha1"),
                "kind": "Infra",
                "name": name,
                "uid": infra.metadata.uid,
                "controller": true,
            }],
        },
        "spec": spec,
    }))
}

fn reason(observed: &Observed, action: Option<&Action>, waits: bool) -> String {
    match (&observed.failure, action) {
        (Some(failure), _) if waits => {
            format!("waiting before the next attempt, because the last one failed: {}", failure.message)
        }
        (_, Some(_)) => "what it asks for differs from what stands there".to_owned(),
        (_, None) => "nothing has to be asked for".to_owned(),
    }
}
