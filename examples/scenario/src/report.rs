//! What came of the runs.

use std::fmt::Write;
use std::time::Duration;

use crate::load::Seen;
use crate::run::{BACK_AT, BURST, LENGTH, LOST_AT, Plan, RATE, Shared};

/// The deadline of every operation on the store.
const DEADLINE: Duration = Duration::from_millis(50);

/// For how long only some replicas may know that Redis is back.
const SPREAD_MS: u64 = 250;

/// How soon after Redis's return all decisions have to be exact.
const EXACT_WITHIN: Duration = Duration::from_secs(2);

/// The burst is over by then.
const STEADY_FROM: Duration = Duration::from_secs(1);

/// How wide the bars of the drawing are.
const BAR: Duration = Duration::from_millis(250);

/// What came of one run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) plan: Plan,
    pub(crate) seen: Seen,
    pub(crate) elapsed: Duration,
    /// When requests reached the downstream.
    pub(crate) arrivals: Vec<Duration>,
    /// How long after Redis's return the last replica was exact.
    pub(crate) exact_after: Option<Duration>,
}

impl Report {
    fn between(&self, from: Duration, to: Duration) -> u64 {
        self.arrivals.iter().filter(|at| (from..to).contains(*at)).count() as u64
    }

    /// The most in any second.
    fn peak(&self) -> usize {
        let second = Duration::from_secs(1);
        let ends = |first: usize| {
            let from = self.arrivals[first];
            self.arrivals[first..].partition_point(|at| *at < from + second)
        };
        (0..self.arrivals.len()).map(ends).max().unwrap_or(0)
    }

    /// The mean in hundredths per second, after the burst.
    fn mean_hundredths(&self) -> u64 {
        let steady = LENGTH - STEADY_FROM;
        self.between(STEADY_FROM, LENGTH) * 100 / steady.as_secs()
    }

    fn added_us(&self, per_thousand: usize) -> u64 {
        let all = &self.seen.added_us;
        let last = all.len().saturating_sub(1);
        all.get(last * per_thousand / 1_000).copied().unwrap_or(0)
    }

    /// What may reach the downstream in the whole run.
    fn bound(&self) -> u64 {
        let over = |time_ms: u64| RATE * time_ms / 1_000;
        let elapsed_ms = u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX);
        let outage = if self.plan.limiter.loses_redis() { 2 * BURST + over(SPREAD_MS) } else { 0 };
        BURST + over(elapsed_ms) + 1 + outage
    }

    /// What should have been and was not, in sentences.
    pub(crate) fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        let mut check = |holds: bool, text: String| {
            if !holds {
                missed.push(format!("{}: {text}", self.plan.title));
            }
        };
        if self.plan.limiter == Shared::PerProcess {
            return missed;
        }
        let errors = self.seen.errors;
        check(errors == 0, format!("{errors} requests failed"));
        let (all, bound) = (self.arrivals.len() as u64, self.bound());
        check(all <= bound, format!("{all} requests got through, at most {bound} may"));
        let slowest = Duration::from_micros(self.added_us(1_000));
        let most = DEADLINE + 2 * self.seen.late + Duration::from_millis(20);
        check(slowest <= most, format!("the limiter took {slowest:?}, at most {most:?} it may"));
        if self.plan.limiter == Shared::Tollgate {
            let mean = self.mean_hundredths();
            let good = (RATE * 99..=RATE * 101).contains(&mean);
            check(good, format!("{}.{:02}/s is not within 1% of {RATE}/s", mean / 100, mean % 100));
        }
        if let Some(after) = self.exact_after {
            check(after <= EXACT_WITHIN, format!("exact only {after:?} after Redis's return"));
        }
        missed
    }
}

/// The table of all runs.
pub(crate) fn table(reports: &[Report]) -> String {
    let mut text = String::from(
        "| limiter | downstream, mean/s | peak in a second | added p50 | added p99 | slowest | errors | exact again after |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for report in reports {
        let mean = report.mean_hundredths();
        let millis = |us: u64| format!("{}.{:02} ms", us / 1_000, us % 1_000 / 10);
        let after = report
            .exact_after
            .map_or_else(|| "-".to_owned(), |after| format!("{} ms", after.as_millis()));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {}.{} | {} | {} | {} | {} | {} | {after} |",
            report.plan.title,
            mean / 100,
            mean % 100 / 10,
            report.peak(),
            millis(report.added_us(500)),
            millis(report.added_us(990)),
            millis(report.added_us(1_000)),
            report.seen.errors,
        );
    }
    for report in reports {
        let _ = writeln!(
            text,
            "{}: {} allowed, {} denied in {:.1} s, {} reached the downstream, the bound is {}; \
             the machine was late by {:?}",
            report.plan.title,
            report.seen.allowed,
            report.seen.denied,
            report.elapsed.as_secs_f64(),
            report.arrivals.len(),
            report.bound(),
            report.seen.late,
        );
    }
    text
}

/// What the drawing needs: for each run its title, the seconds without Redis, and what reached the
/// downstream in each 250 ms.
pub(crate) fn counts(reports: &[Report]) -> String {
    let mut text = String::new();
    for report in reports {
        let outage = match report.plan.limiter.loses_redis() {
            true => format!("{} {}", LOST_AT.as_secs(), BACK_AT.as_secs()),
            false => "-".to_owned(),
        };
        let bars = u32::try_from(LENGTH.as_millis() / BAR.as_millis()).unwrap_or(0);
        let bars = (0..bars).map(|bar| report.between(BAR * bar, BAR * (bar + 1)).to_string());
        let bars: Vec<String> = bars.collect();
        let _ = writeln!(text, "{}\n{outage}\n{}", report.plan.title, bars.join(" "));
    }
    text
}
