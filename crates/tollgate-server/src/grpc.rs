//! The listener for Envoy.

use std::sync::Arc;
use std::time::Duration;

use ::http::StatusCode;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use tokio::time::timeout;
use tollgate::{CheckError, Part, Verdict};
use tollgate_config::EnvoyConfig;
use tollgate_envoy::{Health, Observer, RateLimiter, routes};
use tonic::{Code, Status};

use crate::app::App;
use crate::denials::Kind;
use crate::metrics::Listener;

/// How long a request may take to arrive and to be answered. The store has its own, shorter
/// deadline, so this one ends those who do not send what they began.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The path of the calls that are decisions.
const RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The name that the metrics give to Envoy's requests.
const ENDPOINT: &str = "envoy";

pub(crate) fn service(app: &Arc<App>, config: EnvoyConfig) -> RateLimiter {
    let (limits, watch) = (app.live.limits.live().clone(), Watch(Arc::clone(app)));
    RateLimiter::with_observer(app.limiter.clone(), limits, config, app.edge.envoy.clone(), watch)
}

pub(crate) async fn router(
    app: &Arc<App>,
    service: RateLimiter,
    request_len_max: usize,
) -> (Router, Health) {
    let (routes, health) = routes(service, request_len_max).await;
    let router = routes
        .prepare()
        .into_axum_router()
        .layer(middleware::from_fn(in_time))
        .layer(middleware::from_fn_with_state(Arc::clone(app), count_in_flight));
    (router, health)
}

async fn count_in_flight(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let _in_flight = app.metrics.begin(Listener::Grpc);
    match &app.tracer {
        Some(tracer) if request.uri().path() == RATE_LIMIT => tracer.grpc(request, next).await,
        _ => next.run(request).await,
    }
}

async fn in_time(request: Request, next: Next) -> Response {
    match timeout(REQUEST_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = format!("the request took longer than {} s", REQUEST_TIMEOUT.as_secs());
            Status::deadline_exceeded(detail).into_http()
        }
    }
}

/// Counts what Envoy is answered.
struct Watch(Arc<App>);

impl Observer for Watch {
    fn decided(&self, decided: Result<&Verdict, &CheckError>, took: Duration) {
        self.0.metrics.observe(decided, took);
        self.0.count_decisions(decided);
    }

    fn denied(&self, parts: &[Part], verdict: &Verdict) {
        for (part, decided) in parts.iter().zip(verdict.rules()) {
            if let Some(kind) = Kind::of(decided) {
                self.0.denials.note(kind, part.rule(), part.key());
            }
        }
    }

    fn refused(&self, part: &Part) {
        self.0.denials.note(Kind::Unavailable, part.rule(), part.key());
    }

    fn told(&self, told: Result<&Verdict, &CheckError>) {
        self.0.metrics.count_store_error(told);
        if let Some(tracer) = &self.0.tracer {
            tracer.note_first(told);
        }
    }

    fn judged(&self, is_denied: bool) {
        if let Some(tracer) = &self.0.tracer {
            tracer.note_denied(is_denied);
        }
    }

    fn unknown_domain(&self, domain: &str) {
        self.0.unknown_domain(domain);
    }

    fn mistaken(&self, message: &str) {
        self.0.hints.bad_envoy_request(message);
    }

    fn answered(&self, code: Code) {
        let status = match code {
            Code::Ok => StatusCode::OK,
            Code::InvalidArgument => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        self.0.metrics.count_request(ENDPOINT, status);
    }
}
