//! `/stats` and `/stats/prometheus`: the relay's counters, and those of the process around it.

use std::fmt::{self, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::time::UNIX_EPOCH;

use super::process::Figures;
use crate::admin::AdminState;
use crate::live::Live;
use crate::record::End;
use crate::stats::{self, family, label};

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
    family(out, "underpass_connections_refused_total", "counter", "Connections that were not to be carried.")?;
    for listener in &live.listeners {
        let refused: u64 = REFUSALS.iter().map(|end| listener.stats.count(*end)).sum();
        writeln!(out, "underpass_connections_refused_total{{listener=\"{}\"}} {refused}", listener.name)?;
    }
    Ok(())
}

fn print_own(state: &AdminState, live: &Live, out: &mut String) -> fmt::Result {
    let version = env!("CARGO_PKG_VERSION");
    family(out, "underpass_build_info", "gauge", "Always 1; the version is in the label.")?;
    writeln!(out, "underpass_build_info{{version=\"{version}\"}} 1")?;
    let stale = u8::from(state.refused.lock().is_some());
    let (table, relay) = (&live.table, &state.relay);
    for (name, kind, help, value) in [
        ("underpass_table_generation", "gauge", "Grows with every configuration in force.", table.generation),
        (
            "underpass_table_rejects",
            "gauge",
            "Entries of the configuration that were left out.",
            table.rejects.len() as u64,
        ),
        ("underpass_table_stale", "gauge", "1 while the newest configuration is refused as a whole.", stale.into()),
        ("underpass_access_log_lost_total", "counter", "Lines that nobody took in time.", relay.log_lines_lost()),
        ("underpass_connections", "gauge", "Connections that are open, of all listeners.", relay.connections().into()),
    ] {
        family(out, name, kind, help)?;
        writeln!(out, "{name} {value}")?;
    }
    Ok(())
}

fn print_process(state: &AdminState, out: &mut String) -> fmt::Result {
    let started = state.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    family(out, "process_start_time_seconds", "gauge", "When this process began, in seconds since 1970.")?;
    writeln!(out, "process_start_time_seconds {started}")?;
    let Some(Figures { cpu_seconds, resident_bytes, open_files, threads }) = Figures::read() else { return Ok(()) };
    family(out, "process_cpu_seconds_total", "counter", "Time of the processors that this process has used.")?;
    writeln!(out, "process_cpu_seconds_total {cpu_seconds:.2}")?;
    for (name, help, value) in [
        ("process_resident_memory_bytes", "Memory of this process.", resident_bytes),
        ("process_open_fds", "Descriptors of this process.", open_files as u64),
        ("process_threads", "Threads of this process.", threads),
    ] {
        family(out, name, "gauge", help)?;
        writeln!(out, "{name} {value}")?;
    }
    Ok(())
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
        let (address, stats) = (label(listener.address), &listener.stats);
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
