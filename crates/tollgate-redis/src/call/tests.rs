use tollgate_core::{Allow, Deny, Quota};

use super::*;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn quota() -> Quota {
    Quota::new("1/s".parse().unwrap(), 5).unwrap()
}

fn call<'a>(charges: &'a [Charge<'a>]) -> Call<'a> {
    Call {
        operation: Operation::Spend,
        charges,
        prefix: "tollgate",
        max_clock_skew: Duration::from_nanos(1_500),
        now: Some(NOW),
    }
}

fn reply(numbers: &[i64]) -> Value {
    Value::Array(numbers.iter().copied().map(Value::Int).collect())
}

#[test]
fn a_command_lists_keys_and_integers() {
    let quota = quota();
    let shadow = Charge { shadow: true, ..Charge::new("b", &quota, Cost::new(u64::MAX)) };
    let charges = [Charge::new("a:b {c}", &quota, Cost::new(2)), shadow];
    let command = call(&charges).command(&Script::new(), Form::Sha);
    let args: Vec<_> = command
        .args_iter()
        .map(|arg| match arg {
            redis::Arg::Simple(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            _ => panic!("a cursor"),
        })
        .skip(2)
        .collect();
    assert_eq!(
        args.join("|"),
        "2|tollgate:a:b {c}|tollgate:b|spend|1700000000000000|1\
         |1|1000000|1|5|2|0|1|1000000|1|5|6|1"
    );
}

#[test]
fn a_reply_becomes_the_decisions_of_core() {
    let quota = quota();
    let charges = [Charge::new("a", &quota, Cost::new(2)), Charge::new("b", &quota, Cost::new(4))];
    let now = NOW.as_micros().cast_signed();
    let decisions =
        call(&charges).decisions(&reply(&[now, 1, 3_000_000, now, 0, 3_500_000, now + 1])).unwrap();
    assert_eq!(
        decisions[..],
        [
            Decision::Allow(Allow {
                limit: 5,
                remaining: 3,
                reset_after: Duration::from_secs(2),
                delay: Duration::ZERO,
            }),
            Decision::Deny(Deny {
                limit: 5,
                remaining: 3,
                reset_after: Duration::from_micros(1_500_001),
                retry_after: Duration::from_micros(500_001),
            }),
        ]
    );
}

#[test]
fn a_reply_that_the_script_does_not_give_is_no_decision() {
    let quota = quota();
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
        reply(&[now, 2, 3_000_000, now]),
        reply(&[now, 1, -1, now]),
        reply(&[now, 1, 3_000_000, -1]),
        // Denied, though what is left would do.
        reply(&[now, 0, 2_000_000, now]),
    ] {
        assert_eq!(call.decisions(&wrong), None, "{wrong:?}");
    }
}
