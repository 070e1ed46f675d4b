//! What a backend says about its connections, obeyed alike by both data planes: how many it takes, which endpoints it gets, and for how long
//! they outlive it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use underpass_testbed::{PATIENCE, wait_until};

use super::plane::{Carrier, Plane, becomes_only};
use super::{Backend, Site, answer, assert_carries, carries, open, try_open};

const NAME: &str = "api.example.com";
const DRAIN: Duration = Duration::from_secs(2);

/// Somebody who was there and is not any more: connections are refused at once.
fn gone() -> Backend {
    let address: SocketAddr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    Backend { address }
}

/// The same at the address of a site, where nobody takes the port meanwhile.
fn gone_at(address: Ipv4Addr) -> Backend {
    Backend { address: TcpListener::bind((address, 0)).unwrap().local_addr().unwrap() }
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

fn is_set_aside(carrier: &Carrier, backend: &Backend) -> Option<()> {
    let host = carrier.endpoint("api", backend.address)?;
    (host["health_status"]["failed_outlier_check"] == true).then_some(())
}

/// They speak no TLS, so that every check fails; whoever connects is served all the same.
fn when_all_are_ill_all_are_tried(plane: Plane) {
    let (one, other) = (Backend::start("api"), Backend::start("api"));
    let check = json!({ "type": "TLS", "intervalSeconds": 1, "timeoutSeconds": 1, "unhealthyThreshold": 1 });
    let mut site = Site::new().with_options("api", NAME, &one, &json!({ "healthCheck": check }));
    site.lead_to("api", &[(&one, json!({})), (&other, json!({}))]);
    site.write();
    let carrier = Carrier::start(plane, &site);
    for backend in [&one, &other] {
        wait_until("the checks to fail", PATIENCE, || {
            let host = carrier.endpoint("api", backend.address)?;
            (host["health_status"]["failed_active_health_check"] == true).then_some(())
        });
    }
    becomes_only(site.door(), NAME, "api");
}

/// Without a second attempt, and although who has no connections at all is always the least busy: five failures are enough for each.
fn the_dead_are_set_aside_however_many_they_are(plane: Plane) {
    let (api, dead) = (Backend::start("api"), [gone(), gone()]);
    let options = json!({ "connectAttempts": 1, "loadBalancing": "LeastConnections" });
    let mut site = Site::new().with_options("api", NAME, &api, &options);
    site.lead_to("api", &[(&api, json!({})), (&dead[0], json!({})), (&dead[1], json!({}))]);
    site.write();
    let carrier = Carrier::start(plane, &site);
    wait_until("both to be set aside", PATIENCE, || {
        answer(site.door(), NAME);
        dead.iter().try_for_each(|backend| is_set_aside(&carrier, backend))
    });
    becomes_only(site.door(), NAME, "api");
}

/// The other one is about to end, and gets nothing as long as one is ready.
fn the_last_one_is_tried_although_it_is_set_aside(plane: Plane) {
    let mut site = Site::new();
    let (old, new) = (Backend::start("old"), gone_at(site.address));
    site.add("api", NAME, &old, &json!({}));
    let ending = json!({ "conditions": { "ready": false, "serving": true, "terminating": true } });
    site.lead_to("api", &[(&old, ending), (&new, json!({}))]);
    site.write();
    let carrier = Carrier::start(plane, &site);
    wait_until("it to be set aside", PATIENCE, || {
        answer(site.door(), NAME);
        is_set_aside(&carrier, &new)
    });
    let _new = Backend::start_at(new.address, "new");
    wait_until("it to be tried", PATIENCE, || (answer(site.door(), NAME).as_deref() == Some("new")).then_some(()));
    assert_eq!(is_set_aside(&carrier, &new), Some(()), "{plane:?}: it was waited for");
}

/// It carries until then, and no longer.
#[track_caller]
fn ends_when_its_time_is_over(mut connection: TcpStream, begun: Instant) {
    wait_until("the connection to end", PATIENCE, || (!carries(&mut connection)).then_some(()));
    let lasted = begun.elapsed();
    assert!(lasted >= DRAIN, "it was cut after {lasted:?}");
}

fn connections_of_a_removed_backend_end(plane: Plane) {
    let (api, web) = (Backend::start("api"), Backend::start("web"));
    let mut site = Site::new().with("api", NAME, &api).with("web", "web.example.com", &web);
    site.spec["drainSeconds"] = DRAIN.as_secs().into();
    site.write();
    let _carrier = Carrier::start(plane, &site);
    becomes_only(site.door(), NAME, "api");
    becomes_only(site.door(), "web.example.com", "web");
    let removed = open(site.door(), "web.example.com", "web");
    let mut stays = open(site.door(), NAME, "api");
    site.remove("web");
    site.change("api", &limits(plane));
    let begun = Instant::now();
    site.write();
    ends_when_its_time_is_over(removed, begun);
    assert_eq!(answer(site.door(), "web.example.com"), None);
    assert_carries(&mut stays);
}

/// What a backend may say anew without an end to its connections: less with an Envoy.
fn limits(plane: Plane) -> Value {
    let mut limits =
        json!({ "maxConnections": 7, "timeoutSeconds": 7, "loadBalancing": "LeastConnections", "healthCheck": {} });
    if plane == Plane::Native {
        let more = json!({ "idleTimeoutSeconds": 600, "connectAttempts": 2, "sourceCIDRs": ["127.0.0.0/8"] });
        limits.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    }
    limits
}

/// A backend that expects a header gets nothing from those who came before it did.
fn connections_end_when_another_header_is_sent(plane: Plane) {
    let (api, web) = (Backend::start("api"), Backend::start("web"));
    let mut site = Site::new().with("api", NAME, &api).with("web", "web.example.com", &web);
    site.spec["drainSeconds"] = DRAIN.as_secs().into();
    site.write();
    let _carrier = Carrier::start(plane, &site);
    becomes_only(site.door(), NAME, "api");
    becomes_only(site.door(), "web.example.com", "web");
    let changed = open(site.door(), "web.example.com", "web");
    let mut stays = open(site.door(), NAME, "api");
    site.change("web", &json!({ "proxyProtocol": { "send": "V1" } }));
    let begun = Instant::now();
    site.write();
    ends_when_its_time_is_over(changed, begun);
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
fn our_own_data_plane_tries_all_when_all_are_ill() {
    when_all_are_ill_all_are_tried(Plane::Native);
}

#[test]
fn an_envoy_tries_all_when_all_are_ill() {
    when_all_are_ill_all_are_tried(Plane::Envoy);
}

#[test]
fn our_own_data_plane_sets_the_dead_aside_however_many_they_are() {
    the_dead_are_set_aside_however_many_they_are(Plane::Native);
}

#[test]
fn an_envoy_sets_the_dead_aside_however_many_they_are() {
    the_dead_are_set_aside_however_many_they_are(Plane::Envoy);
}

#[test]
fn our_own_data_plane_tries_the_last_one_although_it_is_set_aside() {
    the_last_one_is_tried_although_it_is_set_aside(Plane::Native);
}

#[test]
fn an_envoy_tries_the_last_one_although_it_is_set_aside() {
    the_last_one_is_tried_although_it_is_set_aside(Plane::Envoy);
}

#[test]
fn connections_end_when_another_header_is_sent_by_our_own_data_plane() {
    connections_end_when_another_header_is_sent(Plane::Native);
}

#[test]
fn connections_end_when_another_header_is_sent_by_an_envoy() {
    connections_end_when_another_header_is_sent(Plane::Envoy);
}

#[test]
fn connections_of_a_removed_backend_end_on_our_own_data_plane() {
    connections_of_a_removed_backend_end(Plane::Native);
}

#[test]
fn connections_of_a_removed_backend_end_on_an_envoy() {
    connections_of_a_removed_backend_end(Plane::Envoy);
}
