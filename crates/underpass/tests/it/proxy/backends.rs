//! What a backend says about its connections, obeyed alike by both data planes: how many it takes, which endpoints it gets, and for how long
//! they outlive it.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};

use serde_json::{Value, json};
use underpass_testbed::{PATIENCE, wait_until};

use super::plane::{Carrier, Plane, becomes_only};
use super::{Backend, Site, answer, assert_carries, open, try_open};

const NAME: &str = "api.example.com";

/// Somebody who was there and is not any more: connections are refused at once.
fn gone() -> Backend {
    let address: SocketAddr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    Backend { address }
}

/// Two endpoints behind one name, of which one is gone.
fn half_gone(options: &Value) -> (Site, Backend) {
    let (api, dead) = (Backend::start("api"), gone());
    let mut site = Site::new().with_options("api", NAME, &api, options);
    site.lead_to("api", &[(&api, json!({})), (&dead, json!({}))]);
    site.write();
    (site, dead)
}

fn no_more_than_it_takes(plane: Plane) {
    let (api, web) = (Backend::start("api"), Backend::start("web"));
    let site = Site::new().with_options("api", NAME, &api, &json!({ "maxConnections": 3 })).with(
        "web",
        "web.example.com",
        &web,
    );
    site.write();
    let _carrier = Carrier::start(plane, &site);
    becomes_only(site.door(), "web.example.com", "web");
    let mut held = Vec::new();
    wait_until("three connections", PATIENCE, || {
        // Those of before may not have ended everywhere.
        held.clear();
        held.extend((0..3).map_while(|_| try_open(site.door(), NAME)).map(|(client, _)| client));
        (held.len() == 3).then_some(())
    });
    for _ in 0..10 {
        assert_eq!(answer(site.door(), NAME), None, "{plane:?}: a fourth one");
    }
    held.iter_mut().for_each(assert_carries);
    assert_eq!(answer(site.door(), "web.example.com").as_deref(), Some("web"), "the others have their own");
    held.pop();
    wait_until("room for one", PATIENCE, || answer(site.door(), NAME));
}

fn the_next_endpoint_is_tried(plane: Plane) {
    let (site, _) = half_gone(&json!({ "connectAttempts": 2 }));
    let _carrier = Carrier::start(plane, &site);
    becomes_only(site.door(), NAME, "api");
}

/// Without a second attempt: whoever is not ill is the only one who is asked.
fn ill_endpoints_get_nothing(plane: Plane) {
    let check = json!({ "intervalSeconds": 1, "timeoutSeconds": 1, "unhealthyThreshold": 1, "healthyThreshold": 1 });
    let (site, dead) = half_gone(&json!({ "connectAttempts": 1, "healthCheck": check }));
    let carrier = Carrier::start(plane, &site);
    wait_until("the check to fail", PATIENCE, || {
        let host = carrier.endpoint("api", dead.address)?;
        (host["health_status"]["failed_active_health_check"] == true).then_some(())
    });
    becomes_only(site.door(), NAME, "api");
}

fn connections_of_a_removed_backend_end(plane: Plane) {
    let (api, web) = (Backend::start("api"), Backend::start("web"));
    let mut site = Site::new().with("api", NAME, &api).with("web", "web.example.com", &web);
    site.spec["drainSeconds"] = 1.into();
    site.write();
    let _carrier = Carrier::start(plane, &site);
    becomes_only(site.door(), NAME, "api");
    becomes_only(site.door(), "web.example.com", "web");
    let mut removed = open(site.door(), "web.example.com", "web");
    let mut stays = open(site.door(), NAME, "api");
    site.remove("web");
    site.write();
    wait_until("nobody for the name", PATIENCE, || answer(site.door(), "web.example.com").is_none().then_some(()));
    // Until it is cut, which may be a reset.
    let mut rest = Vec::new();
    let end = removed.read_to_end(&mut rest);
    assert!(!matches!(&end, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock), "{plane:?}: it goes on");
    assert_carries(&mut stays);
}

#[test]
fn our_own_data_plane_gives_a_backend_no_more_than_it_takes() {
    no_more_than_it_takes(Plane::Native);
}

#[test]
fn an_envoy_gives_a_backend_no_more_than_it_takes() {
    no_more_than_it_takes(Plane::Envoy);
}

#[test]
fn our_own_data_plane_tries_the_next_endpoint() {
    the_next_endpoint_is_tried(Plane::Native);
}

#[test]
fn an_envoy_tries_the_next_endpoint() {
    the_next_endpoint_is_tried(Plane::Envoy);
}

#[test]
fn our_own_data_plane_gives_ill_endpoints_nothing() {
    ill_endpoints_get_nothing(Plane::Native);
}

#[test]
fn an_envoy_gives_ill_endpoints_nothing() {
    ill_endpoints_get_nothing(Plane::Envoy);
}

#[test]
fn connections_of_a_removed_backend_end_on_our_own_data_plane() {
    connections_of_a_removed_backend_end(Plane::Native);
}

#[test]
fn connections_of_a_removed_backend_end_on_an_envoy() {
    connections_of_a_removed_backend_end(Plane::Envoy);
}
