//! The listener for services and gateways.

mod acquire;
mod api;
mod exchange;
mod forward_auth;
mod problem;
mod request;
mod reserve;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use ::http::{Method, Request, StatusCode, Uri};
use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, post};
use futures_util::future::Either;
use hyper::body::Incoming;

use crate::accept::{Service, route};
use crate::app::App;
use crate::metrics::Listener;

use self::api::Check;
pub(crate) use self::exchange::receive;
pub(crate) use self::problem::Problem;

/// The paths, each with the name that the metrics give it.
const CHECK: (&str, &str) = ("/v1/check", "check");
const PEEK: (&str, &str) = ("/v1/peek", "peek");
const ACQUIRE: (&str, &str) = ("/v1/acquire", "acquire");
const RENEW: (&str, &str) = ("/v1/renew", "renew");
const RELEASE: (&str, &str) = ("/v1/release", "release");
const RESERVE: (&str, &str) = ("/v1/reserve", "reserve");
const COMMIT: (&str, &str) = ("/v1/commit", "commit");
const CANCEL: (&str, &str) = ("/v1/cancel", "cancel");
const REFUND: (&str, &str) = ("/v1/refund", "refund");
const RESET: (&str, &str) = ("/v1/reset", "reset");
const AUTH: (&str, &str) = ("/v1/auth", "auth");

const ALL: [(&str, &str); 11] =
    [CHECK, PEEK, ACQUIRE, RENEW, RELEASE, RESERVE, COMMIT, CANCEL, REFUND, RESET, AUTH];

pub(crate) fn service(app: &Arc<App>) -> impl Service {
    let (app, router) = (Arc::clone(app), router(app));
    move |request: Request<Incoming>, peer| {
        let app = Arc::clone(&app);
        // What is asked all the time does not go through the router.
        let is_check = request.method() == Method::POST && request.uri().path() == CHECK.0;
        if is_check && app.tracer.is_none() {
            return Either::Left(check(app, request));
        }
        let router = if is_check { None } else { Some(router.clone()) };
        // Boxed, so that a check is not moved about with room for it.
        Either::Right(Box::pin(answer(app, router, request, peer)))
    }
}

/// Tells whether a request of that path may wait for what others give back.
pub(crate) fn awaits_others(path: &str) -> bool {
    path == ACQUIRE.0
}

fn router(app: &Arc<App>) -> Router {
    Router::new()
        .route(CHECK.0, post(api::check))
        .route(PEEK.0, post(api::peek))
        .route(ACQUIRE.0, post(acquire::acquire))
        .route(RENEW.0, post(acquire::renew))
        .route(RELEASE.0, post(acquire::release))
        .route(RESERVE.0, post(reserve::reserve))
        .route(COMMIT.0, post(reserve::commit))
        .route(CANCEL.0, post(reserve::cancel))
        .route(REFUND.0, post(api::refund))
        .route(RESET.0, post(api::reset))
        .route(AUTH.0, any(forward_auth::auth))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(Arc::clone(app))
}

/// Answers a check that is not traced, and counts it.
fn check(app: Arc<App>, request: Request<Incoming>) -> impl Future<Output = Response> {
    let mut check = Check::new(request);
    async move {
        let _in_flight = app.metrics.begin(Listener::Http);
        let response = check.answer(&app).await.into_response();
        app.metrics.count_request(CHECK.1, response.status());
        response
    }
}

/// Answers a request by a router, or by a check if there is none, and counts it.
async fn answer(
    app: Arc<App>,
    router: Option<Router>,
    request: Request<Incoming>,
    peer: SocketAddr,
) -> Response {
    let _in_flight = app.metrics.begin(Listener::Http);
    let path = request.uri().path();
    let known = match &router {
        None => Some(CHECK),
        Some(_) => ALL.into_iter().find(|(known, _)| *known == path),
    };
    let span = match (&app.tracer, known) {
        (Some(tracer), Some((route, _))) => tracer.http(route, request.method(), request.headers()),
        _ => None,
    };
    let answering = async {
        match router {
            None => Check::new(request).answer(&app).await.into_response(),
            Some(router) => route(router, request, peer).await,
        }
    };
    let response = match span {
        None => answering.await,
        Some(span) => Box::pin(span.answer(answering)).await,
    };
    let endpoint = known.map_or("other", |(_, endpoint)| endpoint);
    app.metrics.count_request(endpoint, response.status());
    response
}

async fn unknown_path() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "no such path: there are POST /v1/check, /v1/peek, /v1/acquire, /v1/renew, /v1/release, \
         /v1/reserve, /v1/commit, /v1/cancel, /v1/refund and /v1/reset, and /v1/auth; /healthz, \
         /readyz and /metrics are on the admin address",
    )
}

async fn wrong_method(method: Method, uri: Uri) -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("{} takes POST, not {method}", uri.path()))
}
