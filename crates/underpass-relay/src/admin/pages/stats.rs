//! `/stats` and `/stats/prometheus`: the relay's counters, and those of the process around it.

use std::fmt::{self, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::time::UNIX_EPOCH;

use super::process::Figures;
use crate::admin::AdminState;
use crate::live::Live;
use crate::record::End;
use crate::stats;

/// Ends that say: we would not carry it. What failed behind us is not among them.
const REFUSALS: [End; 12] = [
    End::HelloTimeout,
    End::InvalidHello,
    End::InvalidProxyHeader,
    End::PlainHttp,
    End::UnknownName,
    End::NoName,
    End::NotTls,
    End::SourceNotAllowed,
    End::TooManyConnections,
    End::TooManyFromSource,
    End::TooManyHalfOpen,
    End::RouteFull,
];

pub(super) fn prometheus(state: &AdminState, live: &Live) -> String {
    let mut out = stats::prometheus(live);
    // Writing to a String cannot fail.
    let _ = print_refusals(live, &mut out);
    let _ = print_own(state, live, &mut out);
    let _ = print_process(state, &mut out);
    out
}

/// One `name: value` per line.
pub(super) fn text(state: &AdminState, live: &Live) -> String {
    let mut out = String::new();
    let _ = print_text(state, live, &mut out);
    out
}

fn print_refusals(live: &Live, out: &mut String) -> fmt::Result {
    writeln!(out, "# TYPE underpass_connections_refused_total counter")?;
    for listener in &live.listeners {
        let refused: u64 = REFUSALS.iter().map(|end| listener.stats.count(*end)).sum();
        writeln!(out, "underpass_connections_refused_total{{listener=\"{}\"}} {refused}", listener.name)?;
    }
    Ok(())
}

fn print_own(state: &AdminState, live: &Live, out: &mut String) -> fmt::Result {
    let version = env!("CARGO_PKG_VERSION");
    let stale = u8::from(state.refused.lock().is_some());
    writeln!(out, "# TYPE underpass_build_info gauge\nunderpass_build_info{{version=\"{version}\"}} 1")?;
    writeln!(out, "# TYPE underpass_table_generation gauge\nunderpass_table_generation {}", live.table.generation)?;
    writeln!(out, "# TYPE underpass_table_rejects gauge\nunderpass_table_rejects {}", live.table.rejects.len())?;
    writeln!(out, "# TYPE underpass_table_stale gauge\nunderpass_table_stale {stale}")?;
    let lost = state.relay.log_lines_lost();
    writeln!(out, "# TYPE underpass_access_log_lost_total counter\nunderpass_access_log_lost_total {lost}")?;
    writeln!(out, "# TYPE underpass_connections gauge\nunderpass_connections {}", state.relay.connections())
}

fn print_process(state: &AdminState, out: &mut String) -> fmt::Result {
    let started = state.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    writeln!(out, "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {started}")?;
    let Some(figures) = Figures::read() else { return Ok(()) };
    let Figures { cpu_seconds, resident_bytes, open_files, threads } = figures;
    writeln!(out, "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total {cpu_seconds:.2}")?;
    writeln!(out, "# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes {resident_bytes}")?;
    writeln!(out, "# TYPE process_open_fds gauge\nprocess_open_fds {open_files}")?;
    writeln!(out, "# TYPE process_threads gauge\nprocess_threads {threads}")
}

fn print_text(state: &AdminState, live: &Live, out: &mut String) -> fmt::Result {
    for route in &live.routes {
        let (name, stats) = (&route.route.name, &route.stats);
        writeln!(out, "cluster.{name}.upstream_cx_active: {}", stats.active.load(Relaxed))?;
        writeln!(out, "cluster.{name}.upstream_cx_connect_fail: {}", stats.connect_failures.load(Relaxed))?;
        writeln!(out, "cluster.{name}.upstream_cx_connect_timeout: {}", stats.connect_timeouts.load(Relaxed))?;
        writeln!(out, "cluster.{name}.upstream_cx_rx_bytes_total: {}", stats.bytes_received.load(Relaxed))?;
        writeln!(out, "cluster.{name}.upstream_cx_total: {}", stats.total.load(Relaxed))?;
        writeln!(out, "cluster.{name}.upstream_cx_tx_bytes_total: {}", stats.bytes_sent.load(Relaxed))?;
    }
    for listener in &live.listeners {
        // A colon would end the name.
        let address = listener.address.to_string().replace(':', "_");
        let stats = &listener.stats;
        writeln!(out, "listener.{address}.downstream_cx_active: {}", stats.active.load(Relaxed))?;
        writeln!(out, "listener.{address}.downstream_cx_total: {}", stats.total.load(Relaxed))?;
        for end in End::ALL {
            writeln!(out, "listener.{address}.ended.{}: {}", end.as_str(), stats.count(end))?;
        }
    }
    writeln!(out, "server.live: {}", u8::from(super::phase(state) == "LIVE"))?;
    writeln!(out, "server.uptime: {}", state.started.elapsed().unwrap_or_default().as_secs())?;
    writeln!(out, "server.total_connections: {}", state.relay.connections())
}
