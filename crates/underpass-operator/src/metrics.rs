//! What the loops count.

use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Cheap to clone; all clones count into the same series.
#[derive(Debug, Clone)]
pub struct Metrics {
    reconciles: Family<ReconcileLabels, Counter>,
    duration: Family<KindLabels, Histogram>,
    writes: Family<WriteLabels, Counter>,
    objects: Family<KindLabels, Gauge>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    kind: &'static str,
    result: PassResult,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    target: WriteTarget,
    result: WriteResult,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum PassResult {
    Settled,
    Acted,
    Gone,
    Conflict,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum WriteTarget {
    Finalizer,
    Status,
    Event,
    Engine,
    Object,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum WriteResult {
    Ok,
    Failed,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            reconciles: Family::default(),
            // 1 ms to 32 s: a pass is a few API calls, or an engine that takes its time.
            duration: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 16))),
            writes: Family::default(),
            objects: Family::default(),
        };
        registry.register("underpass_reconciles", "Passes of the reconcile loop", metrics.reconciles.clone());
        registry.register("underpass_reconcile_duration_seconds", "Duration of a pass", metrics.duration.clone());
        registry.register("underpass_writes", "Writes that plans asked for", metrics.writes.clone());
        registry.register("underpass_objects", "Objects that are watched, by kind", metrics.objects.clone());
        metrics
    }

    pub(crate) fn passed(&self, kind: &'static str, result: PassResult, took: Duration) {
        self.reconciles.get_or_create(&ReconcileLabels { kind, result }).inc();
        self.duration.get_or_create(&KindLabels { kind }).observe(took.as_secs_f64());
    }

    pub(crate) fn sees(&self, kind: &'static str, objects: usize) {
        self.objects.get_or_create(&KindLabels { kind }).set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    pub(crate) fn wrote<T, E>(&self, target: WriteTarget, outcome: &Result<T, E>) {
        let result = if outcome.is_ok() { WriteResult::Ok } else { WriteResult::Failed };
        self.writes.get_or_create(&WriteLabels { target, result }).inc();
    }
}

impl Default for Metrics {
    /// Counts into a registry that nobody reads.
    fn default() -> Self {
        Self::register(&mut Registry::default())
    }
}
