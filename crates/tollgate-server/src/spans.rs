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

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use opentelemetry::trace::TraceId;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use tollgate::{CheckError, Verdict};
use tollgate_config::TracingConfig;

use self::export::Queue;
use self::metrics::Spans;
use self::parent::Parent;
use self::sampling::Sampling;
use self::span::{Edge, Origin, Span};
use crate::error::ServeError;

pub(crate) use self::export::Exporting;

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
    /// Answers a request to a path of the http listener.
    pub(crate) async fn http(&self, route: &'static str, request: Request, next: Next) -> Response {
        match self.sampled(&request) {
            None => next.run(request).await,
            Some(origin) => {
                let edge = Edge::http(request.method(), route);
                self.traced(origin, edge, request, next).await
            }
        }
    }

    /// Answers a call of Envoy.
    pub(crate) async fn grpc(&self, request: Request, next: Next) -> Response {
        match self.sampled(&request) {
            None => next.run(request).await,
            Some(origin) => self.traced(origin, Edge::RateLimit, request, next).await,
        }
    }

    /// Returns what the span of a request is under, if the request is to be traced.
    fn sampled(&self, request: &Request) -> Option<Origin> {
        let Shared { sampling, ids, .. } = &*self.shared;
        match Parent::of(request.headers()) {
            Some(parent) => sampling
                .takes_child(parent.is_sampled, parent.trace_id)
                .then(|| Origin::child(&parent, request.headers())),
            None => {
                let trace_id: TraceId = ids.new_trace_id();
                sampling.takes_root(trace_id).then(|| Origin::root(trace_id))
            }
        }
    }

    async fn traced(&self, origin: Origin, edge: Edge, request: Request, next: Next) -> Response {
        let mut span = Span::begin(self.clone(), origin, edge);
        let response = span.observe(next.run(request)).await;
        span.answered(&response);
        response
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
