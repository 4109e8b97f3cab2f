//! Runs one hot path so many times, for a tool that counts instructions: `hot_paths PATH COUNT`.
//!
//! `cargo xtask bench instructions` runs it under valgrind with two counts; the difference is what
//! the calls cost, whatever the preparation did.

#![expect(clippy::print_stderr, reason = "a command line talks to its user")]

use std::error::Error;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::process::ExitCode;
use std::task::{Context, Poll, Waker};

use tollgate::{
    Attributes, Charge, Cost, Limiter, ManualClock, MemoryStore, Operation, Quota, Rule,
};
use tollgate::{Clock, Timestamp};

type Failure = Box<dyn Error + Send + Sync>;

/// Calls of one kind, `count` of them.
type Path = fn(u64) -> Result<(), Failure>;

/// All paths by their names.
const PATHS: &[(&str, Path)] = &[
    ("memory-admitted", |count| memory(&["default:api:ip=203.000.113"], AMPLE, count)),
    ("memory-denied", |count| memory(&["default:api:ip=203.000.113"], SCARCE, count)),
    ("memory-long-key", |count| {
        memory(&["default:login-per-ip:ip=2001%3Adb8%3A%3A42"], AMPLE, count)
    }),
    ("memory-two-keys", |count| {
        memory(&["default:all", "default:api:ip=203.000.113"], AMPLE, count)
    }),
    ("memory-random", memory_random),
    ("limiter-one-rule", |count| limiter(1, count)),
    ("limiter-two-rules", |count| limiter(2, count)),
];

/// A quota that never denies here, and one that always does after its first unit.
const AMPLE: (&str, u64) = ("1000/s", 2_000_000_000);
const SCARCE: (&str, u64) = ("1/hour", 1);

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn main() -> Result<ExitCode, Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, count] = &arguments[..] else {
        for (name, _) in PATHS {
            eprintln!("{name}");
        }
        return Ok(ExitCode::FAILURE);
    };
    let path = PATHS.iter().find(|(known, _)| known == name);
    let (_, path) = path.ok_or_else(|| format!("there is no path {name:?}"))?;
    path(count.parse()?)?;
    Ok(ExitCode::SUCCESS)
}

fn quota((rate, burst): (&str, u64)) -> Result<Quota, Failure> {
    Ok(Quota::new(rate.parse()?, burst)?)
}

/// Checks of known keys, each three microseconds after the last.
fn memory(keys: &[&str], limit: (&str, u64), count: u64) -> Result<(), Failure> {
    let (store, quota) = (MemoryStore::new(), quota(limit)?);
    let charges: Vec<_> = keys.iter().map(|key| Charge::new(key, &quota, Cost::ONE)).collect();
    for call in 0..=count {
        let now = Timestamp::from_micros(START.as_micros() + call * 3);
        match &charges[..] {
            [charge] => {
                let _ = black_box(store.decide_one(Operation::Spend, black_box(charge), now)?);
            }
            charges => {
                black_box(store.decide(Operation::Spend, black_box(charges), now)?);
            }
        }
    }
    Ok(())
}

/// Checks of 100,000 keys that are known.
fn memory_random(count: u64) -> Result<(), Failure> {
    const KEYS: usize = 100_000;
    let (store, quota) = (MemoryStore::new(), quota(AMPLE)?);
    let keys: Vec<String> =
        (0..KEYS).map(|n| format!("default:api:ip={:09}", n * 7_919 % KEYS)).collect();
    let check = |key: &String, now| {
        let charge = Charge::new(key, &quota, Cost::ONE);
        store.decide_one(Operation::Spend, &charge, now).map(|decision| {
            let _ = black_box(decision);
        })
    };
    keys.iter().try_for_each(|key| check(key, START))?;
    for (call, key) in (0..count).zip(keys.iter().cycle()) {
        check(key, Timestamp::from_micros(START.as_micros() + call * 3))?;
    }
    Ok(())
}

/// Checks by a limiter in memory, by so many rules.
fn limiter(rules: usize, count: u64) -> Result<(), Failure> {
    let clock = ManualClock::new();
    let mut builder = Limiter::builder().clock(clock.clone());
    for (name, key) in [("api", ["ip"]), ("account", ["account"])].into_iter().take(rules) {
        builder = builder.rule(Rule::new(name, quota(AMPLE)?).with_key(key));
    }
    let limiter = builder.build()?;
    let attributes = Attributes::from([("ip", "203.0.113.7"), ("account", "a-4711")]);
    let start = clock.now();
    for call in 0..=count {
        clock.set(Timestamp::from_micros(start.as_micros() + call * 3));
        let _ = black_box(at_once(limiter.check(black_box(&attributes)))?);
    }
    Ok(())
}

/// Polls a future that is done when it is first polled, as all are of a store in memory.
fn at_once<T, E: Into<Failure>>(future: impl Future<Output = Result<T, E>>) -> Result<T, Failure> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done.map_err(Into::into),
        Poll::Pending => Err("the store in memory did not answer at once".into()),
    }
}
