//! `tollgate_check_duration_seconds`.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// The upper bounds of the buckets, in microseconds.
const BOUNDS_US: [u32; 13] =
    [20, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 1_000_000];

/// How long checks took: those that asked the store, and those that were answered without it.
#[derive(Debug)]
pub(super) struct Durations {
    store: &'static str,
    asked: Buckets,
    not_asked: Buckets,
}

/// The label of what was answered without the store.
const NO_STORE: &str = "none";

/// Fixed buckets that are raised without a lock.
#[derive(Debug, Default)]
struct Buckets {
    /// One more than there are bounds: the last holds what is above all of them.
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Durations {
    pub(super) fn new(store: &'static str) -> Self {
        Self { store, asked: Buckets::default(), not_asked: Buckets::default() }
    }

    pub(super) fn observe(&self, asked_store: bool, took: Duration) {
        let buckets = if asked_store { &self.asked } else { &self.not_asked };
        buckets.observe(took);
    }
}

impl Buckets {
    fn observe(&self, took: Duration) {
        // A part of a microsecond counts as one, so that a bucket never holds more than its bound.
        let us = u64::try_from(took.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX);
        let index = BOUNDS_US.partition_point(|bound| u64::from(*bound) < us);
        self.counts[index].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let bounds = BOUNDS_US.iter().map(|us| f64::from(*us) / 1e6).chain([f64::INFINITY]);
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<_> = bounds.zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = Duration::from_micros(self.sum_us.load(Ordering::Relaxed)).as_secs_f64();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }
}

impl Collector for Durations {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(
            "check_duration_seconds",
            "Time that checks took in the limiter and its store.",
            None,
            MetricType::Histogram,
        )?;
        self.asked.encode(family.encode_family(&[("store", self.store)])?)?;
        self.not_asked.encode(family.encode_family(&[("store", NO_STORE)])?)
    }
}
