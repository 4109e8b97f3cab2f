//! `/v1/check`, `/v1/peek`, `/v1/refund` and `/v1/reset`.

use std::sync::Arc;

use ::http::Version;
use axum::BoxError;
use axum::body::{Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::response::Response;
use tollgate::Cost;

use crate::app::App;
use crate::http::exchange::{accepts_problem, decided, problem, read, read_body, told};
use crate::http::problem::Problem;
use crate::http::request::{ApiRequest, RefundRequest};

/// Checks a request that the router has taken.
pub(crate) async fn check(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    Check::new(request).answer(&app).await
}

/// A check that has not been read. Its head is not held.
pub(crate) struct Check<B> {
    version: Version,
    accepts_problem: bool,
    body: B,
}

impl<B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin> Check<B> {
    pub(crate) fn new(request: ::http::Request<B>) -> Self {
        let accepts_problem = accepts_problem(request.headers());
        Self { version: request.version(), accepts_problem, body: request.into_body() }
    }

    pub(crate) async fn answer(&mut self, app: &App) -> Result<Response, Problem> {
        let asked = read_body(app, self.version, &mut self.body).await?;
        let ApiRequest { attributes, cost } = asked;
        let verdict = app.check(&attributes, cost.unwrap_or_default()).await?;
        if self.accepts_problem && !verdict.is_allowed() {
            return Ok(problem(&app.edge, verdict));
        }
        Ok(decided(&app.edge, &verdict))
    }
}

pub(crate) async fn peek(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let ApiRequest { attributes, cost } = read(&app, request).await?;
    let peeked = app.limiter.peek_n(&attributes, cost.unwrap_or(Cost::ZERO)).await;
    Ok(told(&app.edge, &app.answered(peeked)?))
}

pub(crate) async fn refund(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let RefundRequest { request, id } = read(&app, request).await?;
    let ApiRequest { attributes, cost } = request;
    let cost = cost.unwrap_or_default();
    let refunded = match id {
        Some(id) => app.limiter.refund_once(&attributes, cost, &id).await,
        None => app.limiter.refund(&attributes, cost).await,
    };
    Ok(told(&app.edge, &app.answered(refunded)?))
}

pub(crate) async fn reset(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let ApiRequest { attributes, .. } = read(&app, request).await?;
    let reset = app.limiter.reset(&attributes).await;
    Ok(told(&app.edge, &app.answered(reset)?))
}
