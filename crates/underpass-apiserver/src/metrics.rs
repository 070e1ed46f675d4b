//! What the server counts about itself, under kube-apiserver's names where it has one, in OpenMetrics text.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// From a read out of memory to the longest that a client waits.
const DURATION_BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// Why a connection or a request got no proper answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Accept,
    Connections,
    Handshakes,
    Handshake,
    PlainHttp,
    Header,
    Unauthorized,
    Body,
    BodyBytes,
    InFlight,
    Watches,
    Stalled,
}

impl Refused {
    fn label(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Connections => "connections",
            Self::Handshakes => "handshakes",
            Self::Handshake => "handshake",
            Self::PlainHttp => "plain_http",
            Self::Header => "header_deadline",
            Self::Unauthorized => "unauthorized",
            Self::Body => "body_deadline",
            Self::BodyBytes => "body_size",
            Self::InFlight => "in_flight",
            Self::Watches => "watches",
            Self::Stalled => "stalled",
        }
    }
}

/// All metrics of one server, and the registry to which other parts add theirs.
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    requests: Family<RequestLabels, Counter>,
    durations: Family<VerbLabels, Histogram, fn() -> Histogram>,
    in_flight: Family<KindLabels, Gauge>,
    watches: Gauge,
    connections: Gauge,
    refused: Family<ReasonLabels, Counter>,
    watchers_dropped: Family<ReasonLabels, Counter>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let metrics = Self {
            registry: Mutex::new(Registry::default()),
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
            in_flight: Family::default(),
            watches: Gauge::default(),
            connections: Gauge::default(),
            refused: Family::default(),
            watchers_dropped: Family::default(),
        };
        metrics.register(|registry| metrics.register_own(registry));
        metrics
    }

    /// Lets another part of the server add its own metrics, or a collector that is asked at each scrape.
    pub(crate) fn register<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.registry.lock())
    }

    /// The text of `/metrics`; see [`CONTENT_TYPE`].
    pub(crate) fn render(&self) -> String {
        let mut page = String::new();
        text::encode(&mut page, &self.registry.lock()).expect("writing to a string does not fail");
        page
    }

    /// A watcher lost its watch and did not ask for it; `reason` is one of a few fixed words.
    pub(crate) fn watcher_dropped(&self, reason: &'static str) {
        self.watchers_dropped.get_or_create(&ReasonLabels { reason }).inc();
    }

    pub(crate) fn refused(&self, reason: Refused) {
        self.refused.get_or_create(&ReasonLabels { reason: reason.label() }).inc();
    }

    pub(crate) fn answered(&self, verb: &'static str, code: u16) {
        self.requests.get_or_create(&RequestLabels { verb, code }).inc();
    }

    pub(crate) fn took(&self, verb: &'static str, duration: Duration) {
        self.durations.get_or_create(&VerbLabels { verb }).observe(duration.as_secs_f64());
    }

    pub(crate) fn open_connection(&self) -> Counted {
        Counted::up(self.connections.clone())
    }

    pub(crate) fn open_watch(&self) -> Counted {
        Counted::up(self.watches.clone())
    }

    pub(crate) fn open_request(&self, mutating: bool) -> Counted {
        let request_kind = if mutating { "mutating" } else { "readOnly" };
        Counted::up(self.in_flight.get_or_create_owned(&KindLabels { request_kind }))
    }

    fn register_own(&self, registry: &mut Registry) {
        registry.register("apiserver_request", "Requests answered, by verb and code", self.requests.clone());
        registry.register(
            "apiserver_request_duration_seconds",
            "Time to the answer, watches excepted",
            self.durations.clone(),
        );
        registry.register(
            "apiserver_current_inflight_requests",
            "Requests being worked on, watches excepted",
            self.in_flight.clone(),
        );
        registry.register("apiserver_longrunning_requests", "Watches being served", self.watches.clone());
        registry.register("underpass_apiserver_connections", "Open connections", self.connections.clone());
        registry.register(
            "underpass_apiserver_refused",
            "Connections and requests turned away, by reason",
            self.refused.clone(),
        );
        registry.register(
            "underpass_apiserver_watchers_dropped",
            "Watches ended because of their watcher, by reason",
            self.watchers_dropped.clone(),
        );
        registry.register_collector(Box::new(Process));
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// One more in a gauge for as long as it lives.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

impl Counted {
    fn up(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabels {
    verb: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    request_kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// Memory, processor time and start of this process, read at each scrape; what the system does not tell is left out.
#[derive(Debug)]
pub struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let cpu = ConstCounter::new(cpu_seconds());
        cpu.encode(encoder.encode_descriptor(
            "process_cpu_seconds",
            "Processor time used",
            None,
            cpu.metric_type(),
        )?)?;
        let gauges = [
            ("process_resident_memory_bytes", "Memory in use", resident_bytes()),
            ("process_start_time_seconds", "Start, in seconds since 1970", start_seconds()),
        ];
        for (name, help, value) in gauges {
            let Some(value) = value else { continue };
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

fn cpu_seconds() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

fn resident_bytes() -> Option<f64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: f64 = pages.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as f64)
}

fn start_seconds() -> Option<f64> {
    let own = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may hold spaces; the start is the 20th field after it.
    let ticks: f64 = own.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let system = std::fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + ticks / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_name_once_it_happened() {
        let metrics = Metrics::new();
        let (_connection, _watch, _request) =
            (metrics.open_connection(), metrics.open_watch(), metrics.open_request(true));
        metrics.answered("GET", 200);
        metrics.took("GET", Duration::from_millis(3));
        metrics.refused(Refused::Header);
        metrics.watcher_dropped("stalled");
        let page = metrics.render();
        for line in [
            "apiserver_request_total{verb=\"GET\",code=\"200\"} 1\n",
            "apiserver_request_duration_seconds_bucket{le=\"0.005\",verb=\"GET\"} 1\n",
            "apiserver_current_inflight_requests{request_kind=\"mutating\"} 1\n",
            "apiserver_longrunning_requests 1\n",
            "underpass_apiserver_connections 1\n",
            "underpass_apiserver_refused_total{reason=\"header_deadline\"} 1\n",
            "underpass_apiserver_watchers_dropped_total{reason=\"stalled\"} 1\n",
            "process_cpu_seconds_total ",
            "process_resident_memory_bytes ",
            "process_start_time_seconds ",
        ] {
            assert!(page.contains(line), "{line:?} is missing in\n{page}");
        }
        assert!(page.ends_with("# EOF\n"));
    }

    #[test]
    fn gauges_fall_when_the_counted_ends() {
        let metrics = Metrics::new();
        drop(metrics.open_request(false));
        assert!(metrics.render().contains("apiserver_current_inflight_requests{request_kind=\"readOnly\"} 0\n"));
    }

    #[test]
    fn other_parts_add_their_own() {
        let metrics = Metrics::new();
        let revision: Gauge = Gauge::default();
        metrics.register(|registry| registry.register("underpass_store_revision", "Newest", revision.clone()));
        revision.set(7);
        assert!(metrics.render().contains("underpass_store_revision 7\n"));
    }

    #[test]
    fn the_process_is_told_truly() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let start = start_seconds().unwrap();
        assert!(start <= now + 1.0 && start > now - 86_400.0, "{start} is not shortly before {now}");
        assert!(resident_bytes().unwrap() > 1e6);
        assert!(cpu_seconds() > 0.0);
    }
}
