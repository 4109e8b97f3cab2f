//! The Lua script against `tollgate_core` on random timelines: the same decisions, the same stored
//! state and records, and a TTL on every key (G3, G4, G5, G7, G8, G11).
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]

mod any_state;
mod random;
mod stored;
mod timeline;
mod twins;

use std::time::Duration;

use tollgate_core::{Operation, Quota, Ticket, Timestamp};
use tollgate_testkit::RedisServer;

use crate::timeline::{Family, START};
use crate::twins::{Charged, Twin, Twins};

const SKEWS: [Duration; 4] =
    [Duration::ZERO, Duration::from_nanos(1_500), Duration::from_secs(1), Duration::MAX];

const TIMELINES: u64 = 63;
const STEPS: usize = 80;

/// Over 20,000 steps.
async fn run_timelines(family: Family) {
    let server = RedisServer::start().unwrap();
    for (index, max_clock_skew) in SKEWS.into_iter().enumerate() {
        let mut twins = Twins::new(&server, max_clock_skew).await;
        for timeline in 0..TIMELINES {
            timeline::run(&mut twins, family, (index as u64) << 32 | timeline, STEPS).await;
        }
    }
}

#[tokio::test]
async fn g8_lua_and_core_agree_on_token_and_leaky_buckets() {
    run_timelines(Family::Buckets).await;
}

#[tokio::test]
async fn g8_lua_and_core_agree_on_fixed_windows() {
    run_timelines(Family::Windows).await;
}

#[tokio::test]
async fn g8_lua_and_core_agree_on_sliding_windows_and_logs() {
    run_timelines(Family::Cells).await;
}

#[tokio::test]
async fn g8_lua_and_core_agree_on_slots() {
    run_timelines(Family::Slots).await;
}

#[tokio::test]
async fn g8_lua_and_core_agree_on_rules_that_change_their_algorithm() {
    run_timelines(Family::Mixed).await;
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
        let mut buckets = [Twin::new(key, quota)];
        let charged = [Charged::new(0, Quota::BURST_MAX)];
        let decisions =
            twins.apply(Operation::Spend, &mut buckets, &charged, Timestamp::MAX, key).await;
        assert_eq!(decisions[0].reset_after(), quota.fill_time());
        // The same bucket, seen from 285 years before it was written.
        let charged = [Charged::new(0, 1)];
        twins.apply(Operation::Refund, &mut buckets, &charged, Timestamp::EPOCH, key).await;
    }
}

#[tokio::test]
async fn a_ticket_that_holds_thousands_of_slots_renews_and_gives_back_all_of_them() {
    let server = RedisServer::start().unwrap();
    let mut twins = Twins::new(&server, Duration::from_secs(1)).await;
    let quota = Quota::concurrency(Quota::SLOTS_MAX, Duration::from_secs(30)).unwrap();
    for units in [1, 2, 3, 4, 5, 511, 512, 513, 1_000, 4_097, 9_999, 10_000] {
        let mut buckets = [Twin::new(format!("slots:{units}"), quota)];
        let others = [Charged::new(0, 10_000 - units).with_ticket(Ticket::new(1))];
        let mine = [Charged::new(0, units).with_ticket(Ticket::new(2))];
        for (operation, charged, offset) in [
            (Operation::Spend, others, 0),
            (Operation::Spend, mine, 1),
            (Operation::Renew, mine, 2),
            (Operation::Spend, mine, 3),
            // A clock that stepped back shortens them all.
            (Operation::Renew, others, -10_000_000),
            (Operation::Release, mine, -9_000_000),
            (Operation::Release, others, -9_000_000),
        ] {
            let now = START.as_micros().saturating_add_signed(offset);
            let context = format!("{units} units");
            let now = Timestamp::from_micros(now);
            twins.apply(operation, &mut buckets, &charged, now, &context).await;
        }
        assert_eq!(buckets[0].state, None);
    }
}
