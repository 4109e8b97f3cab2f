//! The JSON form of timelines.

use std::fs;
use std::num::NonZeroU16;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tollgate_core::{Cost, Quota, Rate, Timestamp};

use super::{Step, Timeline, TimelineError};
use crate::answer::Answer;

/// What needs a burst.
const BUCKETS: &str = "a token_bucket and a leaky_bucket";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimelineFields {
    name: String,
    why: String,
    algorithm: Algorithm,
    quota: QuotaFields,
    start_us: u64,
    steps: Vec<Value>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Algorithm {
    TokenBucket,
    LeakyBucket,
    FixedWindow,
    SlidingWindow,
    SlidingLog,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaFields {
    units: u64,
    period_us: u64,
    burst: Option<u64>,
    cells: Option<u16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetQuotaFields {
    set_quota: QuotaFields,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckFields {
    at_us: u64,
    cost: u64,
    expect: ExpectFields,
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
/// assert_eq!(timelines[0].quota().algorithm().as_str(), "token_bucket");
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
    let (algorithm, start) = (fields.algorithm, instant(fields.start_us)?);
    let quota = fields.quota.quota(algorithm).map_err(|error| error.within("quota"))?;
    let steps = fields
        .steps
        .into_iter()
        .enumerate()
        .map(|(index, value)| {
            step(value, algorithm, start).map_err(|error| error.within(format!("step {index}")))
        })
        .collect::<Result<_, _>>()?;
    Ok(Timeline { name: fields.name, why: fields.why, quota, start, steps })
}

fn step(value: Value, algorithm: Algorithm, start: Timestamp) -> Result<Step, TimelineError> {
    if value.get("set_quota").is_some() {
        let fields: SetQuotaFields = fields(value)?;
        return fields.set_quota.quota(algorithm).map(Step::SetQuota);
    }
    let fields: CheckFields = fields(value)?;
    instant(start.as_micros().saturating_add(fields.at_us))?;
    Ok(Step::Check {
        at: Duration::from_micros(fields.at_us),
        cost: Cost::new(fields.cost),
        expect: fields.expect.answer()?,
    })
}

impl QuotaFields {
    fn quota(self, algorithm: Algorithm) -> Result<Quota, TimelineError> {
        let rate = Rate::new(self.units, Duration::from_micros(self.period_us))
            .map_err(|error| TimelineError::malformed(error.to_string()))?;
        let is_bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
        refuse(!is_bucket && self.burst.is_some(), "burst", "a window has no burst")?;
        let has_cells = matches!(algorithm, Algorithm::SlidingWindow);
        refuse(!has_cells && self.cells.is_some(), "cells", "only a sliding_window has cells")?;
        let quota = match algorithm {
            Algorithm::TokenBucket => Quota::new(rate, required(self.burst, "burst", BUCKETS)?),
            Algorithm::LeakyBucket => {
                Quota::leaky_bucket(rate, required(self.burst, "burst", BUCKETS)?)
            }
            Algorithm::FixedWindow => Quota::fixed_window(rate),
            Algorithm::SlidingWindow => {
                let cells = self.cells.unwrap_or(tollgate_core::Algorithm::CELLS_DEFAULT.get());
                refuse(cells == 0, "cells", "give at least 1")?;
                Quota::sliding_window(rate, NonZeroU16::new(cells).unwrap_or(NonZeroU16::MIN))
            }
            Algorithm::SlidingLog => Quota::sliding_log(rate),
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
