//! The laws of the token bucket, on random quotas and timelines: one file for each guarantee.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]
#![allow(unreachable_pub, reason = "the modules of a test are its own")]

mod g11_quota;
mod g1_bound;
mod g2_retry;
mod g3_denials;
mod g4_clock;
mod g5_expiry;
mod g8_model;
mod run;
mod strategies;

use std::time::Duration;

use proptest::prelude::ProptestConfig;
use tollgate_core::{Bucket, Quota};

/// Cases of some thirty steps each.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, ..ProptestConfig::default() }
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// What a bucket holds under another quota: rounded down to its scale, capped at its burst.
fn level_under(bucket: &Bucket, quota: &Quota) -> u64 {
    let level = u128::from(bucket.level) * u128::from(quota.scale()) / u128::from(bucket.scale);
    u64::try_from(level.min(u128::from(quota.level_max()))).unwrap()
}
