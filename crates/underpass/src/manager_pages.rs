//! What feeds an Envoy tells of itself over HTTP: to the kubelet's probes, and to Prometheus.

use std::sync::Arc;

use http::StatusCode;
use prometheus_client::encoding::text;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use underpass_apiserver::{METRICS_CONTENT_TYPE, ProcessMetrics};
use underpass_relay::port::Page;
use underpass_xds::Reports;

const INDEX: &str = "underpass proxy, read-only\n  /healthz  does it live\n  /readyz   can an Envoy be fed\n  /metrics  for Prometheus\n";

/// The pages, with what the Envoy of that name says. Whoever asks is answered when there is a configuration, so asking is proof enough.
pub(crate) fn pages(reports: Arc<Reports>, node: String) -> impl Fn(&str) -> Option<Page> + Send + Sync {
    let mut registry = Registry::default();
    let (streams, refused) = (Gauge::<i64>::default(), Gauge::<i64>::default());
    registry.register("underpass_xds_streams", "Streams on which the Envoy listens", streams.clone());
    registry.register("underpass_xds_refused", "Whether it refuses what it was told last", refused.clone());
    registry.register_collector(Box::new(ProcessMetrics));
    move |path| {
        Some(match path {
            "/" => Page::text(StatusCode::OK, INDEX),
            "/healthz" | "/readyz" => Page::text(StatusCode::OK, "ok\n"),
            "/metrics" => {
                let report = reports.of(&node).unwrap_or_default();
                streams.set(i64::try_from(report.streams).unwrap_or(i64::MAX));
                refused.set(report.refusal().is_some().into());
                let mut page = String::new();
                text::encode(&mut page, &registry).expect("writing to a string does not fail");
                Page::ok(METRICS_CONTENT_TYPE, page)
            }
            _ => return None,
        })
    }
}
