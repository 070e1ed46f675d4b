//! What the store tells at each scrape of `/metrics`.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use underpass_store::{At, Store};

pub(crate) struct StoreMetrics(pub(crate) Store);

impl std::fmt::Debug for StoreMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreMetrics")
    }
}

impl Collector for StoreMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let commits = ConstCounter::new(self.0.commits());
        let name = "underpass_store_commits";
        commits.encode(encoder.encode_descriptor(
            name,
            "Batches of writes made durable, one fsync each",
            None,
            commits.metric_type(),
        )?)?;
        let gauges = [
            ("underpass_store_revision", "The newest revision", self.0.revision()),
            ("underpass_store_compacted_revision", "History up to this revision is let go", self.0.compacted()),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        self.encode_objects(&mut encoder)
    }
}

impl StoreMetrics {
    /// As kube-apiserver names them, so that dashboards find them.
    fn encode_objects(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let kind = ConstGauge::new(0_i64).metric_type();
        let mut family =
            encoder.encode_descriptor("apiserver_resource_objects", "Stored objects by resource", None, kind)?;
        for bucket in self.0.buckets() {
            let count = self.0.list(&bucket, "", None, At::Now).map_or(0, |listing| listing.entries.len());
            let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&[("resource", bucket.as_ref())])?)?;
        }
        Ok(())
    }
}
