//! What callers have seen.

use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::Instant;

use super::target::Answered;

/// How many of the requests that were never sent are counted one by one; more are in as many groups.
const GROUPS: u64 = 100_000;

/// What the callers of one connection have seen.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) latencies_us: Histogram<u64>,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    /// Those of the answers that no rule had a say in.
    pub(super) without_rule: u64,
    pub(super) errors: u64,
    pub(super) unsent: u64,
    pub(super) first_error: Option<String>,
    pub(super) last_answer: Option<Instant>,
}

impl Seen {
    pub(super) fn new() -> Result<Self, String> {
        let latencies_us = Histogram::new(3).map_err(|error| error.to_string())?;
        Ok(Self {
            latencies_us,
            allowed: 0,
            denied: 0,
            without_rule: 0,
            errors: 0,
            unsent: 0,
            first_error: None,
            last_answer: None,
        })
    }

    /// Counts the end of a request at `now`, whether it was answered or failed.
    pub(super) fn note(&mut self, answer: Result<Answered, String>, due_at: Instant, now: Instant) {
        self.last_answer = Some(now);
        self.record(now.saturating_duration_since(due_at), 1);
        match answer {
            Ok(Answered { is_allowed, has_rule }) => {
                *(if is_allowed { &mut self.allowed } else { &mut self.denied }) += 1;
                self.without_rule += u64::from(!has_rule);
            }
            Err(error) => {
                self.errors += 1;
                self.first_error.get_or_insert(error);
            }
        }
    }

    /// Counts requests that were due and never sent. `waited` tells how long the n-th of them had
    /// been due at the end.
    pub(super) fn note_unsent(&mut self, count: u64, waited: impl Fn(u64) -> Duration) {
        self.unsent += count;
        let step = count.div_ceil(GROUPS).max(1);
        for first in (0..count).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
            self.record(waited(first), step.min(count - first));
        }
    }

    fn record(&mut self, latency: Duration, count: u64) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        // It grows with what is recorded, for which there is room up to the length of a load.
        let _ = self.latencies_us.record_n(micros, count);
    }

    pub(super) fn add(&mut self, other: &Self) -> Result<(), String> {
        self.latencies_us.add(&other.latencies_us).map_err(|error| error.to_string())?;
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.without_rule += other.without_rule;
        self.errors += other.errors;
        self.unsent += other.unsent;
        self.first_error = self.first_error.take().or_else(|| other.first_error.clone());
        self.last_answer = self.last_answer.max(other.last_answer);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: Answered = Answered { is_allowed: true, has_rule: true };

    #[test]
    fn latencies_are_told_however_long_they_are() {
        let mut seen = Seen::new().unwrap();
        let now = Instant::now();
        seen.note(Ok(ALLOWED), now, now + Duration::from_secs(9));
        seen.note(Ok(ALLOWED), now, now + Duration::from_millis(50));
        let mut all = Seen::new().unwrap();
        all.add(&seen).unwrap();
        assert!((50_000..50_100).contains(&all.latencies_us.value_at_quantile(0.5)));
        assert!((9_000_000..9_010_000).contains(&all.latencies_us.max()));
    }

    #[test]
    fn a_request_that_failed_counts_with_the_time_until_it_failed() {
        let mut seen = Seen::new().unwrap();
        let due_at = Instant::now();
        seen.note(Err("no answer".to_owned()), due_at, due_at + Duration::from_secs(3));
        assert_eq!((seen.errors, seen.latencies_us.len()), (1, 1));
        assert!((3_000_000..3_010_000).contains(&seen.latencies_us.max()));
    }

    #[test]
    fn requests_that_were_never_sent_count_with_the_time_since_they_were_due() {
        for count in [10, 1_000_000] {
            let mut seen = Seen::new().unwrap();
            let micros = |number| 10_000_000 - 10_000_000 / count * number;
            seen.note_unsent(count, |number| Duration::from_micros(micros(number)));
            assert_eq!((seen.unsent, seen.latencies_us.len()), (count, count));
            assert!((4_990_000..6_010_000).contains(&seen.latencies_us.value_at_quantile(0.5)));
            assert!((9_990_000..10_010_000).contains(&seen.latencies_us.max()));
        }
    }
}
