//! `tollgate_redis_script_*`, how long the servers execute scripts by their own count.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::time::{Instant, timeout};
use tollgate::{RedisStore, ScriptTime};

/// How often the servers are asked at most.
const INTERVAL: Duration = Duration::from_secs(5);

/// How long a page of metrics waits for them. What comes later is on the next one.
const PATIENCE: Duration = Duration::from_millis(250);

/// What the servers last told, of a store that has any.
#[derive(Clone, Debug)]
pub(super) struct ScriptTimes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Arc<RedisStore>,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    times: Vec<ScriptTime>,
    /// When they were last asked.
    asked: Option<Instant>,
}

impl ScriptTimes {
    pub(super) fn new(store: Arc<RedisStore>) -> Self {
        Self(Arc::new(Shared { store, told: Mutex::default() }))
    }

    /// Asks the servers, unless that was done just now.
    ///
    /// # Cancel safety
    ///
    /// They are asked in a task of its own, which goes on.
    pub(super) async fn refresh(&self) {
        if !self.0.begin() {
            return;
        }
        let shared = Arc::clone(&self.0);
        let asking = tokio::spawn(async move {
            let times = shared.store.script_times().await;
            shared.told().times = times;
        });
        // It goes on without those who wait no longer.
        let _ = timeout(PATIENCE, asking).await;
    }
}

impl Shared {
    /// Tells whether the servers are to be asked, and takes it that they are.
    fn begin(&self) -> bool {
        let mut told = self.told();
        let is_due = told.asked.is_none_or(|asked| asked.elapsed() >= INTERVAL);
        if is_due {
            told.asked = Some(Instant::now());
        }
        is_due
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        // No code that holds the lock can leave it half changed.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for ScriptTimes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let times = self.0.told().times.clone();
        if times.is_empty() {
            return Ok(());
        }
        let counter = MetricType::Counter;
        let help = "Scripts that the server executed, whoever sent them.";
        let mut calls = encoder.encode_descriptor("redis_script_calls", help, None, counter)?;
        for time in &times {
            let labels = [("node", time.server.as_str()), ("command", time.command)];
            ConstCounter::new(time.calls).encode(calls.encode_family(&labels)?)?;
        }
        let help = "Seconds that the server executed scripts, whoever sent them.";
        let mut took = encoder.encode_descriptor("redis_script_seconds", help, None, counter)?;
        for time in &times {
            let labels = [("node", time.server.as_str()), ("command", time.command)];
            ConstCounter::new(time.took.as_secs_f64()).encode(took.encode_family(&labels)?)?;
        }
        if times.iter().all(|time| time.percentiles.is_none()) {
            return Ok(());
        }
        let help = "Seconds that one script took on the server, since its statistics began.";
        let name = "redis_script_latency_seconds";
        let mut latency = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for time in &times {
            let Some((median, p99)) = time.percentiles else { continue };
            for (quantile, value) in [("0.5", median), ("0.99", p99)] {
                let labels = [
                    ("node", time.server.as_str()),
                    ("command", time.command),
                    ("quantile", quantile),
                ];
                ConstGauge::new(value.as_secs_f64()).encode(latency.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn servers_are_asked_every_five_seconds_at_most() {
        let store = RedisStore::builder("redis://127.0.0.1:1").connect_lazily().unwrap();
        let times = ScriptTimes::new(Arc::new(store));
        assert!(times.0.begin());
        assert!(!times.0.begin());
        tokio::time::advance(INTERVAL - Duration::from_millis(1)).await;
        assert!(!times.0.begin());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(times.0.begin());
    }
}
