//! The longest check of a large store in memory.
//!
//! A check takes some hundred nanoseconds, and now and then it has to do more: a part of the store grows, or
//! room is made. On a machine that does other things as well, any of millions of checks may also be
//! interrupted for milliseconds. So the same checks are made again and again by a store that has been
//! cleared, which has the same seed and therefore does the same in the same check; what counts of a check is
//! the shortest time that it took.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tollgate::{Charge, Cost, MemoryStore, Operation, Quota, Timestamp};

use crate::row::{Error, Row, Target, Unit};

const KEYS: usize = 10_000_000;

const REPETITIONS: usize = 5;

/// What takes less is not told apart.
const SHORT: Duration = Duration::from_micros(10);

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// Checks of one kind, one every microsecond.
struct Phase {
    what: &'static str,
    count: usize,
    /// When they begin, in seconds after the start, or before it.
    from: i64,
    /// The number of the key of each.
    key: fn(usize) -> usize,
    cost: u64,
}

/// Each bucket holds 100 units, one of which comes back in 36 s.
const PHASES: [Phase; 6] = [
    Phase { what: "new keys", count: KEYS, from: 0, key: |check| check, cost: 1 },
    Phase {
        what: "known keys",
        count: KEYS,
        from: 15,
        key: |check| check * 7_919 % KEYS,
        cost: 20,
    },
    Phase {
        what: "new keys, refused by a full store",
        count: 4_000,
        from: 30,
        key: |check| KEYS + check,
        cost: 1,
    },
    // After their first unit they all seemed to be full by now.
    Phase {
        what: "the same when all buckets have been put off",
        count: 20_000,
        from: 60,
        key: |check| KEYS + check,
        cost: 1,
    },
    Phase {
        what: "the same when the clock was set back by an hour",
        count: 4_000,
        from: -3_600,
        key: |check| KEYS + check,
        cost: 1,
    },
    Phase {
        what: "new keys in the place of full ones",
        count: KEYS / 4,
        from: 7_200,
        key: |check| 2 * KEYS + check,
        cost: 100,
    },
];

/// The longest check of each phase, and the longest time for which the clock stood still for a thread that
/// only read it.
struct Longest {
    checks: [Duration; PHASES.len()],
    gap: Duration,
}

pub(crate) fn rows() -> Result<Vec<Row>, Error> {
    // One run is for all rows, which it would be much too long for one by one.
    let longest: Rc<RefCell<Option<Rc<Longest>>>> = Rc::default();
    let mut rows = Vec::new();
    for (index, phase) in PHASES.iter().enumerate() {
        let longest = Rc::clone(&longest);
        rows.push(Row::single(phase.what, Unit::Micros, Target::AtMost(1_000.0), move || {
            Ok(micros(of(&longest)?.checks[index]))
        }));
    }
    rows.push(Row::single(
        "a thread that only reads the clock",
        Unit::Micros,
        Target::None,
        move || Ok(micros(of(&longest)?.gap)),
    ));
    Ok(rows)
}

fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1_000.0
}

fn of(longest: &RefCell<Option<Rc<Longest>>>) -> Result<Rc<Longest>, Error> {
    let mut longest = longest.borrow_mut();
    if let Some(longest) = &*longest {
        return Ok(Rc::clone(longest));
    }
    Ok(Rc::clone(longest.insert(Rc::new(measured()?))))
}

fn measured() -> Result<Longest, Error> {
    let (store, quota) =
        (MemoryStore::builder().keys_max(KEYS).build(), Quota::new("100/hour".parse()?, 100)?);
    // What each check took that was never short.
    let mut long: [HashMap<usize, Duration>; PHASES.len()] = Default::default();
    let begun = Instant::now();
    for repetition in 0..REPETITIONS {
        store.clear();
        for (phase, long) in PHASES.iter().zip(&mut long) {
            let taken = phase.run(&store, &quota)?;
            if repetition == 0 {
                *long = taken;
                continue;
            }
            long.retain(|check, least| {
                taken.get(check).map(|taken| *least = (*least).min(*taken)).is_some()
            });
        }
    }
    let checks = long.map(|long| long.into_values().max().unwrap_or(SHORT));
    Ok(Longest { checks, gap: longest_gap(begun.elapsed() / 5) })
}

impl Phase {
    /// Makes the checks, and returns how long each took that was not short.
    fn run(&self, store: &MemoryStore, quota: &Quota) -> Result<HashMap<usize, Duration>, Error> {
        let mut long = HashMap::new();
        let from = START.as_micros().checked_add_signed(self.from * 1_000_000).ok_or("no time")?;
        let mut key = String::new();
        for check in 0..self.count {
            key.clear();
            write!(key, "default:api:ip={:09}", (self.key)(check))?;
            let charge = Charge::new(&key, quota, Cost::new(self.cost));
            let now = Timestamp::from_micros(from + check as u64);
            let start = Instant::now();
            let decided = store.decide_one(Operation::Spend, &charge, now);
            let taken = start.elapsed();
            let is_refused = decided.is_err_and(|error| error.is_full());
            if is_refused != self.is_refused() {
                return Err(format!("{}: check {check} was decided otherwise", self.what).into());
            }
            if taken >= SHORT {
                long.insert(check, taken);
            }
        }
        Ok(long)
    }

    /// Tells whether the store is full, and has no full bucket.
    const fn is_refused(&self) -> bool {
        self.count < KEYS / 4
    }
}

/// Reads the clock for so long, and returns the longest time between two readings.
fn longest_gap(duration: Duration) -> Duration {
    let start = Instant::now();
    let (mut last, mut longest) = (start, Duration::ZERO);
    while last - start < duration {
        let now = Instant::now();
        longest = longest.max(now - last);
        last = now;
    }
    longest
}
