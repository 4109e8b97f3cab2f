//! `/v1/reserve`, `/v1/commit` and `/v1/cancel`.

use std::sync::Arc;

use ::http::StatusCode;
use axum::extract::{Request, State};
use axum::response::Response;
use serde::Serialize;
use tollgate::{CheckError, Hold, Verdict};

use crate::answer::Answer;
use crate::app::App;
use crate::http::exchange::{decided, json, read, told, verdict_headers};
use crate::http::problem::Problem;
use crate::http::request::{ApiRequest, CancelRequest, CommitRequest, ReserveRequest};

#[derive(Serialize)]
struct Reserved<'a> {
    #[serde(flatten)]
    answer: Answer<'a>,
    /// Null if there is nothing to settle.
    reservation_id: Option<String>,
}

pub(crate) async fn reserve(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let ReserveRequest { request, ttl } = read(&app, request).await?;
    let ApiRequest { attributes, cost } = request;
    let reservation = app.reserve(&attributes, cost.unwrap_or_default(), ttl).await?;
    let verdict = reservation.verdict().clone();
    if !verdict.is_allowed() {
        return Ok(decided(&app.edge, &verdict));
    }
    let reservation_id = reservation.into_hold().as_ref().map(Hold::to_string);
    let reserved = Reserved { answer: Answer::new(&verdict), reservation_id };
    Ok(json(StatusCode::OK, verdict_headers(&app.edge, &verdict), &reserved))
}

pub(crate) async fn commit(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let CommitRequest { reservation, cost, attributes } = read(&app, request).await?;
    settled(&app, app.limiter.commit_with(&reservation, &attributes, cost).await)
}

pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let CancelRequest { reservation } = read(&app, request).await?;
    settled(&app, app.limiter.cancel(&reservation).await)
}

fn settled(app: &App, settled: Result<Verdict, CheckError>) -> Result<Response, Problem> {
    let verdict = app.answered(settled);
    let verdict = verdict.map_err(|error| Problem::of_hold(error, "reservation_id"))?;
    Ok(told(&app.edge, &verdict))
}
