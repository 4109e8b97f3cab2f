//! The listener for operators.

mod access;
mod status;

use std::sync::Arc;

use ::http::header::{ACCEPT, CONTENT_TYPE};
use ::http::{HeaderMap, HeaderValue, StatusCode};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::middleware;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;
use tollgate::StoreErrorKind;

use crate::app::App;
use crate::http::Problem;
use crate::live;
use crate::metrics::Format;

pub(crate) fn router(app: &Arc<App>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/v1/status", get(status))
        .merge(live::router())
        .fallback(unknown_path)
        .layer(middleware::from_fn_with_state(Arc::clone(app), access::check))
        .with_state(Arc::clone(app))
}

#[derive(Serialize)]
struct Readiness {
    ready: bool,
    store: &'static str,
    store_answers: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    rules: usize,
}

/// A store that does not answer leaves the service ready, since the rules' failure policies
/// answer in its place: were it taken out of service, nobody would.
async fn readyz(State(app): State<Arc<App>>) -> Response {
    let failure = store_failure(&app).await;
    let awaits_rules = app.live.awaits_rules();
    let ready = !app.is_stopping() && !awaits_rules;
    let readiness = Readiness {
        ready,
        store: app.limiter.store().kind(),
        store_answers: failure.is_none(),
        reason: match (ready, awaits_rules) {
            (true, _) => failure.map(StoreErrorKind::as_str),
            (false, true) => Some("no_rules"),
            (false, false) => Some("stopping"),
        },
        rules: app.limiter.rules().len(),
    };
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    // Writing words and a number to memory cannot fail.
    let mut body = serde_json::to_vec(&readiness).unwrap_or_default();
    body.push(b'\n');
    reply(status, "application/json", body)
}

async fn status(State(app): State<Arc<App>>) -> Response {
    reply(StatusCode::OK, "application/json", status::write(&app.limiter, live::status(&app.live)))
}

/// How the store fails, if it does. It may answer a ping and still refuse what checks write. One
/// that is not asked is not asked here either.
async fn store_failure(app: &App) -> Option<StoreErrorKind> {
    if app.limiter.status().open_for.is_some() {
        return app.limiter.store_failure();
    }
    match app.backend.ping().await {
        Err(error) => Some(error.kind()),
        Ok(()) => app.limiter.store_failure().filter(|kind| *kind == StoreErrorKind::Refused),
    }
}

async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, Problem> {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accept.unwrap_or_default());
    app.metrics.follow(&app.limiter.rules(), &app.live.limits.live().rules());
    // A server that does not answer checks is not asked for its statistics.
    if app.limiter.store_failure().is_none() {
        app.metrics.refresh().await;
    }
    let page = app.metrics.write(format).map_err(|_| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written")
    })?;
    Ok(reply(StatusCode::OK, format.content_type(), page))
}

async fn unknown_path() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "no such path: there are /healthz, /readyz, /metrics, /v1/status, /v1/rules, \
         /v1/rules/history and /v1/rules/rollback; the check API is on the http address",
    )
}

fn reply(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
