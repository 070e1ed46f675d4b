//! What the operator tells of itself over HTTP: to the kubelet's probes, and to Prometheus.

use std::net::SocketAddr;

use anyhow::Context;
use http::StatusCode;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use underpass_apiserver::{METRICS_CONTENT_TYPE, ProcessMetrics};
use underpass_operator::{Health, Metrics};
use underpass_relay::port::{Page, Port};

const INDEX: &str =
    "underpass operator, read-only\n  /healthz  does it live\n  /readyz   is it ready\n  /metrics  for Prometheus\n";

/// The port, taken but not yet answering.
pub(crate) struct OwnPages {
    port: Port,
    health: Health,
    metrics: Metrics,
    registry: Registry,
}

impl OwnPages {
    pub(crate) async fn bind(address: SocketAddr, health: &Health) -> anyhow::Result<Self> {
        let port = Port::bind(address).await.context("choose another with --listen")?;
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        registry.register_collector(Box::new(health.clone()));
        registry.register_collector(Box::new(ProcessMetrics));
        Ok(Self { port, health: health.clone(), metrics, registry })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Where controllers count, so that the pages show it.
    pub(crate) fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Answers until it is dropped.
    pub(crate) async fn serve(self) {
        let Self { port, health, registry, .. } = self;
        port.serve(move |request| page(request.uri().path(), &health, &registry)).await;
    }
}

fn page(path: &str, health: &Health, registry: &Registry) -> Option<Page> {
    Some(match path {
        "/" => Page::text(StatusCode::OK, INDEX),
        "/healthz" => told(health.alive().map(|()| "ok".to_owned()), StatusCode::INTERNAL_SERVER_ERROR),
        "/readyz" => told(health.ready(), StatusCode::SERVICE_UNAVAILABLE),
        "/metrics" => {
            let mut page = String::new();
            text::encode(&mut page, registry).expect("writing to a string does not fail");
            Page::ok(METRICS_CONTENT_TYPE, page)
        }
        _ => return None,
    })
}

fn told(answer: Result<String, String>, otherwise: StatusCode) -> Page {
    match answer {
        Ok(text) => Page::text(StatusCode::OK, text + "\n"),
        Err(text) => Page::text(otherwise, text + "\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_just_begun_lives_and_is_not_ready() {
        let (health, mut registry) = (Health::default(), Registry::default());
        registry.register_collector(Box::new(health.clone()));
        let page = |path| page(path, &health, &registry).unwrap();
        assert_eq!(page("/healthz"), Page::text(StatusCode::OK, "ok\n"));
        assert_eq!(page("/readyz"), Page::text(StatusCode::SERVICE_UNAVAILABLE, "starting\n"));
        assert!(page("/metrics").text.contains("underpass_leader 0\n"));
    }
}
