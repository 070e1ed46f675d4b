//! What each page says. Paths, names and forms are Envoy's where Envoy has the page too.

mod clusters;
mod config_dump;
mod process;
mod stats;

use std::fmt::Write;

use hyper::StatusCode;
use serde_json::json;

use super::AdminState;
use crate::port::{Page, TEXT};

const JSON: &str = "application/json";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Envoy's word for: not yet.
const NOT_LISTENING: &str = "INITIALIZING";

const PAGES: [(&str, &str); 7] = [
    ("/clusters", "routes and their endpoints, with what is known of them; ?format=json"),
    ("/config_dump", "the table in force, and what was refused and why"),
    ("/listeners", "where connections are accepted; ?format=json"),
    ("/ready", "200 LIVE when connections are accepted, else 503"),
    ("/server_info", "version, state and age of this process"),
    ("/stats", "all counters, as Envoy prints them; ?format=prometheus"),
    ("/stats/prometheus", "all counters, for Prometheus"),
];

/// The page at a path, if there is one.
pub(super) fn page(path: &str, query: &str, state: &AdminState) -> Option<Page> {
    let asked = |format: &str| query.split('&').any(|pair| pair.strip_prefix("format=") == Some(format));
    let live = state.relay.live();
    Some(match path {
        "/" => Page::ok(TEXT, index()),
        "/ready" => ready(state),
        "/stats" if asked("prometheus") => Page::ok(PROMETHEUS, stats::prometheus(state, &live)),
        "/stats/prometheus" => Page::ok(PROMETHEUS, stats::prometheus(state, &live)),
        "/stats" => Page::ok(TEXT, stats::text(state, &live)),
        "/clusters" if asked("json") => Page::ok(JSON, clusters::json(&live, state.relay.now_ms())),
        "/clusters" => Page::ok(TEXT, clusters::text(&live, state.relay.now_ms())),
        "/listeners" if asked("json") => {
            let listeners =
                live.listeners.iter().map(|listener| json!({ "name": listener.name, "address": listener.address }));
            Page::ok(JSON, pretty(&json!({ "listeners": listeners.collect::<Vec<_>>() })))
        }
        "/listeners" => Page::ok(
            TEXT,
            live.listeners.iter().map(|listener| format!("{}::{}\n", listener.name, listener.address)).collect(),
        ),
        "/server_info" => Page::ok(JSON, server_info(state)),
        "/config_dump" => Page::ok(JSON, config_dump::text(state, &live)),
        _ => return None,
    })
}

fn index() -> String {
    let mut text = String::from("underpass relay, read-only\n");
    for (path, what) in PAGES {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {path:<18} {what}");
    }
    text
}

fn ready(state: &AdminState) -> Page {
    let phase = phase(state);
    let status = if phase == "LIVE" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Page::text(status, format!("{phase}{}\n", why(phase)))
}

fn why(phase: &str) -> &'static str {
    if phase == NOT_LISTENING { ": no listener is open; /config_dump says why, under rejects" } else { "" }
}

/// In Envoy's words.
fn phase(state: &AdminState) -> &'static str {
    if state.relay.draining() {
        "DRAINING"
    } else if state.relay.live().table.generation == 0 {
        "PRE_INITIALIZING"
    } else if state.relay.live().listeners.is_empty() {
        NOT_LISTENING
    } else {
        "LIVE"
    }
}

fn server_info(state: &AdminState) -> String {
    let uptime = state.started.elapsed().unwrap_or_default().as_secs();
    pretty(&json!({
        "version": concat!("underpass/", env!("CARGO_PKG_VERSION")),
        "state": phase(state),
        "uptime_current_epoch": format!("{uptime}s"),
        "uptime_all_epochs": format!("{uptime}s"),
        "pid": std::process::id(),
        "generation": state.relay.live().table.generation,
        "connections": state.relay.connections(),
    }))
}

fn pretty(value: &serde_json::Value) -> String {
    // A Value has no key that is not a string, so it can always be written.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}
