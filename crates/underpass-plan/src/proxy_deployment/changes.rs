//! What differs between what should stand and what does, as actions.
//!
//! What people change by hand on the Deployment where documents tell them to, its replicas and the resources of its containers, stays theirs
//! until the ProxyServer itself says something new about them.

use serde_json::{Value, json};
use underpass_resources::ProxyServer;
use underpass_resources::proxy_server::ProxyServerSpec;

use super::network::{self, Network};
use super::{Observed, is_ours, objects, own, place, pods};
use crate::made::{sealed, stands};
use crate::place::{Place, hash};
use crate::plan::Action;
use crate::proxy_server::key;

/// The writer of everything here, by whose name the server remembers which fields are ours.
const OURSELVES: &str = "underpass";
/// The hash of what the ProxyServer said about the fields that may be changed by hand.
const DECLARED: &str = "underpass.dev/declared";

const REPLICAS: [&str; 2] = ["f:spec", "f:replicas"];
const AMOUNTS: [(&str, &str); 4] =
    [("requests", "cpu"), ("requests", "memory"), ("limits", "cpu"), ("limits", "memory")];

/// Everything that has to be done, in order.
pub(super) fn actions(observed: &Observed, network: &Network) -> Vec<Action> {
    let forgotten = pods::departed(observed).into_iter().map(|pod| Action::ForgetReport { pod });
    if taken(observed, network).is_some() {
        return forgotten.collect();
    }
    let wanted = objects::wanted(observed, network);
    let mut actions: Vec<Action> = Vec::new();
    for (place, object) in &wanted {
        let object = finished(observed, place, object.clone());
        if own(observed, place).is_none_or(|found| !stands(&object, found)) {
            actions.push(Action::ApplyObject { place: place.clone(), object: Box::new(object) });
        }
    }
    actions.extend(superfluous(observed, |place| {
        !stays(observed, network, place) && !wanted.iter().any(|(other, _)| other == place)
    }));
    actions.extend(forgotten);
    actions
}

/// What the pods that are there live on, though it is not wanted any more. Those of a network that cannot be joined now are not replaced.
fn stays(observed: &Observed, network: &Network, place: &Place) -> bool {
    let is_kept = matches!(network, Network::Unusable(_)) && place.namespace == key(&observed.object.metadata).0;
    is_kept || place.kind == place::SERVICE_ACCOUNT && pods::accounts(&observed.pods).contains(place.name.as_str())
}

/// Objects of ours that should not be there. The Role has the record of what stands in other namespaces: it goes when nothing else is left.
pub(super) fn superfluous(observed: &Observed, unwanted: impl Fn(&Place) -> bool) -> Vec<Action> {
    let record = own(observed, &place::role(&observed.object));
    let places = place::places(&observed.object, record).into_iter().filter(unwanted);
    let ours: Vec<(&Value, Place)> = places.filter_map(|place| Some((own(observed, &place)?, place))).collect();
    let is_last = |place: &Place| place.kind != place::ROLE || ours.len() == 1;
    ours.iter()
        .filter(|(found, place)| found["metadata"]["deletionTimestamp"].is_null() && is_last(place))
        .map(|(found, place)| Action::DeleteObject { uid: text(&found["metadata"]["uid"]), place: place.clone() })
        .collect()
}

/// A place that we need, with somebody else's object. Nothing is built around that: an account of others would get our rights, and pods would
/// start with what others have written for them. What runs stays as it is.
pub(super) fn taken(observed: &Observed, network: &Network) -> Option<Place> {
    let is_foreign = |place: &Place| {
        observed.found.iter().find(|found| place.is_of(found)).is_some_and(|found| !is_ours(observed, found))
    };
    objects::wanted(observed, network).into_iter().map(|(place, _)| place).find(is_foreign)
}

/// How many pods there are to be: as many as somebody has scaled the Deployment to, else as the object says. Several that could not take turns
/// would all have the same address.
pub(super) fn replicas(observed: &Observed) -> u32 {
    let by_hand = scaled_by_hand(observed).filter(|count| *count <= 1 || network::refuses_turns(observed).is_none());
    by_hand.unwrap_or(observed.object.spec.replicas)
}

/// How many pods somebody has scaled the Deployment to, since the object last said something about that.
pub(super) fn scaled_by_hand(observed: &Observed) -> Option<u32> {
    let proxy = &observed.object;
    own(observed, &place::deployment(proxy))
        .filter(|found| annotation(found, DECLARED) == Some(&declared(proxy)) && has_another_owner(found, &REPLICAS))
        .and_then(|found| u32::try_from(found["spec"]["replicas"].as_u64()?).ok())
}

/// Without what was changed by hand, and with the hash of what is left.
fn finished(observed: &Observed, place: &Place, mut object: Value) -> Value {
    if place.kind == place::DEPLOYMENT {
        let declared = declared(&observed.object);
        if scaled_by_hand(observed) == Some(replicas(observed)) {
            object["spec"].as_object_mut().map(|spec| spec.remove("replicas"));
        }
        if let Some(found) = own(observed, place).filter(|found| annotation(found, DECLARED) == Some(&declared)) {
            leave_amounts(&mut object, found);
        }
        object["metadata"]["annotations"][DECLARED] = json!(declared);
    }
    sealed(object)
}

fn declared(proxy: &ProxyServer) -> String {
    let ProxyServerSpec { replicas, data_plane, resources, manager_resources, .. } = &proxy.spec;
    hash(json!([replicas, data_plane, resources, manager_resources]).to_string().as_bytes())
}

fn leave_amounts(object: &mut Value, found: &Value) {
    let containers = object["spec"]["template"]["spec"]["containers"].as_array_mut();
    for container in containers.into_iter().flatten() {
        let key = format!("k:{}", json!({ "name": container["name"] }));
        let above = ["f:spec", "f:template", "f:spec", "f:containers", &key, "f:resources"];
        for (part, amount) in AMOUNTS {
            let (part_field, amount_field) = (format!("f:{part}"), format!("f:{amount}"));
            let path: Vec<&str> = above.iter().copied().chain([part_field.as_str(), &amount_field]).collect();
            if has_another_owner(found, &path) {
                container["resources"][part].as_object_mut().map(|amounts| amounts.remove(amount));
            }
        }
    }
}

/// Whether somebody else has written the field.
fn has_another_owner(found: &Value, path: &[&str]) -> bool {
    let entries = found["metadata"]["managedFields"].as_array();
    entries.into_iter().flatten().filter(|entry| entry["manager"] != OURSELVES).any(|entry| {
        let field = path.iter().try_fold(&entry["fieldsV1"], |fields, name| fields.get(name));
        field.is_some()
    })
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][name].as_str()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_another_wrote_is_found() {
        let fields = json!({ "f:spec": { "f:replicas": {} } });
        let written =
            |manager: &str| json!({ "metadata": { "managedFields": [{ "manager": manager, "fieldsV1": fields }] } });
        assert!(has_another_owner(&written("kubectl"), &REPLICAS));
        assert!(!has_another_owner(&written(OURSELVES), &REPLICAS));
        assert!(!has_another_owner(&written("kubectl"), &["f:spec", "f:paused"]));
    }
}
