//! What is counted, by route and by listener. Counters are shared by the workers and only ever added to; readers sum nothing up.

use std::fmt::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::live::Live;
use crate::record::End;

/// Upper bounds of the buckets, in milliseconds; the last one is open.
const BUCKETS_MS: [u64; 14] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 30_000, 300_000, 3_600_000];

#[derive(Default)]
pub struct ListenerStats {
    pub active: AtomicU32,
    pub total: AtomicU64,
    /// How connections ended, by `End`.
    pub ends: [AtomicU64; End::ALL.len()],
    /// From accept to the decision.
    pub opening: Histogram,
}

#[derive(Default)]
pub struct RouteStats {
    pub active: AtomicU32,
    pub total: AtomicU64,
    pub connect_failures: AtomicU64,
    pub connect_timeouts: AtomicU64,
    /// Towards the endpoint.
    pub bytes_sent: AtomicU64,
    /// From the endpoint.
    pub bytes_received: AtomicU64,
    pub connecting: Histogram,
    pub lifetime: Histogram,
}

#[derive(Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS_MS.len() + 1],
    sum_ms: AtomicU64,
}

impl Histogram {
    pub(crate) fn observe(&self, ms: u64) {
        let bucket = BUCKETS_MS.partition_point(|bound| *bound < ms);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum_ms.fetch_add(ms, Relaxed);
    }

    /// Nothing when nothing was observed: with ten thousand routes, most are empty.
    fn print(&self, name: &str, label: &str, out: &mut String) -> fmt::Result {
        let mut sum = 0;
        if self.buckets.iter().all(|bucket| bucket.load(Relaxed) == 0) {
            return Ok(());
        }
        for (index, bucket) in self.buckets.iter().enumerate() {
            sum += bucket.load(Relaxed);
            match BUCKETS_MS.get(index) {
                Some(bound) => writeln!(out, "{name}_bucket{{{label},le=\"{}\"}} {sum}", seconds(*bound))?,
                None => writeln!(out, "{name}_bucket{{{label},le=\"+Inf\"}} {sum}")?,
            }
        }
        writeln!(out, "{name}_sum{{{label}}} {}", seconds(self.sum_ms.load(Relaxed)))?;
        writeln!(out, "{name}_count{{{label}}} {sum}")
    }
}

impl ListenerStats {
    pub(crate) fn ended(&self, end: End) {
        self.active.fetch_sub(1, Relaxed);
        self.ends[end as usize].fetch_add(1, Relaxed);
    }
}

/// All metrics in Prometheus' text format: Envoy's names for what Envoy has too, so that dashboards made for it work, ours for the rest.
pub fn prometheus(live: &Live) -> String {
    let mut out = String::with_capacity(64 * 1024);
    // Writing to a String cannot fail.
    let _ = print_listeners(live, &mut out);
    let _ = print_routes(live, &mut out);
    out
}

/// What is said of a metric before its values.
pub(crate) fn family(out: &mut String, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

/// As Envoy writes it where a colon has another meaning.
pub(crate) fn label(address: SocketAddr) -> String {
    address.to_string().replace(':', "_")
}

fn print_listeners(live: &Live, out: &mut String) -> fmt::Result {
    let each = |out: &mut String, name: &str, kind: &str, help: &str, value: &dyn Fn(&ListenerStats) -> u64| {
        family(out, name, kind, help)?;
        live.listeners.iter().try_for_each(|listener| {
            writeln!(out, "{name}{{envoy_listener_address=\"{}\"}} {}", label(listener.address), value(&listener.stats))
        })
    };
    each(out, "envoy_listener_downstream_cx_active", "gauge", "Connections of clients that are open.", &|stats| {
        stats.active.load(Relaxed).into()
    })?;
    each(out, "envoy_listener_downstream_cx_total", "counter", "Connections that clients have opened.", &|stats| {
        stats.total.load(Relaxed)
    })?;
    each(
        out,
        "envoy_listener_downstream_pre_cx_timeout",
        "counter",
        "Connections without a whole hello in time.",
        &|stats| stats.count(End::HelloTimeout),
    )?;
    each(
        out,
        "envoy_listener_no_filter_chain_match",
        "counter",
        "Connections for which there is no route.",
        &|stats| stats.count(End::UnknownName) + stats.count(End::NoName) + stats.count(End::NotTls),
    )?;
    family(out, "underpass_connections_ended_total", "counter", "Connections that have ended, by the way they did.")?;
    for listener in &live.listeners {
        for end in End::ALL {
            let (name, count) = (&listener.name, listener.stats.count(end));
            writeln!(out, "underpass_connections_ended_total{{listener=\"{name}\",end=\"{}\"}} {count}", end.as_str())?;
        }
    }
    family(out, "underpass_opening_seconds", "histogram", "From accepting a connection to knowing its route.")?;
    for listener in &live.listeners {
        listener.stats.opening.print("underpass_opening_seconds", &format!("listener=\"{}\"", listener.name), out)?;
    }
    Ok(())
}

fn print_routes(live: &Live, out: &mut String) -> fmt::Result {
    let each = |out: &mut String, name: &str, kind: &str, help: &str, value: &dyn Fn(&RouteStats) -> u64| {
        family(out, name, kind, help)?;
        live.routes.iter().try_for_each(|live| {
            writeln!(out, "{name}{{envoy_cluster_name=\"{}\"}} {}", live.route.name, value(&live.stats))
        })
    };
    each(out, "envoy_cluster_upstream_cx_active", "gauge", "Connections of this backend that are open.", &|stats| {
        stats.active.load(Relaxed).into()
    })?;
    each(
        out,
        "envoy_cluster_upstream_cx_total",
        "counter",
        "Connections that were routed to this backend.",
        &|stats| stats.total.load(Relaxed),
    )?;
    each(
        out,
        "envoy_cluster_upstream_cx_connect_fail",
        "counter",
        "Attempts to connect to an endpoint that failed.",
        &|stats| stats.connect_failures.load(Relaxed),
    )?;
    each(
        out,
        "envoy_cluster_upstream_cx_connect_timeout",
        "counter",
        "Attempts to connect to an endpoint that took too long.",
        &|stats| stats.connect_timeouts.load(Relaxed),
    )?;
    each(
        out,
        "envoy_cluster_upstream_cx_tx_bytes_total",
        "counter",
        "Bytes sent to endpoints by connections that have ended.",
        &|stats| stats.bytes_sent.load(Relaxed),
    )?;
    each(
        out,
        "envoy_cluster_upstream_cx_rx_bytes_total",
        "counter",
        "Bytes received from endpoints by connections that have ended.",
        &|stats| stats.bytes_received.load(Relaxed),
    )?;
    let connecting: fn(&RouteStats) -> &Histogram = |stats| &stats.connecting;
    for (name, help, histogram) in [
        ("underpass_connect_seconds", "From knowing the route to being connected to an endpoint.", connecting),
        ("underpass_connection_seconds", "From accepting a connection to its end.", |stats| &stats.lifetime),
    ] {
        family(out, name, "histogram", help)?;
        for live in &live.routes {
            histogram(&live.stats).print(name, &format!("route=\"{}\"", live.route.name), out)?;
        }
    }
    Ok(())
}

impl ListenerStats {
    pub fn count(&self, end: End) -> u64 {
        self.ends[end as usize].load(Relaxed)
    }
}

/// Milliseconds as seconds, without rounding.
fn seconds(ms: u64) -> String {
    let text = format!("{}.{:03}", ms / 1000, ms % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_bounds_inclusive() {
        let histogram = Histogram::default();
        for ms in [0, 1, 2, 4_000_000] {
            histogram.observe(ms);
        }
        let mut out = String::new();
        assert!(histogram.print("h", "a=\"b\"", &mut out).is_ok());
        assert!(out.contains("h_bucket{a=\"b\",le=\"0.001\"} 2\n"), "{out}");
        assert!(out.contains("le=\"0.002\"} 3\n") && out.contains("le=\"+Inf\"} 4\n"), "{out}");
        assert!(out.ends_with("h_sum{a=\"b\"} 4000.003\nh_count{a=\"b\"} 4\n"), "{out}");
    }
}
