//! The span of one request, and those of the store's calls under it.

use std::borrow::Cow;
use std::future::Future;
use std::time::{Duration, Instant, SystemTime};

use ::http::{HeaderMap, Method, Response, StatusCode};
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{IdGenerator, SpanData, SpanEvents, SpanLinks};
use tollgate::{Clock, StoreCall, StoreCallEnd, StoreCalls, SystemClock, Timestamp};
use tonic::Code;

use super::Tracer;
use super::decided::{NOTED, Noted};
use super::parent::{self, Parent};

const RPC_SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
const RPC_METHOD: &str = "ShouldRateLimit";
const RPC_NAME: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The trace that a span belongs to.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    trace_id: TraceId,
    /// Invalid if the trace begins here.
    parent: SpanId,
    state: TraceState,
}

/// What a request came to.
#[derive(Clone, Debug)]
pub(super) enum Edge {
    Http {
        /// As it is written in the attribute, and in the name of the span.
        method: (&'static str, &'static str),
        route: &'static str,
    },
    RateLimit,
}

/// A request that is being answered. Its span is sent when this is dropped.
#[derive(Debug)]
pub(crate) struct Span {
    tracer: Tracer,
    origin: Origin,
    id: SpanId,
    edge: Edge,
    started: Instant,
    start_time: SystemTime,
    noted: Noted,
    calls: StoreCalls,
    /// Of HTTP, or of gRPC; `None` while there is no answer.
    answer: Option<Answer>,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Http(StatusCode),
    Grpc(Code),
}

impl Origin {
    pub(super) fn root(trace_id: TraceId) -> Self {
        Self { trace_id, parent: SpanId::INVALID, state: TraceState::NONE }
    }

    pub(super) fn child(parent: &Parent, headers: &HeaderMap) -> Self {
        let state = parent::state(headers);
        Self { trace_id: parent.trace_id, parent: parent.span_id, state }
    }
}

impl Edge {
    /// A method that is not a known one is a word of the caller's, which stands in no span.
    pub(super) fn http(method: &Method, route: &'static str) -> Self {
        const KNOWN: [&str; 9] =
            ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
        let known = KNOWN.into_iter().find(|known| *known == method.as_str());
        Self::Http { method: known.map_or(("_OTHER", "HTTP"), |known| (known, known)), route }
    }

    fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Http { method: (_, method), route } => format!("{method} {route}").into(),
            Self::RateLimit => RPC_NAME.into(),
        }
    }

    fn write(&self, attributes: &mut Vec<KeyValue>) {
        match self {
            Self::Http { method: (method, _), route } => {
                attributes.push(KeyValue::new("http.request.method", *method));
                attributes.push(KeyValue::new("http.route", *route));
            }
            Self::RateLimit => {
                attributes.push(KeyValue::new("rpc.system", "grpc"));
                attributes.push(KeyValue::new("rpc.service", RPC_SERVICE));
                attributes.push(KeyValue::new("rpc.method", RPC_METHOD));
            }
        }
    }
}

impl Span {
    pub(super) fn begin(tracer: Tracer, origin: Origin, edge: Edge) -> Self {
        let since_epoch = SystemClock.now().saturating_since(Timestamp::EPOCH);
        Self {
            id: tracer.shared.ids.new_span_id(),
            tracer,
            origin,
            edge,
            started: Instant::now(),
            start_time: SystemTime::UNIX_EPOCH + since_epoch,
            noted: Noted::default(),
            calls: StoreCalls::new(),
            answer: None,
        }
    }

    /// Answers the request, and notes what is decided and what is waited for.
    pub(crate) async fn answer<B>(
        mut self,
        answering: impl Future<Output = Response<B>>,
    ) -> Response<B> {
        let answering = self.calls.observe(answering);
        let response = NOTED.scope(self.noted.clone(), answering).await;
        self.answered(response.status(), response.headers());
        response
    }

    fn answered(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.answer = Some(match self.edge {
            Edge::Http { .. } => Answer::Http(status),
            // A failure is told ahead of the body, of which there is none; else all is well.
            Edge::RateLimit => Answer::Grpc(match headers.get("grpc-status") {
                Some(code) => Code::from_bytes(code.as_bytes()),
                None => Code::Ok,
            }),
        });
    }

    fn end(&self) -> SpanData {
        let mut attributes = Vec::with_capacity(12);
        self.edge.write(&mut attributes);
        let failure: Option<Cow<'static, str>> = match self.answer {
            None => Some("cancelled".into()),
            Some(Answer::Http(status)) => {
                let code = i64::from(status.as_u16());
                attributes.push(KeyValue::new("http.response.status_code", code));
                status.is_server_error().then(|| status.as_str().to_owned().into())
            }
            Some(Answer::Grpc(code)) => {
                attributes.push(KeyValue::new("rpc.grpc.status_code", i64::from(i32::from(code))));
                is_failure(code).then(|| i32::from(code).to_string().into())
            }
        };
        attributes.push(KeyValue::new("tollgate.store", self.tracer.shared.store));
        if let Some(decided) = self.noted.take() {
            decided.write(&mut attributes);
        }
        let status = match failure {
            None => Status::Unset,
            Some(kind) => {
                attributes.push(KeyValue::new("error.type", kind));
                Status::error("")
            }
        };
        let time = (self.start_time, self.started.elapsed());
        let ids = (self.id, self.origin.parent, self.origin.parent != SpanId::INVALID);
        self.data(ids, self.edge.name(), (SpanKind::Server, status), time, attributes)
    }

    fn end_of(&self, call: &StoreCall) -> SpanData {
        let store = self.tracer.shared.store;
        let mut attributes = Vec::with_capacity(4);
        if store == "redis" {
            attributes.push(KeyValue::new("db.system.name", store));
        }
        attributes.push(KeyValue::new("db.operation.name", call.operation));
        let failure = match call.end {
            StoreCallEnd::Answered => None,
            StoreCallEnd::Failed(kind) => Some(kind.as_str()),
            _ => Some("cancelled"),
        };
        let status = match failure {
            None => Status::Unset,
            Some(kind) => {
                attributes.push(KeyValue::new("error.type", kind));
                Status::error("")
            }
        };
        let start = self.start_time + call.started.saturating_duration_since(self.started);
        let ids = (self.tracer.shared.ids.new_span_id(), self.id, false);
        let name = format!("{store} {}", call.operation).into();
        self.data(ids, name, (SpanKind::Client, status), (start, call.took), attributes)
    }

    fn data(
        &self,
        (id, parent, parent_span_is_remote): (SpanId, SpanId, bool),
        name: Cow<'static, str>,
        (span_kind, status): (SpanKind, Status),
        (start_time, took): (SystemTime, Duration),
        attributes: Vec<KeyValue>,
    ) -> SpanData {
        let Origin { trace_id, state, .. } = &self.origin;
        SpanData {
            span_context: SpanContext::new(
                *trace_id,
                id,
                TraceFlags::SAMPLED,
                false,
                state.clone(),
            ),
            parent_span_id: parent,
            parent_span_is_remote,
            span_kind,
            name,
            start_time,
            end_time: start_time + took,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: scope(),
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let queue = &self.tracer.shared.queue;
        queue.push(self.end());
        for call in self.calls.take() {
            queue.push(self.end_of(&call));
        }
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("tollgate").with_version(env!("CARGO_PKG_VERSION")).build()
}

/// Tells which codes are a failure of the one who answers.
const fn is_failure(code: Code) -> bool {
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}

/// A span as any other.
#[cfg(test)]
pub(super) fn test_span() -> SpanData {
    SpanData {
        span_context: SpanContext::NONE,
        parent_span_id: SpanId::INVALID,
        parent_span_is_remote: false,
        span_kind: SpanKind::Server,
        name: "test".into(),
        start_time: SystemTime::UNIX_EPOCH,
        end_time: SystemTime::UNIX_EPOCH,
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: scope(),
    }
}
