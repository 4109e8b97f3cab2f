//! `/v1/acquire`, `/v1/renew` and `/v1/release`.

use std::sync::Arc;
use std::time::Duration;

use ::http::StatusCode;
use axum::extract::{Request, State};
use axum::response::Response;
use serde::Serialize;
use tollgate::Permit;

use crate::answer::{Answer, millis};
use crate::app::App;
use crate::http::exchange::{json, json_headers, read, verdict_headers};
use crate::http::problem::Problem;
use crate::http::request::{AcquireRequest, ApiRequest, LeaseRequest};

/// How soon a caller that waited for a service that stops may come back: there may be another.
const RETRY_AFTER_STOP: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Granted<'a> {
    #[serde(flatten)]
    answer: Answer<'a>,
    /// Null if no rule counts requests in flight.
    lease_id: Option<String>,
    lease_ms: Option<u64>,
}

#[derive(Serialize)]
struct Renewed {
    renewed: bool,
}

#[derive(Serialize)]
struct Released {
    released: bool,
}

/// If the caller goes away meanwhile, this is dropped and what was taken is given back.
pub(crate) async fn acquire(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let AcquireRequest { request, max_wait } = read(&app, request).await?;
    let ApiRequest { attributes, cost } = request;
    let acquisition = tokio::select! {
        acquired = app.acquire(&attributes, cost.unwrap_or_default(), max_wait) => acquired?,
        () = app.stopping() => return Err(stopping()),
    };
    if !acquisition.is_granted() {
        let (verdict, wait) = (acquisition.verdict(), acquisition.retry_after());
        let mut headers = json_headers();
        app.edge.mark_denial(&mut headers);
        app.edge.headers.write_refused(verdict, wait, &mut headers);
        let answer = Answer::refused(verdict, wait);
        return Ok(json(StatusCode::TOO_MANY_REQUESTS, headers, &answer));
    }
    let (verdict, permit) = acquisition.into_parts();
    let lease = permit.map(|permit| (permit.lease(), Permit::into_hold(permit)));
    let (lease_ms, lease_id) = lease.map(|(lease, hold)| (millis(lease), hold.to_string())).unzip();
    let granted = Granted { answer: Answer::waited_out(&verdict), lease_id, lease_ms };
    Ok(json(StatusCode::OK, verdict_headers(&app.edge, &verdict), &granted))
}

pub(crate) async fn renew(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let LeaseRequest { lease } = read(&app, request).await?;
    let renewed = app.limiter.renew(&lease).await.map_err(|error| app.failed(error));
    renewed.map_err(|error| Problem::of_hold(error, "lease_id"))?;
    Ok(json(StatusCode::OK, json_headers(), &Renewed { renewed: true }))
}

pub(crate) async fn release(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let LeaseRequest { lease } = read(&app, request).await?;
    app.limiter.release(&lease).await.map_err(|error| app.failed(error))?;
    Ok(json(StatusCode::OK, json_headers(), &Released { released: true }))
}

fn stopping() -> Problem {
    let detail = "the service stops, so this wait has ended: nothing was spent, ask again";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_retry_after(RETRY_AFTER_STOP)
}
