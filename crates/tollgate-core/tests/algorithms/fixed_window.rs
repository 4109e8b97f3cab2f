//! The fixed window: the limit holds in each aligned window, and twice of it across a boundary.

use proptest::prelude::*;
use tollgate_core::{Cost, Quota, Timestamp};

use crate::cases;
use crate::run::Run;
use crate::strategies::{Move, fixed_windows, forward, sizes, starts, steps};

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn an_aligned_window_admits_what_it_has_room_for_and_no_interval_twice_the_limit(
        quota in fixed_windows(),
        start in starts(),
        steps in steps(forward(), sizes()),
    ) {
        let limit = u64::from(quota.burst());
        let period_us = u64::try_from(quota.rate().period().as_micros()).unwrap();
        let mut run = Run::new(quota, start);
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        for (moved, size) in steps {
            run.advance(moved);
            let (cost, now_us) = (run.cost(size), run.now.as_micros());
            let in_window = admitted.iter().filter(|(at, _)| at / period_us == now_us / period_us);
            let units = in_window.map(|(_, cost)| cost).sum::<u64>() + cost.units();
            let has_room = cost.is_zero() || units <= limit;
            prop_assert_eq!(run.check(cost).0.is_allow(), has_room);
            if has_room {
                admitted.push((now_us, cost.units()));
            }
        }
        for (first, (from, _)) in admitted.iter().enumerate() {
            let within = admitted[first..].iter().take_while(|(at, _)| at - from < period_us);
            let units: u64 = within.map(|(_, cost)| cost).sum();
            prop_assert!(units <= 2 * limit, "{units} units from {from} under {quota}");
        }
    }
}

#[test]
fn twice_the_limit_passes_within_a_microsecond_across_a_boundary() {
    let quota = Quota::fixed_window("20/min".parse().unwrap()).unwrap();
    let mut run = Run::new(quota, Timestamp::from_micros(1_700_000_000_000_000));
    run.advance(Move::ToBoundary(1, -1));
    for _ in 0..2 {
        assert!(run.check(Cost::new(20)).0.is_allow());
        assert!(run.check(Cost::ONE).0.is_deny());
        run.advance(Move::Micro);
    }
}
