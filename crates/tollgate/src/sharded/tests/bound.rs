//! However requests come and whatever shards they ask, no more is admitted than by the whole (G1).

use super::*;
use crate::clock::Clock;

/// A generator that gives the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

fn quotas(burst: u64) -> [Quota; 4] {
    let window = tollgate_core::Rate::new(burst, Duration::from_secs(1)).unwrap();
    [
        quota("37/s", burst),
        Quota::fixed_window(window).unwrap(),
        Quota::sliding_window(window, 20.try_into().unwrap()).unwrap(),
        Quota::sliding_log(window).unwrap(),
    ]
}

/// Asks along a random timeline, and returns when how much was admitted.
async fn admitted(
    nodes: &[Limiter],
    clock: &ManualClock,
    burst: u64,
    random: &mut Random,
    steps: u32,
) -> Vec<(Timestamp, u64)> {
    let mut admitted = Vec::new();
    for _ in 0..steps {
        let pause_us = match random.below(6) {
            0..=2 => 0,
            3 => random.below(2_000),
            4 => random.below(60_000),
            _ => random.below(1_500_000),
        };
        clock.advance(Duration::from_micros(pause_us));
        let node = &nodes[random.below(nodes.len() as u64) as usize];
        let cost = 1 + random.below((burst / 16).max(1));
        if check(node, cost).await.is_allowed() {
            admitted.push((clock.now(), cost));
        }
    }
    admitted
}

/// Whether every interval holds no more than the whole quota admits in it.
fn assert_bound(quota: &Quota, admitted: &[(Timestamp, u64)]) {
    let period_us = quota.rate().period().as_micros();
    let (units, burst) = (u128::from(quota.rate().units()), u128::from(quota.burst()));
    for (from, (start, _)) in admitted.iter().enumerate() {
        let mut sum = 0;
        for (end, cost) in &admitted[from..] {
            sum += u128::from(*cost);
            let width_us = end.saturating_since(*start).as_micros();
            let is_within = match quota.algorithm() {
                tollgate_core::Algorithm::TokenBucket => {
                    sum * period_us <= burst * period_us + units * width_us
                }
                // Windows that begin at multiples of the period.
                tollgate_core::Algorithm::FixedWindow => {
                    let window = |at: &Timestamp| u128::from(at.as_micros()) / period_us;
                    window(start) != window(end) || sum <= burst
                }
                _ => width_us >= period_us || sum <= burst,
            };
            assert!(is_within, "{quota}: {sum} within {width_us} us");
        }
    }
}

#[tokio::test]
async fn g1_shards_of_a_memory_store_admit_no_more_than_the_whole_in_any_interval() {
    let mut total = 0;
    for count in 1..=16 {
        let burst = 16 + 3 * u64::from(count) + 5;
        for whole in quotas(burst) {
            let (remote, clock) = (Remote::default(), ManualClock::new());
            let rules = [sharded("all", whole, count)];
            let nodes: Vec<_> = (0..3).map(|_| limiter(&remote, &rules, &clock)).collect();
            let mut random = Random(u64::from(count) * 31 + burst);
            let admitted = admitted(&nodes, &clock, burst, &mut random, 400).await;
            assert_bound(&whole, &admitted);
            total += admitted.len();
        }
    }
    assert!(total > 5_000, "{total}");
}

#[cfg(all(unix, feature = "redis"))]
#[tokio::test]
async fn g1_shards_on_redis_admit_no_more_than_the_whole_and_the_same_as_in_memory() {
    use tollgate_redis::{RedisStore, TimeSource};
    use tollgate_testkit::RedisServer;

    let server = RedisServer::start().unwrap();
    for count in 1..=16 {
        let burst = 16 + 3 * u64::from(count) + 5;
        for (index, whole) in quotas(burst).into_iter().enumerate() {
            let clock = ManualClock::new();
            let rules = [sharded("all", whole, count)];
            let store = RedisStore::builder(server.url())
                .prefix(format!("p{count}-{index}"))
                .time_source(TimeSource::Client)
                .timeout(Duration::from_secs(10))
                .connect()
                .await
                .unwrap();
            let builder = Limiter::builder().rules(rules.clone()).clock(clock.clone());
            let on_redis = builder.store(store).shard_seed(7).build().unwrap();
            let seed = u64::from(count) * 17 + burst;
            let steps = 120;
            let nodes = std::slice::from_ref(&on_redis);
            let by_redis = admitted(nodes, &clock, burst, &mut Random(seed), steps).await;
            assert_bound(&whole, &by_redis);

            let (remote, clock) = (Remote::default(), ManualClock::new());
            let nodes = [limiter(&remote, &rules, &clock)];
            let in_memory = admitted(&nodes, &clock, burst, &mut Random(seed), steps).await;
            assert_eq!(by_redis, in_memory, "{whole} in {count} shards");
        }
    }
}
