//! From a queue of fixed length to the collector.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry_otlp::tonic_types::metadata::MetadataMap;
use opentelemetry_otlp::tonic_types::transport::ClientTlsConfig;
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tollgate_config::OtlpConfig;

use crate::error::ServeError;

/// How many spans may wait. What finds no place is dropped, and counted.
const QUEUE_LEN: usize = 2_048;

/// The most spans of one export.
const BATCH_LEN: usize = 512;

/// How long the first span of an export waits for others.
const GATHERING: Duration = Duration::from_secs(1);

/// How long an export may take unless it is said otherwise.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// How often it is logged at most that spans are lost.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Where spans wait.
#[derive(Debug)]
pub(super) struct Queue {
    spans: mpsc::Sender<SpanData>,
    pub(super) counts: Arc<Counts>,
}

/// What has become of spans.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) exported: AtomicU64,
    /// Those that found no place in the queue.
    pub(super) overflowed: AtomicU64,
    /// Those that the collector did not take.
    pub(super) failed: AtomicU64,
}

impl Counts {
    fn lost(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed) + self.failed.load(Ordering::Relaxed)
    }
}

impl Queue {
    /// Puts a span in the queue, if there is a place.
    pub(super) fn push(&self, span: SpanData) {
        if self.spans.try_send(span).is_err() {
            self.counts.overflowed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sends what waits.
#[derive(Debug)]
pub(crate) struct Exporting {
    spans: mpsc::Receiver<SpanData>,
    batch: Vec<SpanData>,
    exporter: SpanExporter,
    endpoint: String,
    timeout: Duration,
    counts: Arc<Counts>,
    warned: Option<Instant>,
    /// How many were lost when it was last logged.
    lost: u64,
}

/// Makes the queue and what sends it. The collector need not be there yet.
pub(super) fn start(config: &OtlpConfig) -> Result<(Queue, Exporting), ServeError> {
    let endpoint = config.address().to_owned();
    let mut headers = http::HeaderMap::new();
    for (name, value) in &config.headers {
        // What is no header has been refused with the configuration.
        if let (Ok(name), Ok(value)) =
            (http::HeaderName::try_from(name), http::HeaderValue::try_from(value))
        {
            headers.insert(name, value);
        }
    }
    let timeout = config.timeout.unwrap_or(TIMEOUT_DEFAULT);
    let mut builder = SpanExporter::builder()
        .with_tonic()
        .with_timeout(timeout)
        .with_endpoint(&endpoint)
        .with_metadata(MetadataMap::from_headers(headers));
    if config.endpoint.as_ref().is_some_and(tollgate_config::HttpUrl::is_https) {
        builder = builder.with_tls_config(ClientTlsConfig::new().with_native_roots());
    }
    let mut exporter = builder.build().map_err(|error| ServeError::traces(error.to_string()))?;
    let name = config.service_name.clone();
    let name = name.unwrap_or_else(|| OtlpConfig::SERVICE_NAME_DEFAULT.to_owned());
    exporter.set_resource(&Resource::builder().with_service_name(name).build());

    let (sender, spans) = mpsc::channel(QUEUE_LEN);
    let counts = Arc::new(Counts::default());
    let queue = Queue { spans: sender, counts: Arc::clone(&counts) };
    let exporting = Exporting {
        spans,
        batch: Vec::new(),
        exporter,
        endpoint,
        timeout,
        counts,
        warned: None,
        lost: 0,
    };
    Ok((queue, exporting))
}

impl Exporting {
    /// Sends spans until `stopped` is done, and then what still waits.
    pub(crate) async fn run(mut self, stopped: impl Future<Output = ()>) {
        let mut stopped = pin!(stopped);
        let mut is_closed = false;
        loop {
            let is_open = tokio::select! {
                is_open = self.gather() => is_open,
                () = &mut stopped, if !is_closed => {
                    self.spans.close();
                    is_closed = true;
                    continue;
                }
            };
            if !self.batch.is_empty() {
                self.export().await;
            }
            if !is_open {
                return;
            }
        }
    }

    /// Takes spans into the batch, and tells whether there may be more.
    ///
    /// # Cancel safety
    ///
    /// What was taken stays in the batch.
    async fn gather(&mut self) -> bool {
        if self.batch.is_empty() && self.spans.recv_many(&mut self.batch, BATCH_LEN).await == 0 {
            return false;
        }
        let due = Instant::now() + GATHERING;
        while self.batch.len() < BATCH_LEN {
            let room = BATCH_LEN - self.batch.len();
            match timeout_at(due, self.spans.recv_many(&mut self.batch, room)).await {
                Ok(0) => return false,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        true
    }

    async fn export(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let count = batch.len() as u64;
        let problem = match timeout(self.timeout, self.exporter.export(batch)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(reason(&error.to_string()).to_owned()),
            Err(_) => Some(format!("no answer within {:?}", self.timeout)),
        };
        let counter = match problem {
            None => &self.counts.exported,
            Some(_) => &self.counts.failed,
        };
        counter.fetch_add(count, Ordering::Relaxed);
        self.warn(problem.as_deref());
    }

    /// Logs now and then that spans are lost.
    fn warn(&mut self, problem: Option<&str>) {
        let lost = self.counts.lost();
        let is_due = self.warned.is_none_or(|warned| warned.elapsed() >= WARNING_INTERVAL);
        if lost == self.lost || !is_due {
            return;
        }
        let spans = lost - self.lost;
        (self.lost, self.warned) = (lost, Some(Instant::now()));
        let endpoint = &self.endpoint;
        match problem {
            Some(error) => tracing::warn!(
                spans, %endpoint, error,
                "the collector does not take traces, spans are dropped and requests go on"
            ),
            None => tracing::warn!(
                spans, %endpoint,
                "more spans than the collector takes in time, some are dropped and requests go on"
            ),
        }
    }
}

/// What an export failed with, without the words about whose it was.
fn reason(error: &str) -> &str {
    error.split_once("export failed with ").map_or(error, |(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use tollgate_config::Config;

    use super::*;
    use crate::spans::span::test_span;

    #[tokio::test]
    async fn g9_no_more_spans_wait_than_there_are_places() {
        let (queue, exporting) = start(&OtlpConfig::default()).unwrap();
        for _ in 0..QUEUE_LEN + 100 {
            queue.push(test_span());
        }
        assert_eq!(queue.counts.overflowed.load(Ordering::Relaxed), 100);
        assert_eq!(exporting.spans.len(), QUEUE_LEN);
    }

    #[tokio::test]
    async fn a_collector_is_spoken_to_by_tls_if_its_url_says_so() {
        let text = "
            tracing: { otlp: { endpoint: \"https://collector.example:4317\" } }
            rules: [{ name: a, limit: 1/s }]
        ";
        let config = Config::parse(text, "test.yaml").unwrap();
        let (_, exporting) = start(&config.tracing.otlp.unwrap()).unwrap();
        assert_eq!(exporting.endpoint, "https://collector.example:4317");
        assert_eq!(exporting.timeout, Duration::from_secs(10));
    }
}
