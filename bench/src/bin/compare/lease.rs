//! One hot key: a limiter that leases slices of it from Redis, beside one whose store is in memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tollgate::{
    Attributes, Charge, Clock, Cost, HotKeys, Limiter, MemoryStore, Mode, Operation, Quota,
    RedisStore, Rule, SystemClock,
};
use tollgate_testkit::RedisServer;

use crate::row::{Error, Row, Run, Target, Unit};

const ROUNDS: usize = 9;

const CHECKS: u32 = 500_000;

pub(crate) fn rows() -> Result<Vec<Row>, Error> {
    let runtime = Arc::new(Builder::new_multi_thread().worker_threads(1).enable_all().build()?);
    let server = Arc::new(RedisServer::start()?);
    // Far more than is ever asked for.
    let quota = Quota::new("1000000000/s".parse()?, 1_000_000_000)?;
    let rule = || Rule::new("api", quota).with_key(["ip"]);
    let in_memory = Limiter::builder().rule(rule()).build()?;
    let leased = |server: &Arc<RedisServer>| -> Result<Run, Error> {
        let store = runtime.block_on(RedisStore::builder(server.url()).connect())?;
        let rule = rule().with_hot_keys(HotKeys::Lease);
        let limiter = Limiter::builder().store(store).rule(rule).build()?;
        let (runtime, server) = (Arc::clone(&runtime), Arc::clone(server));
        Ok(Box::new(move || {
            let _ = &server;
            let (nanos, leased) = checks(&runtime, &limiter)?;
            // The rest was asked of Redis, and is in the figure: slices came too late for it.
            eprintln!("  a lease answered {:.1} %", leased * 100.0);
            Ok(nanos)
        }))
    };
    let same_limiter = Arc::clone(&runtime);
    Ok(vec![
        Row {
            what: "Limiter::check of one leased key".to_owned(),
            unit: Unit::NanosPerCheck,
            rounds: ROUNDS,
            ours: leased(&server)?,
            other: Some(("in memory", Box::new(move || Ok(checks(&same_limiter, &in_memory)?.0)))),
            target: Target::Ratio(0.5),
        },
        Row {
            what: "the same, beside the store without a limiter".to_owned(),
            unit: Unit::NanosPerCheck,
            rounds: ROUNDS,
            ours: leased(&server)?,
            other: Some(("MemoryStore", store_alone(quota))),
            target: Target::None,
        },
    ])
}

/// Measures a check by one task, and the share that a lease answered.
fn checks(runtime: &Runtime, limiter: &Limiter) -> Result<(f64, f64), Error> {
    runtime.block_on(async {
        let attributes = Attributes::from([("ip", "203.0.113.7")]);
        // A key is leased once it is seen to be hot.
        let end = Instant::now() + Duration::from_millis(300);
        while Instant::now() < end {
            let _ = limiter.check(&attributes).await?;
        }
        let (mut leased, start) = (0_u32, Instant::now());
        for _ in 0..CHECKS {
            let verdict = limiter.check(&attributes).await?;
            if !verdict.is_allowed() {
                return Err("denied".into());
            }
            leased += u32::from(verdict.mode() == Mode::Lease);
        }
        let nanos = start.elapsed().as_nanos() as f64;
        Ok((nanos / f64::from(CHECKS), f64::from(leased) / f64::from(CHECKS)))
    })
}

fn store_alone(quota: Quota) -> Run {
    let store = MemoryStore::new();
    Box::new(move || {
        let start = Instant::now();
        for _ in 0..CHECKS {
            let charge = Charge::new("default:api:ip=203.0.113.7", &quota, Cost::ONE);
            let decision = store.decide_one(Operation::Spend, &charge, SystemClock.now())?;
            if !decision.is_allow() {
                return Err("denied".into());
            }
        }
        Ok(start.elapsed().as_nanos() as f64 / f64::from(CHECKS))
    })
}
