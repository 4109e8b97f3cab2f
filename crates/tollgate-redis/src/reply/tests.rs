use tollgate_core::Operation;

use super::*;
use crate::call::Step;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn bucket() -> Quota {
    Quota::new("1/s".parse().unwrap(), 5).unwrap()
}

fn call<'a>(charges: &'a [Charge<'a>]) -> Call<'a> {
    Call {
        step: Step::Apply(Operation::Spend),
        charges,
        prefix: "tollgate",
        max_clock_skew: Duration::from_secs(1),
        now: Some(NOW),
    }
}

fn reply(numbers: &[i64]) -> Value {
    Value::Array(numbers.iter().copied().map(Value::Int).collect())
}

fn allow(limit: u32, remaining: u32, reset_after: Duration) -> Allow {
    Allow { limit, remaining, reset_after, delay: Duration::ZERO }
}

#[test]
fn a_reply_becomes_the_decisions_of_core() {
    let (bucket, slots) = (bucket(), Quota::concurrency(3, Duration::from_secs(9)).unwrap());
    let leaky = Quota::leaky_bucket("1/s".parse().unwrap(), 5).unwrap();
    let charges = [
        Charge::new("a", &bucket, Cost::new(2)),
        Charge::new("b", &slots, Cost::ONE),
        Charge::new("c", &leaky, Cost::ONE),
        Charge::new("d", &bucket, Cost::new(4)),
        Charge::new("e", &slots, Cost::ONE),
    ];
    let now = NOW.as_micros().cast_signed();
    let reply = reply(
        &[
            &[now][..],
            &[1, 3_000_000, now],
            &[2, 1, 9_000_000, 0],
            &[1, 2_000_000, now, 3_000_000, now + 1],
            &[0, 3_500_000, now + 1],
            &[0, 4, 8_000_000, 7],
        ]
        .concat(),
    );
    let (answers, at) = call(&charges).answers(&reply).unwrap();
    assert_eq!(at, NOW);
    assert_eq!(
        answers.iter().map(|one| one.taken).collect::<Vec<_>>(),
        [true, false, true, false, false]
    );
    let decisions: Vec<_> = answers.iter().map(|answer| answer.decision).collect();
    assert_eq!(
        decisions,
        [
            Decision::Allow(allow(5, 3, Duration::from_secs(2))),
            Decision::Allow(allow(3, 2, Duration::from_secs(9))),
            Decision::Allow(Allow {
                delay: Duration::from_micros(2_000_001),
                ..allow(5, 2, Duration::from_secs(3))
            }),
            Decision::Deny(Deny {
                limit: 5,
                remaining: 3,
                reset_after: Duration::from_micros(1_500_001),
                retry_after: Duration::from_micros(500_001),
            }),
            // More is used than there is since the quota was lowered.
            Decision::Deny(Deny {
                limit: 3,
                remaining: 0,
                reset_after: Duration::from_secs(8),
                retry_after: Duration::from_micros(7),
            }),
        ]
    );
    assert_eq!(call(&charges).decisions(&reply).unwrap()[..], decisions[..]);
}

#[test]
fn where_there_is_nothing_to_settle_the_decision_is_a_denial_that_time_does_not_change() {
    let (bucket, window) = (bucket(), Quota::fixed_window("5/s".parse().unwrap()).unwrap());
    let charges = [Charge::new("a", &bucket, Cost::ONE), Charge::new("b", &window, Cost::ONE)];
    let now = NOW.as_micros().cast_signed();
    let reply = reply(&[now, 3, 4_000_000, now, 3, 1, 1_000_000, 0]);
    let denied = Decision::Deny(Deny {
        limit: 5,
        remaining: 4,
        reset_after: Duration::from_secs(1),
        retry_after: Duration::ZERO,
    });
    assert_eq!(call(&charges).decisions(&reply).unwrap()[..], [denied, denied]);
}

#[test]
fn a_reply_that_the_script_does_not_give_is_no_decision() {
    let quota = bucket();
    let charges = [Charge::new("a", &quota, Cost::new(2))];
    let now = NOW.as_micros().cast_signed();
    let call = call(&charges);
    assert!(call.decisions(&reply(&[now, 1, 3_000_000, now])).is_some());
    for wrong in [
        Value::Nil,
        Value::Int(1),
        Value::Array(vec![Value::Int(now), Value::Okay, Value::Int(0), Value::Int(now)]),
        reply(&[]),
        reply(&[now]),
        reply(&[now, 1, 3_000_000]),
        reply(&[now, 1, 3_000_000, now, 0]),
        reply(&[now, 1, 3_000_000, now, 1, 3_000_000, now]),
        reply(&[-1, 1, 3_000_000, now]),
        reply(&[now, 4, 3_000_000, now]),
        reply(&[now, 1, -1, now]),
        reply(&[now, 1, 3_000_000, -1]),
        // Denied, though what is left would do.
        reply(&[now, 0, 2_000_000, now]),
    ] {
        assert_eq!(call.decisions(&wrong), None, "{wrong:?}");
        assert_eq!(call.answers(&wrong), None, "{wrong:?}");
    }
}
