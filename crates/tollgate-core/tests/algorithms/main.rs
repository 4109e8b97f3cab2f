//! The laws of the other algorithms, on random quotas and timelines: one file for each guarantee.
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]
#![allow(unreachable_pub, reason = "the modules of a test are its own")]

mod fixed_window;
mod g11_quota;
mod g1_sliding;
mod g2_retry;
mod g3_denials;
mod g4_clock;
mod g5_expiry;
mod leaky_bucket;
mod run;
mod strategies;

use std::time::Duration;

use proptest::prelude::ProptestConfig;

/// Cases of some thirty steps each.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}
