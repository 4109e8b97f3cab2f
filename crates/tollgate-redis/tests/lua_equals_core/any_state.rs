//! Any state that the script accepts, not only those that it would write itself.

use std::time::Duration;

use tollgate_core::sliding_window::{Cell, Cells};
use tollgate_core::{Bucket, Operation, Quota, State, Timestamp};
use tollgate_testkit::RedisServer;

use crate::random::Random;
use crate::timeline::{Family, START, random_quota};
use crate::twins::{Charged, Twin, Twins};

#[tokio::test]
async fn g11_lua_carries_any_level_over_to_any_quota_as_core_does() {
    let server = RedisServer::start().unwrap();
    let mut twins = Twins::new(&server, Duration::from_secs(1)).await;
    let mut random = Random::new(11);
    let mut buckets = [Twin::new("carried", random_quota(&mut random, Family::Buckets))];
    for step in 0..4_000 {
        let scale = match random.below(4) {
            0 => 1 << 52,
            1 => (1 << 52) - 1 - random.up_to(1_000),
            2 => {
                let bits = random.below(53);
                1 + random.up_to((1 << bits) - 1)
            }
            _ => random_quota(&mut random, Family::Buckets).scale(),
        };
        let level = match random.below(4) {
            0 => (1 << 53) - 1 - random.up_to(1_000),
            1 => scale - 1,
            _ => random.up_to((1 << 53) - 1),
        };
        let ts = Timestamp::from_micros(START.as_micros() - random.up_to(2));
        let key = buckets[0].bucket_key();
        let () = redis::pipe()
            .hset_multiple(&key, &[("level", level), ("scale", scale), ("ts", ts.as_micros())])
            .expire(&key, 60)
            .query(&mut twins.redis)
            .unwrap();
        buckets[0].quota = random_quota(&mut random, Family::Buckets);
        buckets[0].state = Some(State::Bucket(Bucket { level, scale, ts }));
        let burst = u64::from(buckets[0].quota.burst());
        let cost = random.of(&[0, 1, burst, burst + 1, burst / 2]);
        let charged = [Charged::new(0, cost)];
        let context = format!("step {step}");
        twins.apply(Operation::Spend, &mut buckets, &charged, START, &context).await;
    }
}

/// Puts cells where the script finds them, the entries numbered from `head`.
fn put(redis: &mut redis::Connection, key: &str, cells: &Cells, head: u64) {
    let used: u64 = cells.spent().map(|cell| cell.units).sum();
    let tail = head + cells.spent().len() as u64 - 1;
    let meta = [
        ("width", cells.width_us),
        ("ts", cells.ts.as_micros()),
        ("used", used),
        ("head", head),
        ("tail", tail),
    ];
    let entries: Vec<_> = (head..)
        .zip(cells.spent())
        .map(|(number, cell)| (number, format!("{}:{}", cell.index, cell.units)))
        .collect();
    let () = redis::pipe()
        .del(key)
        .hset_multiple(key, &meta)
        .hset_multiple(key, &entries)
        .expire(key, 60)
        .query(redis)
        .unwrap();
}

fn random_cells(random: &mut Random, quota: &Quota, count: usize) -> Cells {
    let width_us = random.of(&[1, 1, 50_000, 3_000_000, 8_571_429]);
    let ts = Timestamp::from_micros(START.as_micros() + random.up_to(2_000_000) - 1_000_000);
    let newest = ts.as_micros() / width_us;
    let most = u64::try_from(quota.fill_time().as_micros()).unwrap() / width_us / count as u64;
    let mut index = newest - random.up_to(1);
    let mut spent: Vec<Cell> = (0..count)
        .map(|_| {
            let cell = Cell { index, units: 1 + random.up_to(3) };
            index -= 1 + random.up_to(most.saturating_mul(2));
            cell
        })
        .collect();
    spent.reverse();
    Cells::new(width_us, ts, spent)
}

#[tokio::test]
async fn lua_reads_drops_and_converts_thousands_of_entries_as_core_does() {
    let server = RedisServer::start().unwrap();
    let mut twins = Twins::new(&server, Duration::from_secs(1)).await;
    let mut random = Random::new(12);
    let mut buckets = [Twin::new("entries", random_quota(&mut random, Family::Cells))];
    for step in 0..400 {
        let limit = random.of(&[1_u64, 10, 1_000, 10_000]);
        let period = random.of(&["7ms", "1s", "90s", "1day"]);
        let rate = format!("{limit}/{period}").parse().unwrap();
        let quota = match random.below(2) {
            0 => Quota::sliding_log(rate).unwrap(),
            _ => Quota::sliding_window(rate, random.of(&[1, 20, 100]).try_into().unwrap()).unwrap(),
        };
        let count = random.of(&[1, 2, 5, 19, 20, 21, 500, 999, 1_000, 1_001, 9_999, 10_000]);
        let cells = random_cells(&mut random, &quota, count);
        let head = random.of(&[1, 7, (1 << 53) - 20_001]);
        put(&mut twins.redis, &buckets[0].bucket_key(), &cells, head);
        let used: u64 = cells.spent().map(|cell| cell.units).sum();
        buckets[0].quota = quota;
        buckets[0].state = Some(State::Cells(Box::new(cells)));
        for again in 0..3 {
            let cost = random.of(&[1, limit, limit / 2 + 1, used / 2, used, used + 1]);
            let operation = random.of(&[
                Operation::Spend,
                Operation::Look,
                Operation::Refund,
                Operation::Spend,
            ]);
            let now =
                Timestamp::from_micros(START.as_micros() + random.up_to(4_000_000) - 2_000_000);
            let context = format!("step {step}.{again}");
            let charged = [Charged::new(0, cost)];
            twins.apply(operation, &mut buckets, &charged, now, &context).await;
        }
    }
}
