//! The admin port of the binary.

use serde_json::{Value, json};

use super::{Backend, PATIENCE, Proxy, Site, assert_contains, get, open, wait_until};

#[test]
fn the_promised_pages_and_metrics_are_there() {
    let api = Backend::start("api");
    let site = Site::new().with("api", "api.example.com", &api);
    site.write();
    let proxy = Proxy::start(&site);
    let _open = open(site.door(), "api.example.com", "api");
    assert_eq!(get(proxy.admin, "/ready").unwrap(), (200, "LIVE\n".into()));
    let (door, endpoint) = (site.door(), api.address);
    // As Envoy writes it.
    let label = door.to_string().replace(':', "_");
    assert_contains(
        &proxy.page("/stats/prometheus"),
        &[
            "envoy_cluster_upstream_cx_active{envoy_cluster_name=\"edge-api\"} 1\n",
            "envoy_cluster_upstream_cx_total{envoy_cluster_name=\"edge-api\"} 1\n",
            &format!("envoy_listener_downstream_cx_active{{envoy_listener_address=\"{label}\"}} 1\n"),
            &format!("envoy_listener_downstream_cx_total{{envoy_listener_address=\"{label}\"}} 1\n"),
            "underpass_table_generation 1\n",
        ],
    );
    assert_contains(&proxy.page("/stats"), &["cluster.edge-api.upstream_cx_active: 1\n"]);
    assert_contains(&proxy.page("/clusters"), &[&format!("edge-api::{endpoint}::cx_active::1\n")]);
    assert_contains(&proxy.page("/listeners"), &[&format!("edge-listener-10443::{door}\n")]);
    let dump = proxy.config();
    assert_eq!(dump["configs"][1]["dynamic_listeners"][0]["rules"]["names"], json!({ "api.example.com": "edge-api" }));
    assert_eq!(dump["configs"][3]["dynamic_active_clusters"][0]["cluster"]["name"], "edge-api");
}

#[test]
fn a_backend_without_a_service_is_refused_connections_and_says_why() {
    let api = Backend::start("api");
    let mut site = Site::new().with("api", "api.example.com", &api);
    site.add("lost", "lost.example.com", &api, &json!({ "targetService": "nobody" }));
    site.write();
    let mut proxy = Proxy::start(&site);
    assert_contains(&proxy.page("/clusters"), &["edge-lost::trouble::service not found: cp/nobody\n"]);
    proxy.process.wait_until_told(&["failed to discover endpoints: service not found: cp/nobody"]);
}

#[test]
fn checks_that_a_backend_asks_for_are_made() {
    let api = Backend::start("api");
    let check =
        json!({ "healthCheck": { "type": "TLS", "intervalSeconds": 1, "timeoutSeconds": 1, "unhealthyThreshold": 1 } });
    let site = Site::new().with_options("api", "api.example.com", &api, &check);
    site.write();
    let proxy = Proxy::start(&site);
    // It answers with a word, which is no handshake.
    wait_until("the check to fail", PATIENCE, || {
        let clusters: Value = serde_json::from_str(&proxy.page("/clusters?format=json")).unwrap();
        let flags = &clusters["cluster_statuses"][0]["host_statuses"][0]["health_flags"];
        (flags == "/failed_active_hc").then_some(())
    });
    let _still = open(site.door(), "api.example.com", "api");
}
