//! G2: `retry_after` is exact.

use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::Timestamp;

use crate::run::Run;
use crate::strategies::{actions, any_move, quotas, starts, steps};
use crate::{cases, micros};

/// The instant `after` now, unless it is beyond the last one.
fn later(now: Timestamp, after: Duration) -> Option<Timestamp> {
    let instant = now.saturating_add(after);
    (instant.saturating_since(now) == after).then_some(instant)
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn g2_a_denied_request_is_denied_a_microsecond_before_retry_after_and_allowed_at_it(
        quota in quotas(),
        start in starts(),
        steps in steps(any_move(), actions()),
    ) {
        let mut run = Run::new(quota, start);
        for (moved, action) in steps {
            run.advance(moved);
            let Some(cost) = run.carry_out(action) else { continue };
            let decision = run.check(cost).0;
            let Some(retry_after) = decision.retry_after() else { continue };
            if !run.quota.admits(cost) {
                continue;
            }
            prop_assert!(retry_after >= micros(1) && retry_after <= decision.reset_after());
            if let Some(retry) = later(run.now, retry_after) {
                let early = later(run.now, retry_after - micros(1)).unwrap();
                prop_assert!(run.ask(run.state.as_ref(), cost, early).is_deny());
                prop_assert!(run.ask(run.state.as_ref(), cost, retry).is_allow());
            }
        }
    }
}
