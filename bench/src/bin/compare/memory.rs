//! A check in memory beside governor's keyed limiter.

use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use governor::clock::{Clock, DefaultClock, Reference};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use tollgate::{Attributes, Charge, Cost, Limiter, MemoryStore, Operation, Quota, Rule, Timestamp};

use crate::clock::thread_nanos;
use crate::keys::shuffled;
use crate::row::{Error, Row, Run, Target, Unit};

/// How many checks each thread makes in one run.
const CHECKS: usize = 500_000;

/// Short rounds and many: other programs disturb few of them.
const ROUNDS: usize = 15;

const RANDOM_KEYS: usize = 100_000;

const EPOCH_US: u64 = 1_700_000_000_000_000;

type Keyed = governor::RateLimiter<
    String,
    DashMapStateStore<String>,
    DefaultClock,
    NoOpMiddleware<<DefaultClock as Clock>::Instant>,
>;

pub(crate) fn rows() -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for (key_count, least) in [(1, 1.0), (RANDOM_KEYS, 2.0)] {
        for threads in [1, 2] {
            for is_admitted in [true, false] {
                let keys = named(key_count);
                let outcome = if is_admitted { "admitted" } else { "denied" };
                let plan = Plan { key_count, threads, is_admitted };
                rows.push(Row {
                    what: format!(
                        "{keys}, {threads} thread{}, {outcome}",
                        if threads == 1 { "" } else { "s" }
                    ),
                    unit: Unit::NanosPerCheck,
                    rounds: ROUNDS,
                    ours: plan.tollgate()?,
                    other: Some(("governor", plan.governor()?)),
                    target: Target::Ratio(least),
                });
            }
        }
    }
    for key_count in [1, RANDOM_KEYS] {
        let plan = Plan { key_count, threads: 1, is_admitted: true };
        rows.push(Row {
            what: format!("Limiter::check with one rule, {}, 1 thread", named(key_count)),
            unit: Unit::NanosPerCheck,
            rounds: ROUNDS,
            ours: plan.limiter()?,
            other: Some(("governor", plan.governor()?)),
            target: Target::None,
        });
    }
    Ok(rows)
}

fn named(key_count: usize) -> String {
    match key_count {
        1 => "one hot key".to_owned(),
        count => format!("{count} random keys"),
    }
}

#[derive(Clone, Copy)]
struct Plan {
    key_count: usize,
    threads: usize,
    is_admitted: bool,
}

impl Plan {
    /// All are admitted if a bucket holds more than is ever asked for, and denied if it holds one
    /// unit that is spent.
    const fn burst(self) -> u32 {
        if self.is_admitted { 2_000_000_000 } else { 1 }
    }

    fn governor(self) -> Result<Run, Error> {
        let quota = governor::Quota::with_period(Duration::from_secs(3_600))
            .ok_or("a period of an hour")?;
        let quota = if self.is_admitted {
            governor::Quota::per_second(NonZeroU32::try_from(1_000)?)
        } else {
            quota
        };
        let limiter: Arc<Keyed> = Arc::new(governor::RateLimiter::dashmap_with_clock(
            quota.allow_burst(NonZeroU32::try_from(self.burst())?),
            DefaultClock::default(),
        ));
        Ok(self.run(move |key| limiter.check_key(key).is_ok()))
    }

    /// The store reads the time as governor does, from the same clock.
    fn tollgate(self) -> Result<Run, Error> {
        let rate = if self.is_admitted { "1000/s" } else { "1/hour" };
        let quota = Quota::new(rate.parse()?, self.burst().into())?;
        let store = Arc::new(MemoryStore::new());
        let clock = DefaultClock::default();
        let start = clock.now();
        Ok(self.run(move |key| {
            let elapsed = clock.now().duration_since(start).as_u64() / 1_000;
            let now = Timestamp::from_micros(EPOCH_US + elapsed);
            let charge = Charge::new(key, &quota, Cost::ONE);
            store
                .decide_one(Operation::Spend, &charge, now)
                .is_ok_and(|decision| decision.is_allow())
        }))
    }

    /// A whole check, with the system's clock: the request's attribute is there, all else is made anew.
    fn limiter(self) -> Result<Run, Error> {
        let quota = Quota::new("1000/s".parse()?, self.burst().into())?;
        let limiter = Limiter::builder().rule(Rule::new("api", quota).with_key(["ip"])).build()?;
        Ok(self.run(move |key| {
            let attributes = Attributes::from([("ip", key.as_str())]);
            at_once(limiter.check(&attributes)).is_some_and(|verdict| verdict.is_allowed())
        }))
    }

    fn run(self, check: impl Fn(&String) -> bool + Clone + Send + Sync + 'static) -> Run {
        let keys: Vec<Vec<String>> =
            (0..self.threads).map(|thread| shuffled(self.key_count, 7 + thread as u64)).collect();
        // From now on every key is known, and has spent what a denied one has. They have come in another
        // order than that in which they are asked for, which would let the processor guess the next.
        shuffled(self.key_count, 3).iter().for_each(|key| {
            check(key);
        });
        Box::new(move || {
            let barrier = Barrier::new(self.threads + 1);
            let (admitted, nanos) = thread::scope(|scope| {
                let threads: Vec<_> = keys
                    .iter()
                    .map(|keys| {
                        let (check, barrier) = (check.clone(), &barrier);
                        scope.spawn(move || {
                            barrier.wait();
                            let start = thread_nanos();
                            let admitted: usize = (0..CHECKS.div_ceil(keys.len()))
                                .map(|_| keys.iter().filter(|key| check(key)).count())
                                .sum();
                            (admitted, thread_nanos() - start)
                        })
                    })
                    .collect();
                barrier.wait();
                let start = Instant::now();
                let done: Vec<_> =
                    threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect();
                let elapsed = start.elapsed().as_nanos() as f64;
                let admitted: usize = done.iter().map(|(admitted, _)| admitted).sum();
                // A thread that waits for a lock takes no time of its processor, but it is not alone
                // in having to: two threads are measured by the clock on the wall.
                (admitted, if self.threads == 1 { done[0].1 as f64 } else { elapsed })
            });
            let expected = if self.is_admitted { CHECKS * self.threads } else { 0 };
            if admitted != expected {
                return Err(format!("{admitted} admitted, not {expected}").into());
            }
            Ok(nanos / CHECKS as f64)
        })
    }
}

/// Polls a future that is done when it is first polled, as all are of a store in memory.
fn at_once<T, E>(future: impl Future<Output = Result<T, E>>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done.ok(),
        Poll::Pending => None,
    }
}
