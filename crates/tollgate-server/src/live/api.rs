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
use tollgate_config::{Config, RulesFile, RulesId, RulesIdError};

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
    /// Rules with one of these ids.
    Ids(Vec<RulesId>),
    /// Any.
    Any,
    /// None yet.
    None,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RollbackTo {
    id: Option<String>,
}

async fn show(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let mut response = shown(&app.live);
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let tag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok());
    let is_known = known.zip(tag).is_some_and(|(known, tag)| {
        known.split(',').any(|one| one.trim().trim_start_matches("W/") == tag)
    });
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = Body::empty();
    }
    response
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
    let text = receive(request, Config::SIZE_MAX, &app.arriving_at_admin).await?;
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
    let body = receive(request, 1_024, &app.arriving_at_admin).await?;
    // A body that was lost on the way must not change anything.
    let RollbackTo { id } = serde_json::from_slice(&body).map_err(|error| {
        let detail = format!("the body is neither {{}} nor {{\"id\":\"ID\"}}: {error}");
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
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
        RulesFile::from_bytes(text.clone(), &name)
            .map_err(|errors| Problem::new(StatusCode::BAD_REQUEST, report(&errors)))?;
        let _turn = self.turn.lock().await;
        for _ in 0..WRITES_MAX {
            match self.write(&text, expected).await? {
                Written::Yes => {
                    self.take(text, origin, by).await;
                    return Ok(());
                }
                Written::Conflict if matches!(expected, Expected::Any) => {}
                Written::Conflict => break,
            }
        }
        Err(conflict(self.in_force().as_ref()))
    }

    /// Writes rules once, over what the source has now.
    async fn write(&self, text: &[u8], expected: &Expected) -> Result<Written, Problem> {
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
        if !expected.holds(self.in_force().as_ref(), seen.is_some()) {
            return Ok(Written::Conflict);
        }
        if seen.as_deref() == Some(text) {
            return Ok(Written::Yes);
        }
        if seen.as_deref().is_some_and(|seen| is_configuration(seen, &self.source.name())) {
            let detail = "the source holds a whole configuration, of which rules would leave \
                          nothing: have the rules in a file or a key of their own";
            return Err(Problem::new(StatusCode::CONFLICT, detail));
        }
        let written = std::str::from_utf8(text).unwrap_or_default();
        match self.source.write(seen.as_deref(), written).await {
            Ok(()) => Ok(Written::Yes),
            Err(WriteError::Conflict) => Ok(Written::Conflict),
            Err(WriteError::ReadOnly(why)) => Err(Problem::new(StatusCode::CONFLICT, why)),
            Err(WriteError::Source(error)) => Err(unavailable(&error)),
        }
    }

    fn in_force(&self) -> Option<RulesId> {
        self.state().history.current().map(|version| version.id.clone())
    }
}

/// What became of an attempt to write.
enum Written {
    /// The source has the text.
    Yes,
    /// It had something else than was expected.
    Conflict,
}

/// How often rules are written that are to replace whatever is there, if others write as well.
const WRITES_MAX: usize = 10;

/// Tells whether a text that is no rules by themselves is a configuration.
fn is_configuration(text: &[u8], name: &str) -> bool {
    let is_rules = RulesFile::from_bytes(text.to_vec(), name).is_ok();
    !is_rules && std::str::from_utf8(text).is_ok_and(|text| Config::parse(text, name).is_ok())
}

impl Expected {
    fn holds(&self, in_force: Option<&RulesId>, is_there: bool) -> bool {
        match self {
            Self::Any => true,
            Self::None => !is_there,
            Self::Ids(ids) => in_force.is_some_and(|in_force| ids.contains(in_force)),
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
    ids(value)
        .map(|ids| Some(Expected::Ids(ids)))
        .map_err(|error| wrong(&format!("`If-Match` is not `\"ID\"` or `*`: {error}")))
}

/// Reads a list of entity tags.
fn ids(value: &str) -> Result<Vec<RulesId>, RulesIdError> {
    let id = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"').parse();
    value.split(',').map(|tag| id(tag.trim())).collect()
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
