//! The Lua script against `tollgate_core` on random timelines: the same decisions, the same stored
//! state, and a TTL on every key (G3, G4, G5, G7, G8, G11).
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod random;

use std::time::Duration;

use redis::Commands;
use tollgate_core::{
    Bucket, Change, Charge, Cost, Decisions, Operation, Quota, Store, Timestamp, decide_together,
};
use tollgate_redis::{RedisStore, TimeSource};
use tollgate_testkit::RedisServer;

use crate::random::Random;

const RATES: [&str; 14] = [
    "1/s",
    "3/s",
    "100/s",
    "700/min",
    "5000/hour",
    "1/day",
    "5/7us",
    "1/30day",
    "1/366day",
    "999999937/s",
    "1000000000/s",
    "2591999999999937/30day",
    "1/2591999999999us",
    "1000003/1000033us",
];

const BURSTS: [u64; 8] = [1, 2, 5, 100, 3_474, 1_000_003, 123_456_789, Quota::BURST_MAX];

const SKEWS: [Duration; 4] =
    [Duration::ZERO, Duration::from_nanos(1_500), Duration::from_secs(1), Duration::MAX];

/// A store on the clock of the test, and the states that core holds for the same buckets.
struct Twins {
    store: RedisStore,
    redis: redis::Connection,
    max_clock_skew: Duration,
}

/// One bucket as core keeps it.
struct Twin {
    key: String,
    quota: Quota,
    state: Option<Bucket>,
}

impl Twins {
    async fn new(server: &RedisServer, max_clock_skew: Duration) -> Self {
        let store = RedisStore::builder(server.url())
            .time_source(TimeSource::Client)
            .max_clock_skew(max_clock_skew)
            .timeout(Duration::from_secs(10))
            .connect()
            .await
            .unwrap();
        let redis = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        Self { store, redis, max_clock_skew }
    }

    /// Applies the operation to both and compares what they decide and what they then hold.
    async fn apply(
        &mut self,
        operation: Operation,
        twins: &mut [Twin],
        charged: &[(usize, Cost, bool)],
        now: Timestamp,
        context: &str,
    ) -> Decisions {
        let charges: Vec<Charge<'_>> = charged
            .iter()
            .map(|&(index, cost, shadow)| {
                let twin = &twins[index];
                Charge { shadow, ..Charge::new(&twin.key, &twin.quota, cost) }
            })
            .collect();
        let states: Vec<_> = charged.iter().map(|&(index, ..)| twins[index].state).collect();
        let (expected, changes) =
            decide_together(operation, &charges, &states, self.max_clock_skew, now);
        let decisions = self.store.apply(operation, &charges, now).await.unwrap();
        let context = format!(
            "{context}: {operation:?} {charges:?} at {now} on {states:?} under {:?}",
            self.max_clock_skew
        );
        assert_eq!(decisions, expected, "{context}");
        drop(charges);
        for (change, &(index, ..)) in changes.into_iter().zip(charged) {
            let twin = &mut twins[index];
            match change {
                Change::Keep => {}
                Change::Store(bucket) => twin.state = Some(bucket),
                Change::Remove => twin.state = None,
            }
            let ttl = self.stored(twin, &context);
            if let (Change::Store(_), Some(ttl)) = (change, ttl) {
                assert_ttl(twin, ttl, now, &context);
            }
        }
        decisions
    }

    /// Compares the stored state with core's and returns the TTL in milliseconds.
    fn stored(&mut self, twin: &Twin, context: &str) -> Option<u64> {
        let key = format!("tollgate:{}", twin.key);
        let (fields, ttl): (Vec<(String, u64)>, i64) =
            redis::pipe().hgetall(&key).pttl(&key).query(&mut self.redis).unwrap();
        let Some(bucket) = twin.state else {
            assert_eq!((fields, ttl), (Vec::new(), -2), "{context}: {key} is not absent");
            return None;
        };
        let mut fields = fields;
        fields.sort();
        let expected = [
            ("level".to_owned(), bucket.level),
            ("scale".to_owned(), bucket.scale),
            ("ts".to_owned(), bucket.ts.as_micros()),
        ];
        assert_eq!(fields, expected, "{context}: {key}");
        assert!(ttl > 0, "{context}: {key} has TTL {ttl}");
        Some(u64::try_from(ttl).unwrap())
    }
}

/// G5: after a write the key lives at least until the bucket is full, and not much longer.
fn assert_ttl(twin: &Twin, ttl_ms: u64, now: Timestamp, context: &str) {
    let bucket = twin.state.unwrap();
    let quota = &twin.quota;
    let ticks = u128::from((quota.level_max() - bucket.level).div_ceil(quota.units_per_tick()));
    let full_at = u128::from(bucket.ts.as_micros()) + ticks * u128::from(quota.tick_us());
    let full_ms = (full_at - u128::from(now.as_micros())).div_ceil(1_000);
    let (ttl_ms, rounding_ms) = (u128::from(ttl_ms), full_ms >> 51);
    assert!(ttl_ms >= full_ms, "{context}: TTL {ttl_ms} ms, full after {full_ms} ms");
    assert!(ttl_ms <= full_ms + 5_000 + rounding_ms, "{context}: TTL {ttl_ms} ms, {full_ms} ms");
}

fn random_quota(random: &mut Random) -> Quota {
    loop {
        let rate = RATES[random.below(RATES.len())].parse().unwrap();
        if let Ok(quota) = Quota::new(rate, BURSTS[random.below(BURSTS.len())]) {
            return quota;
        }
    }
}

fn random_cost(random: &mut Random, twin: &Twin) -> Cost {
    let burst = u64::from(twin.quota.burst());
    let tokens = twin.state.map_or(burst, |bucket| bucket.level / bucket.scale);
    Cost::new(match random.below(10) {
        0 => 0,
        1..=3 => 1,
        4 => tokens,
        5 => tokens + 1,
        6 => burst,
        7 => burst + 1,
        8 => [u64::MAX, 1 << 53, (1 << 53) + 1][random.below(3)],
        _ => random.up_to(burst),
    })
}

/// Where time goes next: stands, creeps, jumps to where a denial ends or a bucket is full, or
/// steps back within the skew, just beyond it, and far.
fn random_time(
    random: &mut Random,
    now: Timestamp,
    last: &Decisions,
    quota: &Quota,
    max_clock_skew: Duration,
) -> Timestamp {
    let micros = Duration::from_micros;
    let forward = |duration| now.saturating_add(duration);
    let back = |duration: Duration| {
        Timestamp::EPOCH
            .saturating_add(now.saturating_since(Timestamp::EPOCH).saturating_sub(duration))
    };
    match random.below(16) {
        0..=2 => now,
        3 => forward(micros(1)),
        4 => forward(micros(random.up_to(2 * u64::from(quota.tick_us())))),
        5 => forward(micros(random.up_to(10_000_000))),
        6 => forward(last.iter().filter_map(|d| d.retry_after()).max().unwrap_or_default()),
        7 => {
            let retry_after = last.iter().filter_map(|d| d.retry_after()).max().unwrap_or_default();
            forward(retry_after.saturating_sub(micros(1)))
        }
        8 => forward(last.iter().map(|d| d.reset_after()).max().unwrap_or_default()),
        9 => forward(quota.fill_time() / u32::try_from(1 + random.below(50)).unwrap()),
        10 => back(micros(1)),
        11 => back(max_clock_skew.min(Duration::from_secs(3_600))),
        12 => back(max_clock_skew.saturating_add(micros(1)).min(Duration::from_secs(3_600))),
        13 => back(micros(random.up_to(2_000_000))),
        14 => back(micros(random.up_to(1 << 50))),
        _ => [Timestamp::EPOCH, Timestamp::from_micros(1_700_000_000_000_000), Timestamp::MAX]
            [random.below(3)],
    }
}

/// Runs one timeline on buckets of its own, short enough that no key of it expires meanwhile.
async fn run_timeline(twins: &mut Twins, seed: u64, steps: usize) {
    let mut random = Random::new(seed);
    let mut buckets: Vec<Twin> = (0..5)
        .map(|index| Twin {
            key: format!("{seed}:key={index}"),
            quota: random_quota(&mut random),
            state: None,
        })
        .collect();
    let mut now = Timestamp::from_micros(1_700_000_000_000_000);
    let mut last = Decisions::new();
    for step in 0..steps {
        let changed = random.below(buckets.len());
        if random.below(8) == 0 {
            buckets[changed].quota = random_quota(&mut random);
        }
        let quota = buckets[changed].quota;
        now = random_time(&mut random, now, &last, &quota, twins.max_clock_skew);
        let operation = match random.below(10) {
            0 => Operation::Look,
            1 | 2 => Operation::Refund,
            _ => Operation::Spend,
        };
        let first = random.below(buckets.len());
        let charged: Vec<_> = (0..1 + random.below(4))
            .map(|offset| {
                let index = (first + offset) % buckets.len();
                let cost = random_cost(&mut random, &buckets[index]);
                (index, cost, random.below(4) == 0)
            })
            .collect();
        let context = format!("seed {seed} step {step}");
        last = twins.apply(operation, &mut buckets, &charged, now, &context).await;
    }
}

#[tokio::test]
async fn g8_lua_and_core_decide_and_store_the_same_on_random_timelines() {
    let server = RedisServer::start().unwrap();
    for (index, max_clock_skew) in SKEWS.into_iter().enumerate() {
        let mut twins = Twins::new(&server, max_clock_skew).await;
        for timeline in 0..60 {
            run_timeline(&mut twins, (index as u64) << 32 | timeline, 100).await;
        }
    }
}

/// Any state that the script accepts, not only those that it would write itself.
#[tokio::test]
async fn g11_lua_carries_any_state_over_to_any_quota_as_core_does() {
    let server = RedisServer::start().unwrap();
    let mut twins = Twins::new(&server, Duration::from_secs(1)).await;
    let mut random = Random::new(11);
    let now = Timestamp::from_micros(1_700_000_000_000_000);
    let key = "carried";
    for step in 0..4_000 {
        let scale = match random.below(4) {
            0 => 1 << 52,
            1 => (1 << 52) - 1 - random.up_to(1_000),
            2 => {
                let bits = random.below(53);
                1 + random.up_to((1 << bits) - 1)
            }
            _ => random_quota(&mut random).scale(),
        };
        let level = match random.below(4) {
            0 => (1 << 53) - 1 - random.up_to(1_000),
            1 => scale - 1,
            _ => random.up_to((1 << 53) - 1),
        };
        let ts = Timestamp::from_micros(now.as_micros() - random.up_to(2));
        let () = twins
            .redis
            .hset_multiple(
                format!("tollgate:{key}"),
                &[("level", level), ("scale", scale), ("ts", ts.as_micros())],
            )
            .unwrap();
        let () = twins.redis.expire(format!("tollgate:{key}"), 60).unwrap();
        let mut buckets = [Twin {
            key: key.to_owned(),
            quota: random_quota(&mut random),
            state: Some(Bucket { level, scale, ts }),
        }];
        let cost = random_cost(&mut random, &buckets[0]);
        let context = format!("step {step}");
        let charged = [(0, cost, false)];
        twins.apply(Operation::Spend, &mut buckets, &charged, now, &context).await;
    }
}

#[tokio::test]
async fn g5_the_longest_time_until_full_still_has_a_ttl() {
    let server = RedisServer::start().unwrap();
    let mut twins = Twins::new(&server, Duration::MAX).await;
    let slowest = Quota::new("1/30day".parse().unwrap(), Quota::BURST_MAX).unwrap();
    // 2^53 ticks of a second is the most that core lets a bucket hold.
    let fullest = Quota::new("1/4194304s".parse().unwrap(), Quota::BURST_MAX).unwrap();
    assert_eq!(fullest.tick_us(), 1_000_000);
    for (key, quota) in [("slowest", slowest), ("fullest", fullest)] {
        let mut buckets = [Twin { key: key.to_owned(), quota, state: None }];
        let charged = [(0, Cost::new(Quota::BURST_MAX), false)];
        let decisions =
            twins.apply(Operation::Spend, &mut buckets, &charged, Timestamp::MAX, key).await;
        assert_eq!(decisions[0].reset_after(), quota.fill_time());
        // The same bucket, seen from 285 years before it was written.
        let charged = [(0, Cost::ONE, false)];
        twins.apply(Operation::Refund, &mut buckets, &charged, Timestamp::EPOCH, key).await;
    }
}
