//! The JSON form of timelines.

use std::fs;
use std::num::NonZeroU16;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tollgate_core::{Algorithm, Cost, Operation, Quota, Rate, Ticket, Timestamp};

use super::{Step, Timeline, TimelineError};
use crate::answer::Answer;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimelineFields {
    name: String,
    why: String,
    algorithm: String,
    quota: Value,
    start_us: u64,
    steps: Vec<Value>,
}

/// The quotas of an algorithm, each of which has its own fields.
#[derive(Clone, Copy)]
enum Kind {
    TokenBucket,
    LeakyBucket,
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    Concurrency,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BucketFields {
    units: u64,
    period_us: u64,
    burst: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowFields {
    units: u64,
    period_us: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CellsFields {
    units: u64,
    period_us: u64,
    cells: Option<NonZeroU16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SlotsFields {
    units: u64,
    lease_ttl_us: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetQuotaFields {
    set_quota: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestFields {
    at_us: u64,
    #[serde(rename = "do", default)]
    act: Act,
    ticket: Option<String>,
    ttl_us: Option<u64>,
    cost: Option<u64>,
    expect: ExpectFields,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Act {
    #[default]
    Spend,
    Look,
    Refund,
    Renew,
    Release,
    Reserve,
    Settle,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectFields {
    outcome: Outcome,
    remaining: Option<u64>,
    reset_after_us: Option<u64>,
    retry_after_us: Option<u64>,
    delay_us: Option<u64>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Allow,
    Deny,
    Impossible,
}

/// Reads the timelines of the file at `path`.
///
/// # Errors
///
/// [`TimelineError`] if the file cannot be read or is not a list of timelines.
pub fn read(path: impl AsRef<Path>) -> Result<Vec<Timeline>, TimelineError> {
    let path = path.as_ref();
    let text = fs::read_to_string(path).map_err(|error| TimelineError::unreadable(path, error))?;
    parse(&text).map_err(|error| error.within(path.display()))
}

/// Parses a list of timelines in their JSON form.
///
/// # Errors
///
/// [`TimelineError`] if the text is not JSON, or a timeline is not as the
/// [module docs](crate::timeline) say.
///
/// # Examples
///
/// ```
/// use tollgate_testkit::timeline;
///
/// let timelines = timeline::parse(timeline::TOKEN_BUCKET)?;
/// assert_eq!(timelines[0].name(), "classic-burst-5-at-1-per-second");
/// assert_eq!(timelines[0].algorithm(), "token_bucket");
///
/// let error = timeline::parse(r#"[{"name": "typo", "stpes": []}]"#).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "timeline \"typo\": unknown field `stpes`, \
///      expected one of `name`, `why`, `algorithm`, `quota`, `start_us`, `steps`"
/// );
/// # Ok::<(), timeline::TimelineError>(())
/// ```
pub fn parse(text: &str) -> Result<Vec<Timeline>, TimelineError> {
    let values: Vec<Value> = serde_json::from_str(text)
        .map_err(|error| TimelineError::malformed(format!("not a JSON list: {error}")))?;
    values
        .into_iter()
        .enumerate()
        .map(|(index, value)| {
            let place = match value.get("name").and_then(Value::as_str) {
                Some(name) => format!("timeline {name:?}"),
                None => format!("timeline {index}"),
            };
            timeline(value).map_err(|error| error.within(place))
        })
        .collect()
}

fn timeline(value: Value) -> Result<Timeline, TimelineError> {
    let fields: TimelineFields = fields(value)?;
    let start = instant(fields.start_us)?;
    let unknown = Timeline {
        name: fields.name,
        why: fields.why,
        algorithm: fields.algorithm,
        quota: None,
        start,
        steps: Vec::new(),
    };
    // What the quota and the steps of an unknown algorithm mean, nobody here can tell.
    let Some(kind) = Kind::of(&unknown.algorithm) else { return Ok(unknown) };
    let quota = kind.quota(fields.quota).map_err(|error| error.within("quota"))?;
    let steps = fields
        .steps
        .into_iter()
        .enumerate()
        .map(|(index, value)| {
            step(value, kind, start).map_err(|error| error.within(format!("step {index}")))
        })
        .collect::<Result<_, _>>()?;
    Ok(Timeline { quota: Some(quota), steps, ..unknown })
}

fn step(value: Value, kind: Kind, start: Timestamp) -> Result<Step, TimelineError> {
    if value.get("set_quota").is_some() {
        let fields: SetQuotaFields = fields(value)?;
        return kind.quota(fields.set_quota).map(Step::SetQuota);
    }
    let fields: RequestFields = fields(value)?;
    instant(start.as_micros().saturating_add(fields.at_us))?;
    let takes_cost = !matches!(fields.act, Act::Renew | Act::Release);
    refuse(!takes_cost && fields.cost.is_some(), "cost", "a lease keeps what it holds")?;
    let needs_ticket = !matches!(fields.act, Act::Spend | Act::Look | Act::Refund);
    let without_ticket = needs_ticket && fields.ticket.is_none();
    refuse(without_ticket, "ticket", "name what is renewed, released, reserved or settled")?;
    let is_reserve = fields.act == Act::Reserve;
    refuse(!is_reserve && fields.ttl_us.is_some(), "ttl_us", "only a reserve has one")?;
    let cost = if takes_cost { required(fields.cost, "cost", "a request")? } else { 0 };
    Ok(Step::Request {
        at: Duration::from_micros(fields.at_us),
        operation: match fields.act {
            Act::Spend => Operation::Spend,
            Act::Look => Operation::Look,
            Act::Refund => Operation::Refund,
            Act::Renew => Operation::Renew,
            Act::Release => Operation::Release,
            Act::Reserve => {
                Operation::Reserve { ttl: duration(fields.ttl_us, "ttl_us", "a reserve")? }
            }
            Act::Settle => Operation::Settle,
        },
        ticket: fields.ticket.as_deref().map(Ticket::of),
        cost: Cost::new(cost),
        expect: fields.expect.answer()?,
    })
}

impl Kind {
    fn of(algorithm: &str) -> Option<Self> {
        Some(match algorithm {
            "token_bucket" => Self::TokenBucket,
            "leaky_bucket" => Self::LeakyBucket,
            "fixed_window" => Self::FixedWindow,
            "sliding_window" => Self::SlidingWindow,
            "sliding_log" => Self::SlidingLog,
            "concurrency" => Self::Concurrency,
            _ => return None,
        })
    }

    fn quota(self, value: Value) -> Result<Quota, TimelineError> {
        let rate = |units: u64, period_us: u64| {
            Rate::new(units, Duration::from_micros(period_us))
                .map_err(|error| TimelineError::malformed(error.to_string()))
        };
        let quota = match self {
            Self::TokenBucket | Self::LeakyBucket => {
                let BucketFields { units, period_us, burst } = fields(value)?;
                let rate = rate(units, period_us)?;
                match self {
                    Self::TokenBucket => Quota::new(rate, burst),
                    _ => Quota::leaky_bucket(rate, burst),
                }
            }
            Self::FixedWindow | Self::SlidingLog => {
                let WindowFields { units, period_us } = fields(value)?;
                let rate = rate(units, period_us)?;
                match self {
                    Self::FixedWindow => Quota::fixed_window(rate),
                    _ => Quota::sliding_log(rate),
                }
            }
            Self::SlidingWindow => {
                let CellsFields { units, period_us, cells } = fields(value)?;
                let cells = cells.unwrap_or(Algorithm::CELLS_DEFAULT);
                Quota::sliding_window(rate(units, period_us)?, cells)
            }
            Self::Concurrency => {
                let SlotsFields { units, lease_ttl_us } = fields(value)?;
                Quota::concurrency(units, Duration::from_micros(lease_ttl_us))
            }
        };
        quota.map_err(|error| TimelineError::malformed(error.to_string()))
    }
}

impl ExpectFields {
    fn answer(self) -> Result<Answer, TimelineError> {
        let denies = matches!(self.outcome, Outcome::Deny);
        let allows = matches!(self.outcome, Outcome::Allow);
        refuse(!denies && self.retry_after_us.is_some(), "retry_after_us", "only a deny has one")?;
        refuse(!allows && self.delay_us.is_some(), "delay_us", "only an allow has one")?;
        let impossible = !denies && !allows;
        refuse(impossible && self.remaining.is_some(), "remaining", IMPOSSIBLE)?;
        refuse(impossible && self.reset_after_us.is_some(), "reset_after_us", IMPOSSIBLE)?;
        Ok(match self.outcome {
            Outcome::Allow => Answer::Allow {
                remaining: required(self.remaining, "remaining", "an allow")?,
                reset_after: duration(self.reset_after_us, "reset_after_us", "an allow")?,
                delay: Duration::from_micros(self.delay_us.unwrap_or(0)),
            },
            Outcome::Deny => Answer::Deny {
                remaining: required(self.remaining, "remaining", "a deny")?,
                reset_after: duration(self.reset_after_us, "reset_after_us", "a deny")?,
                retry_after: duration(self.retry_after_us, "retry_after_us", "a deny")?,
            },
            Outcome::Impossible => Answer::Impossible,
        })
    }
}

const IMPOSSIBLE: &str = "an impossible cost has nothing but its outcome";

fn fields<T: DeserializeOwned>(value: Value) -> Result<T, TimelineError> {
    serde_json::from_value(value).map_err(|error| TimelineError::malformed(error.to_string()))
}

fn instant(micros: u64) -> Result<Timestamp, TimelineError> {
    let instant = Timestamp::from_micros(micros);
    let message = format!("{micros}us is after the last instant, {}", Timestamp::MAX);
    if instant.as_micros() == micros { Ok(instant) } else { Err(TimelineError::malformed(message)) }
}

fn required(value: Option<u64>, field: &str, whose: &str) -> Result<u64, TimelineError> {
    value.ok_or_else(|| TimelineError::malformed(format!("{whose} needs `{field}`")))
}

fn duration(micros: Option<u64>, field: &str, whose: &str) -> Result<Duration, TimelineError> {
    required(micros, field, whose).map(Duration::from_micros)
}

fn refuse(wrong: bool, field: &str, why: &str) -> Result<(), TimelineError> {
    if wrong { Err(TimelineError::malformed(format!("`{field}`: {why}"))) } else { Ok(()) }
}
