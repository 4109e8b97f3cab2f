//! The scenarios: what is asked of a limiter and how much of it may pass.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::limiter::{Error, Library, Limit, Limiter, Per, Time, pass};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    Idle,
    BurstOfOne,
    Thirds,
    SevenHundred,
    WeightedDenial,
    Concurrent,
    TwoLimiters,
    OnePerHour,
}

/// How many units passed, and how many may.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) admitted: u64,
    pub(crate) promised: RangeInclusive<u64>,
}

impl Outcome {
    const fn exactly(admitted: u64, promised: u64) -> Self {
        Self { admitted, promised: promised..=promised }
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.deviation() == 0
    }

    /// Units above the promise, or below it as a negative number.
    pub(crate) fn deviation(&self) -> i64 {
        self.admitted.cast_signed()
            - self.admitted.clamp(*self.promised.start(), *self.promised.end()).cast_signed()
    }
}

/// What depends on the timing of threads is run this often; the furthest off counts.
const ROUNDS: u32 = 5;
const TASKS: u32 = 64;

impl Scenario {
    pub(crate) const ALL: [Self; 8] = [
        Self::Idle,
        Self::BurstOfOne,
        Self::Thirds,
        Self::SevenHundred,
        Self::WeightedDenial,
        Self::Concurrent,
        Self::TwoLimiters,
        Self::OnePerHour,
    ];

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Idle => "1  10/s, burst 10: drained, idle 1.7 s",
            Self::BurstOfOne => "2  1/hour, burst 1: 1000 requests",
            Self::Thirds => "3a 3/s, burst 1: 10 s, polled every ms",
            Self::SevenHundred => "3b 700/min, burst 2: 10 min, every 10 ms",
            Self::WeightedDenial => "4  10/hour: 7 x 1, then 5, then 10 x 1",
            Self::Concurrent => "5a 1000/min: 3000 requests, 64 tasks",
            Self::TwoLimiters => "5b the same through two limiters",
            Self::OnePerHour => "6  1/hour: 64 requests at once",
        }
    }

    pub(crate) const fn promised(self) -> &'static str {
        match self {
            Self::Idle | Self::WeightedDenial => "10",
            Self::BurstOfOne | Self::OnePerHour => "1",
            Self::Thirds => "30",
            Self::SevenHundred => "7001",
            Self::Concurrent | Self::TwoLimiters => "1000 + refill",
        }
    }

    /// Runs the scenario, or tells by `None` that the library cannot express it.
    pub(crate) async fn run(self, library: &dyn Library) -> Result<Option<Outcome>, Error> {
        match self {
            Self::Idle => idle(library).await,
            Self::BurstOfOne => burst_of_one(library).await,
            Self::Thirds => {
                let limit = Limit { units: 3, per: Per::Second, burst: 1 };
                polled(library, "thirds", limit, Duration::from_millis(1), 10_000).await
            }
            Self::SevenHundred => {
                let limit = Limit { units: 700, per: Per::Minute, burst: 2 };
                polled(library, "seven-hundred", limit, Duration::from_millis(10), 60_000).await
            }
            Self::WeightedDenial => weighted_denial(library).await,
            Self::Concurrent => {
                let limit = Limit::window(1_000, Per::Minute);
                concurrent(library, "concurrent", limit, 1, 3_000).await
            }
            Self::TwoLimiters if !library.is_shared() => Ok(None),
            Self::TwoLimiters => {
                let limit = Limit::window(1_000, Per::Minute);
                concurrent(library, "two-limiters", limit, 2, 3_000).await
            }
            Self::OnePerHour => {
                let limit = Limit::window(1, Per::Hour);
                concurrent(library, "one-per-hour", limit, 1, TASKS).await
            }
        }
    }
}

async fn idle(library: &dyn Library) -> Result<Option<Outcome>, Error> {
    let limit = Limit::window(10, Per::Second);
    let Some(limiter) = library.limiter(limit, Time::Injected, "idle").await? else {
        return Ok(None);
    };
    spend_singly(&*limiter, 30).await?;
    pass(&*limiter, Duration::from_millis(1_700)).await;
    Ok(Some(Outcome::exactly(spend_singly(&*limiter, 30).await?, 10)))
}

async fn burst_of_one(library: &dyn Library) -> Result<Option<Outcome>, Error> {
    let limit = Limit::window(1, Per::Hour);
    let Some(limiter) = library.limiter(limit, Time::System, "burst-of-one").await? else {
        return Ok(None);
    };
    Ok(Some(Outcome::exactly(spend_singly(&*limiter, 1_000).await?, 1)))
}

/// Asks for one unit at every step of the clock.
async fn polled(
    library: &dyn Library,
    key: &str,
    limit: Limit,
    step: Duration,
    polls: u32,
) -> Result<Option<Outcome>, Error> {
    let Some(limiter) = library.limiter(limit, Time::Injected, key).await? else {
        return Ok(None);
    };
    let mut admitted = 0;
    for poll in 0..polls {
        if poll > 0 {
            pass(&*limiter, step).await;
        }
        admitted += u64::from(limiter.spend(1).await?);
    }
    Ok(Some(Outcome::exactly(admitted, limit.most_in(step * (polls - 1)))))
}

/// Counts the units of all three parts, so that both a denial that costs and a cost that passes
/// although it does not fit are seen.
async fn weighted_denial(library: &dyn Library) -> Result<Option<Outcome>, Error> {
    let limit = Limit::window(10, Per::Hour);
    let Some(limiter) = library.limiter(limit, Time::System, "weighted").await? else {
        return Ok(None);
    };
    let mut admitted = spend_singly(&*limiter, 7).await?;
    admitted += 5 * u64::from(limiter.spend(5).await?);
    admitted += spend_singly(&*limiter, 10).await?;
    Ok(Some(Outcome::exactly(admitted, 10)))
}

async fn spend_singly(limiter: &dyn Limiter, requests: u32) -> Result<u64, Error> {
    let mut admitted = 0;
    for _ in 0..requests {
        admitted += u64::from(limiter.spend(1).await?);
    }
    Ok(admitted)
}

/// Runs [`ROUNDS`] rounds of [`TASKS`] tasks on fresh keys and returns the one furthest off.
async fn concurrent(
    library: &dyn Library,
    name: &str,
    limit: Limit,
    limiters: u32,
    requests: u32,
) -> Result<Option<Outcome>, Error> {
    let mut furthest: Option<Outcome> = None;
    for round in 0..ROUNDS {
        let key = format!("{name}-{round}");
        let mut shared = Vec::new();
        for _ in 0..limiters {
            let Some(limiter) = library.limiter(limit, Time::System, &key).await? else {
                return Ok(None);
            };
            shared.push(limiter);
        }
        let outcome = round_of_tasks(&shared, limit, requests).await?;
        let so_far = furthest.as_ref().map_or(0, |outcome| outcome.deviation().abs());
        if furthest.is_none() || outcome.deviation().abs() > so_far {
            furthest = Some(outcome);
        }
    }
    Ok(furthest)
}

/// Spreads the requests over tasks that start together, and the tasks over the limiters.
async fn round_of_tasks(
    limiters: &[Arc<dyn Limiter>],
    limit: Limit,
    requests: u32,
) -> Result<Outcome, Error> {
    let start = Arc::new(Barrier::new(TASKS as usize));
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for (task, limiter) in (0..TASKS).zip(limiters.iter().cycle()) {
        let share = requests / TASKS + u32::from(task < requests % TASKS);
        let (start, limiter) = (Arc::clone(&start), Arc::clone(limiter));
        tasks.spawn(async move {
            start.wait().await;
            spend_singly(&*limiter, share).await
        });
    }
    let mut admitted = 0;
    while let Some(task) = tasks.join_next().await {
        admitted += task??;
    }
    // The limiters' first and last decisions both lie within this time.
    let promised = u64::from(limit.burst)..=limit.most_in(began.elapsed());
    Ok(Outcome { admitted, promised })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviation_is_counted_from_the_nearer_end_of_the_promise() {
        let outcome = |admitted| Outcome { admitted, promised: 1_000..=1_002 };
        assert_eq!([999, 1_000, 1_002, 1_010].map(|n| outcome(n).deviation()), [-1, 0, 0, 8]);
    }

    #[test]
    fn most_in_is_the_burst_and_the_whole_units_of_refill() {
        let limit = Limit { units: 700, per: Per::Minute, burst: 2 };
        assert_eq!(limit.most_in(Duration::ZERO), 2);
        assert_eq!(limit.most_in(Duration::from_millis(599_990)), 7_001);
        assert_eq!(limit.most_in(Duration::from_secs(600)), 7_002);
    }
}
