//! `/clusters`: every route and every endpoint, with what was seen of it.

use std::fmt::{self, Write};
use std::sync::atomic::Ordering::Relaxed;

use serde_json::{Value, json};
use underpass_tables::Endpoint as Wanted;

use super::pretty;
use crate::live::{Endpoint, Live, LiveRoute};

/// `NAME::ADDRESS::WHAT::VALUE`, a line each.
pub(super) fn text(live: &Live, now_ms: u64) -> String {
    let mut out = String::new();
    for route in &live.routes {
        // Writing to a String cannot fail.
        let _ = write_route(&mut out, route, now_ms);
    }
    out
}

pub(super) fn json(live: &Live, now_ms: u64) -> String {
    let clusters: Vec<Value> = live.routes.iter().map(|route| cluster(route, now_ms)).collect();
    pretty(&json!({ "cluster_statuses": clusters }))
}

fn write_route(out: &mut String, live: &LiveRoute, now_ms: u64) -> fmt::Result {
    let (route, name) = (&live.route, &live.route.name);
    writeln!(out, "{name}::observability_name::{name}")?;
    writeln!(out, "{name}::target::{}", route.target)?;
    if let Some(most) = route.max_connections {
        writeln!(out, "{name}::default_priority::max_connections::{most}")?;
    }
    if let Some(trouble) = &route.trouble {
        writeln!(out, "{name}::trouble::{trouble}")?;
    }
    for (endpoint, wanted) in live.endpoints.iter().zip(&route.endpoints) {
        let address = endpoint.address;
        for (what, value) in figures(endpoint) {
            writeln!(out, "{name}::{address}::{what}::{value}")?;
        }
        writeln!(out, "{name}::{address}::health_flags::{}", flags(live, endpoint, wanted, now_ms))?;
        writeln!(out, "{name}::{address}::zone::{}", wanted.zone.as_deref().unwrap_or_default())?;
    }
    Ok(())
}

fn cluster(live: &LiveRoute, now_ms: u64) -> Value {
    let hosts = live.endpoints.iter().zip(&live.route.endpoints);
    let hosts: Vec<Value> = hosts.map(|(endpoint, wanted)| host(live, endpoint, wanted, now_ms)).collect();
    json!({
        "name": live.route.name,
        "target": live.route.target,
        "trouble": live.route.trouble,
        "host_statuses": hosts,
    })
}

fn host(live: &LiveRoute, endpoint: &Endpoint, wanted: &Wanted, now_ms: u64) -> Value {
    let stats: Vec<Value> = figures(endpoint)
        .into_iter()
        .map(|(name, value)| json!({ "name": name, "value": value.to_string() }))
        .collect();
    let (address, port) = (endpoint.address.ip(), endpoint.address.port());
    json!({
        "address": { "socket_address": { "address": address, "port_value": port } },
        "stats": stats,
        "locality": { "zone": wanted.zone },
        "health_flags": flags(live, endpoint, wanted, now_ms),
        "health_status": {
            "eds_health_status": if wanted.draining { "DRAINING" } else { "HEALTHY" },
            "failed_active_health_check": !endpoint.passes_checks.load(Relaxed),
            "failed_outlier_check": endpoint.ejected(now_ms),
        },
    })
}

fn figures(endpoint: &Endpoint) -> [(&'static str, u64); 3] {
    [
        ("cx_active", endpoint.active.load(Relaxed).into()),
        ("cx_total", endpoint.total.load(Relaxed)),
        ("cx_connect_fail", endpoint.connect_failures.load(Relaxed)),
    ]
}

/// In Envoy's words: what is wrong, or `healthy`.
fn flags(live: &LiveRoute, endpoint: &Endpoint, wanted: &Wanted, now_ms: u64) -> String {
    let mut flags = String::new();
    if !endpoint.passes_checks.load(Relaxed) {
        flags.push_str("/failed_active_hc");
    }
    if endpoint.ejected(now_ms) {
        flags.push_str("/failed_outlier_check");
    }
    if live.route.health_check.is_some() && !endpoint.checked.load(Relaxed) {
        flags.push_str("/pending_active_hc");
    }
    if wanted.draining {
        flags.push_str("/eds_status_draining");
    }
    if flags.is_empty() { "healthy".to_owned() } else { flags }
}
