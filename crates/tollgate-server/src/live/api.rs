//! `/v1/rules` on the admin listener.

mod shown;

use std::sync::Arc;

use ::http::header::{CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH};
use ::http::{HeaderMap, HeaderValue, StatusCode};
use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use tollgate_config::{Config, RulesFile, RulesId};

use crate::app::App;
use crate::http::{Problem, receive};
use crate::live::Live;
use crate::live::error::WriteError;
use crate::live::source::Fetched;
use crate::live::version::{Origin, report};
use crate::rules_status::RulesHistory;
use crate::tokens::Bearer;

pub(crate) use self::shown::status;

pub(crate) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/rules", get(show).put(push))
        .route("/v1/rules/history", get(history))
        .route("/v1/rules/rollback", post(roll_back))
}

/// What the caller believes to be in force.
enum Expected {
    /// Rules with this id.
    Id(RulesId),
    /// Any.
    Any,
    /// None yet.
    None,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RollbackTo {
    id: Option<String>,
}

async fn show(State(app): State<Arc<App>>) -> Response {
    shown(&app.live)
}

async fn history(State(app): State<Arc<App>>) -> Response {
    json(&RulesHistory { versions: shown::history(&app.live) }, None)
}

async fn push(
    State(app): State<Arc<App>>,
    bearer: Option<Extension<Bearer>>,
    request: Request,
) -> Result<Response, Problem> {
    let expected = expected(request.headers())?.ok_or_else(|| {
        let detail = "say which rules are to be replaced: `If-Match: \"ID\"` with the id of GET \
                      /v1/rules, `If-Match: *` for any, `If-None-Match: *` for none";
        Problem::new(StatusCode::PRECONDITION_REQUIRED, detail)
    })?;
    let text = receive(request.into_body(), Config::SIZE_MAX).await?;
    app.live.replace(text.to_vec(), &expected, Origin::Push, name(bearer.as_ref())).await?;
    Ok(shown(&app.live))
}

async fn roll_back(
    State(app): State<Arc<App>>,
    bearer: Option<Extension<Bearer>>,
    request: Request,
) -> Result<Response, Problem> {
    let expected = expected(request.headers())?.unwrap_or(Expected::Any);
    let is_json = request.headers().get(CONTENT_TYPE).is_some_and(|kind| {
        kind.to_str().is_ok_and(|kind| kind.trim_start().starts_with("application/json"))
    });
    // A web page cannot send this type to another site without being asked first.
    if !is_json {
        let detail =
            "send `Content-Type: application/json` and a body such as {} or {\"id\":\"ID\"}";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    let body = receive(request.into_body(), 1_024).await?;
    let RollbackTo { id } = match body.is_empty() {
        true => RollbackTo::default(),
        false => serde_json::from_slice(&body).map_err(|error| {
            let detail = format!("the body is not {{\"id\":\"ID\"}}: {error}");
            Problem::new(StatusCode::BAD_REQUEST, detail)
        })?,
    };
    let document = app.live.earlier(id.as_deref())?;
    let by = name(bearer.as_ref());
    app.live.replace(document.as_bytes().to_vec(), &expected, Origin::Rollback, by).await?;
    Ok(shown(&app.live))
}

fn name(bearer: Option<&Extension<Bearer>>) -> Option<&str> {
    bearer.map(|Extension(bearer)| bearer.name.as_str())
}

impl Live {
    /// Returns the text of a version in the history: that of an id, or the one before the current.
    fn earlier(&self, id: Option<&str>) -> Result<Arc<str>, Problem> {
        let state = self.state();
        let found = match id {
            Some(id) => id.parse().ok().and_then(|id| state.history.find(&id)),
            None => state.history.previous(),
        };
        found.map(|version| Arc::clone(&version.document)).ok_or_else(|| {
            let detail = match id {
                Some(_) => "no version has this id: GET /v1/rules/history lists those there are",
                None => "there is no version before the one in force",
            };
            Problem::new(StatusCode::NOT_FOUND, detail)
        })
    }

    /// Writes rules to the source and puts them in force.
    async fn replace(
        &self,
        text: Vec<u8>,
        expected: &Expected,
        origin: Origin,
        by: Option<&str>,
    ) -> Result<(), Problem> {
        if let Some(why) = self.source.read_only() {
            return Err(Problem::new(StatusCode::CONFLICT, why));
        }
        let name = self.source.name();
        let file = RulesFile::from_bytes(text.clone(), &name)
            .map_err(|errors| Problem::new(StatusCode::BAD_REQUEST, report(&errors)))?;
        let _turn = self.turn.lock().await;
        let fetched = self.source.fetch().await;
        let seen = match &fetched {
            Ok(Fetched::Text(text)) => Some(text.clone()),
            _ => None,
        };
        if let Err(error) = &fetched {
            self.fail(error);
            return Err(unavailable(error));
        }
        self.took(fetched).await;
        let in_force = self.state().history.current().map(|version| version.id.clone());
        if !expected.holds(in_force.as_ref(), seen.is_some()) {
            return Err(conflict(in_force.as_ref()));
        }
        // What says the same already is not written again.
        if seen.is_some() && in_force.as_ref() == Some(&file.id) && self.state().refusal.is_none() {
            return Ok(());
        }
        let Ok(written) = String::from_utf8(text) else { return Ok(()) };
        match self.source.write(seen.as_deref(), &written).await {
            Ok(()) => {}
            Err(WriteError::Conflict) => return Err(conflict(in_force.as_ref())),
            Err(WriteError::ReadOnly(why)) => return Err(Problem::new(StatusCode::CONFLICT, why)),
            Err(WriteError::Source(error)) => return Err(unavailable(&error)),
        }
        self.take(written.into_bytes(), origin, by).await;
        Ok(())
    }
}

impl Expected {
    fn holds(&self, in_force: Option<&RulesId>, is_there: bool) -> bool {
        match self {
            Self::Any => true,
            Self::None => !is_there,
            Self::Id(id) => in_force == Some(id),
        }
    }
}

/// Reads `If-Match` and `If-None-Match`.
fn expected(headers: &HeaderMap) -> Result<Option<Expected>, Problem> {
    let wrong = |detail: &str| Problem::new(StatusCode::BAD_REQUEST, detail);
    if let Some(value) = headers.get(IF_NONE_MATCH) {
        return match value.as_bytes() {
            b"*" => Ok(Some(Expected::None)),
            _ => Err(wrong("`If-None-Match` must be `*`")),
        };
    }
    let Some(value) = headers.get(IF_MATCH) else { return Ok(None) };
    let value = value.to_str().unwrap_or_default().trim();
    if value == "*" {
        return Ok(Some(Expected::Any));
    }
    let id = value.strip_prefix("W/").unwrap_or(value).trim_matches('"').parse();
    id.map(|id| Some(Expected::Id(id)))
        .map_err(|error| wrong(&format!("`If-Match` is not `\"ID\"` or `*`: {error}")))
}

fn conflict(in_force: Option<&RulesId>) -> Problem {
    let detail = match in_force {
        Some(id) => format!(
            "the rules have changed since: {id} is in force. Read them again before you write"
        ),
        None => "there are no rules to replace: write with `If-None-Match: *`".to_owned(),
    };
    Problem::new(StatusCode::PRECONDITION_FAILED, detail)
}

/// The admin API is for operators, who may see how the source fails.
fn unavailable(error: &crate::live::SourceError) -> Problem {
    let detail = format!("the source of the rules fails: {error}");
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
}

fn shown(live: &Live) -> Response {
    let rules = status(live);
    let etag = rules.id.as_ref().and_then(|id| HeaderValue::from_str(&format!("\"{id}\"")).ok());
    json(&rules, etag)
}

fn json(answer: &impl Serialize, etag: Option<HeaderValue>) -> Response {
    // Writing strings and numbers to memory cannot fail.
    let mut body = serde_json::to_vec(answer).unwrap_or_default();
    body.push(b'\n');
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(etag) = etag {
        headers.insert(ETAG, etag);
    }
    response
}
