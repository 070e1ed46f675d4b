//! Objects of the API that plans make: whose they are, and whether they stand as they were made.
//!
//! An object is applied again when what we want of it has changed (a hash that it carries), or when somebody has changed what we want
//! (a look at every field). Fields that the server or others add are left alone.

use serde_json::{Value, json};

use crate::place::hash;

/// The uid of the object for which another one was made.
pub const OWNER_LABEL: &str = "underpass.dev/owner-uid";
/// Its namespace and name: `NAMESPACE/NAME`.
pub const OWNER_ANNOTATION: &str = "underpass.dev/owner";
/// The hash of what was applied last.
const APPLIED: &str = "underpass.dev/applied";

/// Whether it was made for the object with that uid.
pub(crate) fn is_made_for(uid: Option<&str>, found: &Value) -> bool {
    uid.is_some() && found["metadata"]["labels"][OWNER_LABEL].as_str() == uid
}

/// With the hash of all that it says.
pub(crate) fn sealed(mut object: Value) -> Value {
    let applied = hash(object.to_string().as_bytes());
    object["metadata"]["annotations"][APPLIED] = json!(applied);
    object
}

/// Whether what was found is what is wanted, and stays.
pub(crate) fn stands(wanted: &Value, found: &Value) -> bool {
    found["metadata"]["deletionTimestamp"].is_null() && contains(found, wanted)
}

/// Whether `found` has all that `wanted` says. Amounts are not compared: the server writes them in its own way. Of what has names, others may
/// have added more: the server keeps both. Of rights, everything that is more is too much.
fn contains(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted.iter().all(|(name, value)| match name.as_str() {
            "rules" | "subjects" => found.get(name) == Some(value),
            // Those of a container; those of a rule are a list.
            "resources" if value.is_object() => true,
            _ => found.get(name).map_or(is_empty(value), |found| contains(found, value)),
        }),
        (Value::Array(found), Value::Array(wanted))
            if !wanted.is_empty() && wanted.iter().all(|item| item["name"].is_string()) =>
        {
            wanted.iter().all(|wanted| found.iter().any(|found| contains(found, wanted)))
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, wanted)| contains(found, wanted))
        }
        (found, wanted) => found == wanted,
    }
}

/// The server leaves out what says nothing.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_add_is_no_difference_and_what_they_change_is() {
        let wanted = json!({ "spec": { "ports": [{ "port": 443 }], "shared": false } });
        let added =
            json!({ "spec": { "ports": [{ "port": 443, "protocol": "TCP" }], "clusterIP": "10.0.0.1" }, "status": {} });
        assert!(contains(&added, &wanted));
        assert!(!contains(&json!({ "spec": { "ports": [{ "port": 444 }] } }), &wanted));
        assert!(!contains(&json!({ "spec": { "ports": [{ "port": 443 }, { "port": 1 }] } }), &wanted));
        let named = json!([{ "name": "a", "port": 1 }]);
        assert!(contains(&json!([{ "name": "theirs" }, { "name": "a", "port": 1 }]), &named));
        assert!(!contains(&json!([{ "name": "a", "port": 2 }, { "name": "theirs", "port": 1 }]), &named));
        let amounts = |cpu: &str| json!({ "name": "a", "resources": { "requests": { "cpu": cpu } } });
        assert!(contains(&amounts("0.1"), &amounts("100m")));
    }

    #[test]
    fn rights_are_those_that_were_given_and_no_others() {
        let role = json!({ "rules": [{ "resources": ["leases"], "verbs": ["get"] }] });
        assert!(contains(&role, &role));
        for rules in [
            json!([{ "resources": ["secrets"], "verbs": ["get"] }]),
            json!([{ "resources": ["leases"], "resourceNames": ["one"], "verbs": ["get"] }]),
            json!([{ "resources": ["leases"], "verbs": ["get"] }, { "resources": ["secrets"], "verbs": ["get"] }]),
        ] {
            assert!(!contains(&json!({ "rules": rules }), &role), "{rules}");
        }
        let ours = json!({ "kind": "ServiceAccount", "name": "edge" });
        let binding = json!({ "subjects": [ours] });
        assert!(!contains(&json!({ "subjects": [ours, { "kind": "User", "name": "mallory" }] }), &binding));
    }
}
