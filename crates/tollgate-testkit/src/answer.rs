//! What a store should answer, or did.

use std::fmt;
use std::time::Duration;

use tollgate_core::Decision;

/// The answer to one request, as worked timelines, the model and stores all give it.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::{Decision, Deny};
/// use tollgate_testkit::Answer;
///
/// let got = Answer::from(Decision::Deny(Deny {
///     limit: 2,
///     remaining: 0,
///     reset_after: Duration::from_millis(900),
///     retry_after: Duration::from_millis(400),
/// }));
/// assert_eq!(got.to_string(), "deny, remaining 0, reset_after_us 900000, retry_after_us 400000");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The request may go on.
    Allow {
        /// The whole units left, rounded down.
        remaining: u64,
        /// The time until the bucket is full again.
        reset_after: Duration,
        /// The time to wait before going on, zero but for a leaky bucket.
        delay: Duration,
    },
    /// The request is turned away.
    Deny {
        /// The whole units left, rounded down.
        remaining: u64,
        /// The time until the bucket is full again.
        reset_after: Duration,
        /// The time until the same request is allowed.
        retry_after: Duration,
    },
    /// The cost is above the burst or the limit: it can never succeed, and no store is asked.
    Impossible,
}

impl Answer {
    /// Returns `allow`, `deny` or `impossible`.
    pub const fn outcome(&self) -> &'static str {
        match self {
            Self::Allow { .. } => "allow",
            Self::Deny { .. } => "deny",
            Self::Impossible => "impossible",
        }
    }

    /// Returns the first field in which `got` differs from this answer, with both values.
    pub(crate) fn first_difference(&self, got: &Self) -> Option<(&'static str, String, String)> {
        // Fields are named alike as long as the outcomes are, and those come first.
        self.fields()
            .into_iter()
            .zip(got.fields())
            .find(|((_, expected), (_, got))| expected != got)
            .map(|((field, expected), (_, got))| (field, expected, got))
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![("outcome", self.outcome().to_owned())];
        let (remaining, reset_after, last) = match self {
            Self::Allow { remaining, reset_after, delay } => {
                (remaining, reset_after, ("delay_us", micros(*delay)))
            }
            Self::Deny { remaining, reset_after, retry_after } => {
                (remaining, reset_after, ("retry_after_us", micros(*retry_after)))
            }
            Self::Impossible => return fields,
        };
        fields.push(("remaining", remaining.to_string()));
        fields.push(("reset_after_us", micros(*reset_after)));
        fields.push(last);
        fields
    }
}

impl From<Decision> for Answer {
    fn from(decision: Decision) -> Self {
        match decision {
            Decision::Allow(allow) => Self::Allow {
                remaining: u64::from(allow.remaining),
                reset_after: allow.reset_after,
                delay: allow.delay,
            },
            Decision::Deny(deny) => Self::Deny {
                remaining: u64::from(deny.remaining),
                reset_after: deny.reset_after,
                retry_after: deny.retry_after,
            },
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.outcome())?;
        for (field, value) in self.fields().iter().skip(1) {
            write!(f, ", {field} {value}")?;
        }
        Ok(())
    }
}

/// Writes a duration in microseconds, with a fraction if it has one, so that two durations that
/// differ are never written alike.
fn micros(duration: Duration) -> String {
    match duration.subsec_nanos() % 1_000 {
        0 => duration.as_micros().to_string(),
        nanos => format!("{}.{nanos:03}", duration.as_micros()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deny(retry_after: Duration) -> Answer {
        Answer::Deny { remaining: 1, reset_after: Duration::from_secs(2), retry_after }
    }

    #[test]
    fn the_first_field_that_differs_is_named() {
        let expected = deny(Duration::from_micros(400_000));
        assert_eq!(expected.first_difference(&expected), None);
        let (field, expected, got) =
            expected.first_difference(&deny(Duration::from_nanos(400_000_001))).unwrap();
        assert_eq!((field, &*expected, &*got), ("retry_after_us", "400000", "400000.001"));
    }

    #[test]
    fn the_outcome_differs_before_anything_else() {
        let allow = Answer::Allow {
            remaining: 7,
            reset_after: Duration::ZERO,
            delay: Duration::from_micros(3),
        };
        let (field, ..) = allow.first_difference(&deny(Duration::ZERO)).unwrap();
        assert_eq!(field, "outcome");
        let (field, ..) = Answer::Impossible.first_difference(&allow).unwrap();
        assert_eq!(field, "outcome");
        assert_eq!(allow.to_string(), "allow, remaining 7, reset_after_us 0, delay_us 3");
        assert_eq!(Answer::Impossible.to_string(), "impossible");
    }
}
