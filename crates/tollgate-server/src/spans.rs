//! Traces: a span for each request, under that of its caller.
//!
//! What is not sampled is decided by a look at one header, and costs nothing else. Of what is, spans
//! are made when the request has been answered and put into a queue of fixed length, which a task of
//! its own empties. So no request ever waits for a collector.

mod decided;
mod export;
mod metrics;
mod parent;
mod sampling;
mod span;

use std::sync::Arc;

use ::http::{HeaderMap, Method};
use opentelemetry::trace::TraceId;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use tollgate::{CheckError, Verdict};
use tollgate_config::TracingConfig;

use self::export::Queue;
use self::metrics::Spans;
use self::parent::Parent;
use self::sampling::Sampling;
use self::span::{Edge, Origin};
use crate::error::ServeError;

pub(crate) use self::export::Exporting;
pub(crate) use self::span::Span;

/// Samples requests and notes what becomes of them.
#[derive(Clone, Debug)]
pub(crate) struct Tracer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sampling: Sampling,
    ids: RandomIdGenerator,
    queue: Queue,
    /// `memory`, `redis` or `custom`.
    store: &'static str,
}

/// Makes the tracer, and what sends its spans, if traces are configured.
///
/// # Errors
///
/// [`ServeError`] if the collector cannot be spoken to as configured.
pub(crate) fn tracer(
    config: &TracingConfig,
    store: &'static str,
) -> Result<Option<(Tracer, Exporting)>, ServeError> {
    let Some(otlp) = &config.otlp else { return Ok(None) };
    let (queue, exporting) = export::start(otlp)?;
    let sampling = Sampling::new(otlp.sampler.unwrap_or_default());
    let shared = Shared { sampling, ids: RandomIdGenerator::default(), queue, store };
    Ok(Some((Tracer { shared: Arc::new(shared) }, exporting)))
}

impl Tracer {
    /// Begins the span of a request to a path of the http listener, if it is to be traced.
    pub(crate) fn http(
        &self,
        route: &'static str,
        method: &Method,
        headers: &HeaderMap,
    ) -> Option<Span> {
        let origin = self.sampled(headers)?;
        Some(Span::begin(self.clone(), origin, Edge::http(method, route)))
    }

    /// Begins the span of a call of Envoy, if it is to be traced.
    pub(crate) fn grpc(&self, headers: &HeaderMap) -> Option<Span> {
        let origin = self.sampled(headers)?;
        Some(Span::begin(self.clone(), origin, Edge::RateLimit))
    }

    /// Returns what the span of a request is under, if the request is to be traced.
    fn sampled(&self, headers: &HeaderMap) -> Option<Origin> {
        let Shared { sampling, ids, .. } = &*self.shared;
        match Parent::of(headers) {
            Some(parent) => sampling
                .takes_child(parent.is_sampled, parent.trace_id)
                .then(|| Origin::child(&parent, headers)),
            None => {
                let trace_id: TraceId = ids.new_trace_id();
                sampling.takes_root(trace_id).then(|| Origin::root(trace_id))
            }
        }
    }

    /// Returns what the metrics tell of the spans.
    pub(crate) fn metrics(&self) -> impl prometheus_client::collector::Collector + use<> {
        Spans(Arc::clone(&self.shared))
    }

    /// Notes on the request that is being answered what its rules said.
    pub(crate) fn note(&self, verdict: Result<&Verdict, &CheckError>) {
        decided::note(verdict);
    }

    /// As [`note`](Self::note), unless something was noted before.
    pub(crate) fn note_first(&self, verdict: Result<&Verdict, &CheckError>) {
        decided::note_first(verdict);
    }

    /// Notes on the request that is being answered whether it was denied in the end, where that is
    /// more than what one verdict says.
    pub(crate) fn note_denied(&self, is_denied: bool) {
        decided::note_denied(is_denied);
    }
}
