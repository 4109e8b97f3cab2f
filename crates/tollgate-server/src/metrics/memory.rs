//! `tollgate_memory_*`, the size of a memory store.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tollgate::MemoryStore;

/// The size of a memory store, read when it is asked for.
#[derive(Debug)]
pub(super) struct MemoryUse {
    store: Arc<MemoryStore>,
}

impl MemoryUse {
    pub(super) const fn new(store: Arc<MemoryStore>) -> Self {
        Self { store }
    }
}

impl Collector for MemoryUse {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let store = &self.store;
        let gauges = [
            ("memory_keys", "Buckets that are stored.", store.len()),
            (
                "memory_keys_max",
                "The most buckets that may be stored, and the most records.",
                store.keys_max(),
            ),
            (
                "memory_records",
                "Records of reservations and refunds that are stored.",
                store.records(),
            ),
            ("memory_bytes", "Memory of the stored buckets and records.", store.bytes()),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let evicted = ConstCounter::new(store.evicted());
        let help = "Full buckets and ended records that were evicted.";
        let metric_type = evicted.metric_type();
        evicted.encode(encoder.encode_descriptor("memory_evicted", help, None, metric_type)?)
    }
}
