//! `tollgate_spans_*`, what becomes of spans.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

use super::Shared;

/// What becomes of spans, read when it is asked for.
#[derive(Debug)]
pub(super) struct Spans(pub(super) Arc<Shared>);

impl Collector for Spans {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = &self.0.queue.counts;
        let exported = ConstCounter::new(counts.exported.load(Ordering::Relaxed));
        let help = "Spans that the collector took.";
        let counter = MetricType::Counter;
        exported.encode(encoder.encode_descriptor("spans_exported", help, None, counter)?)?;

        let help = "Spans that were dropped.";
        let mut family = encoder.encode_descriptor("spans_dropped", help, None, counter)?;
        for (reason, count) in
            [("queue_full", &counts.overflowed), ("export_failed", &counts.failed)]
        {
            ConstCounter::new(count.load(Ordering::Relaxed))
                .encode(family.encode_family(&[("reason", reason)])?)?;
        }
        Ok(())
    }
}
