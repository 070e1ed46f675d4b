//! Where connections go while the pods behind a Service come and go: the same on both data planes.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use underpass_testbed::{PATIENCE, wait_until};

use super::plane::{Carrier, Plane, becomes_only};
use super::{Backend, Site, answer, assert_carries, open};

const NAME: &str = "api.example.com";

/// As a slice says it of a pod that is being deleted and has not ended yet.
fn ending() -> Value {
    json!({ "zone": "a", "conditions": { "ready": false, "serving": true, "terminating": true } })
}

fn ready(zone: &str) -> Value {
    json!({ "zone": zone, "conditions": { "ready": true, "serving": true, "terminating": false } })
}

/// A pod is replaced by another: no new connection comes to it from then on, and those that it has stay until it ends them, also after it is
/// gone from the Service. Should it be the last one it serves on.
#[track_caller]
fn a_pod_is_replaced(plane: Plane, options: &Value) {
    let (old, new) = (Backend::start("old"), Backend::start("new"));
    let mut site = Site::new().with_options("api", NAME, &old, options);
    site.lead_to("api", &[(&old, ready("a"))]);
    site.write();
    let carrier = Carrier::start(plane, &site);
    becomes_only(site.door(), NAME, "old");
    let mut connection = open(site.door(), NAME, "old");

    site.lead_to("api", &[(&old, ending()), (&new, ready("b"))]);
    site.write();
    becomes_only(site.door(), NAME, "new");
    assert_carries(&mut connection);
    let host = carrier.endpoint("api", old.address).unwrap();
    assert_eq!(host["health_status"]["eds_health_status"], "DRAINING", "{host}");
    assert_eq!(host["locality"]["zone"], "a", "{host}");
    let active = host["stats"].as_array().unwrap().iter().find(|stat| stat["name"] == "cx_active").unwrap();
    assert_eq!(active["value"], "1", "what it still carries is seen");

    site.lead_to("api", &[(&old, ending())]);
    site.write();
    becomes_only(site.door(), NAME, "old");
    assert_carries(&mut connection);

    site.lead_to("api", &[(&new, ready("b"))]);
    site.write();
    wait_until("the old one to be forgotten", PATIENCE, || {
        carrier.endpoint("api", old.address).is_none().then_some(())
    });
    becomes_only(site.door(), NAME, "new");
    assert_carries(&mut connection);
}

fn checked() -> Value {
    json!({ "healthCheck": { "intervalSeconds": 1, "timeoutSeconds": 1, "healthyThreshold": 1 } })
}

#[test]
fn a_pod_is_replaced_on_our_own_data_plane() {
    a_pod_is_replaced(Plane::Native, &json!({}));
}

#[test]
fn a_pod_is_replaced_on_an_envoy() {
    a_pod_is_replaced(Plane::Envoy, &json!({}));
}

#[test]
fn a_pod_that_is_checked_is_replaced_on_our_own_data_plane() {
    a_pod_is_replaced(Plane::Native, &checked());
}

/// Its checks still pass, and that must not keep it.
#[test]
fn a_pod_that_is_checked_is_replaced_on_an_envoy() {
    a_pod_is_replaced(Plane::Envoy, &checked());
}

/// A zone says where an endpoint is, not how much it gets.
#[track_caller]
fn every_zone_gets_connections(plane: Plane) {
    let backends = [Backend::start("one"), Backend::start("two"), Backend::start("three"), Backend::start("four")];
    let [one, two, three, four] = &backends;
    let mut site = Site::new().with("api", NAME, one);
    site.lead_to("api", &[(one, ready("b")), (two, ready("a")), (three, ready("a")), (four, json!({}))]);
    site.write();
    let carrier = Carrier::start(plane, &site);
    let mut seen = BTreeSet::new();
    wait_until("everybody to answer", PATIENCE, || {
        seen.extend(answer(site.door(), NAME));
        (seen.len() == 4).then_some(())
    });
    for (backend, zone) in backends.iter().zip([json!("b"), json!("a"), json!("a"), Value::Null]) {
        let host = carrier.endpoint("api", backend.address).unwrap();
        assert_eq!(host["locality"]["zone"], zone, "{host}");
    }
}

#[test]
fn every_zone_gets_connections_on_our_own_data_plane() {
    every_zone_gets_connections(Plane::Native);
}

#[test]
fn every_zone_gets_connections_on_an_envoy() {
    every_zone_gets_connections(Plane::Envoy);
}
