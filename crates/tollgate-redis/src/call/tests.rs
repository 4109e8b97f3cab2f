use std::num::NonZeroU16;

use tollgate_core::{Cost, Quota, Ticket};

use super::*;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
const TICKET: Ticket = Ticket::new(0x2a);

fn bucket() -> Quota {
    Quota::new("1/s".parse().unwrap(), 5).unwrap()
}

fn words(step: Step, charges: &[Charge<'_>]) -> String {
    let call = Call {
        step,
        charges,
        prefix: "tollgate",
        max_clock_skew: Duration::from_nanos(1_500),
        now: Some(NOW),
    };
    assert!(call.is_supported());
    let command = call.command(&Script::new(), Form::Sha);
    let args = command.args_iter().map(|arg| match arg {
        redis::Arg::Simple(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        _ => panic!("a cursor"),
    });
    args.skip(2).collect::<Vec<_>>().join("|")
}

#[test]
fn a_command_lists_keys_and_integers() {
    let quota = bucket();
    let shadow = Charge { shadow: true, ..Charge::new("b", &quota, Cost::new(u64::MAX)) };
    let charges = [Charge::new("a:b {c}", &quota, Cost::new(2)), shadow];
    assert_eq!(
        words(Step::Apply(Operation::Spend), &charges),
        "2|tollgate:a:b {c}|tollgate:b|spend|1700000000000000|1\
         |token_bucket|0|2|1|1000000|1|5|token_bucket|1|9007199254740991|1|1000000|1|5"
    );
}

#[test]
fn each_algorithm_has_arguments_of_its_own() {
    let rate = "20/min".parse().unwrap();
    let cells = NonZeroU16::new(7).unwrap();
    for (quota, expected) in [
        (Quota::leaky_bucket(rate, 3), "leaky_bucket|0|1|1|3000000|1|3"),
        (Quota::fixed_window(rate), "fixed_window|0|1|20|60000000"),
        // A seventh of a minute, rounded up.
        (Quota::sliding_window(rate, cells), "sliding_window|0|1|20|8571429|8"),
        (Quota::sliding_log(rate), "sliding_log|0|1|20|1|60000000"),
        (
            Quota::concurrency(4, Duration::from_secs(30)),
            "concurrency|0|1|4|30000000|0000000000000000000000000000002a",
        ),
    ] {
        let quota = quota.unwrap();
        let charges = [Charge::new("a", &quota, Cost::ONE).with_ticket(TICKET)];
        assert_eq!(
            words(Step::Apply(Operation::Renew), &charges),
            format!("1|tollgate:a|renew|1700000000000000|1|{expected}")
        );
    }
    let slots = Quota::concurrency(4, Duration::from_secs(30)).unwrap();
    let charges = [Charge::new("a", &slots, Cost::ONE)];
    assert!(
        words(Step::Apply(Operation::Look), &charges).ends_with("|concurrency|0|1|4|30000000|")
    );
}

#[test]
fn a_record_has_its_key_after_that_of_the_bucket_and_its_duration_after_the_charge() {
    let quota = bucket();
    let one = |key| Charge::new(key, &quota, Cost::ONE);
    let charges = [one("a").with_ticket(TICKET), one("b")];
    let hex = "0000000000000000000000000000002a";
    let quota = "1|1000000|1|5";
    let keys = format!("3|tollgate:a|{{tollgate:a}}:ticket:{hex}|tollgate:b");
    let ttl = Duration::from_secs(9);
    for (step, name, durations) in [
        (Step::Apply(Operation::Reserve { ttl }), "reserve", ["9000000", ""]),
        (Step::Apply(Operation::Refund), "refund", ["600000000", ""]),
        (Step::Apply(Operation::Settle), "settle", ["0", ""]),
        (
            Step::Undo { since: NOW, reserved: true },
            "undo",
            ["0|1700000000000000", "|1700000000000000"],
        ),
    ] {
        assert_eq!(
            words(step, &charges),
            format!(
                "{keys}|{name}|1700000000000000|1|token_bucket|0|1|{quota}|{}\
                 |token_bucket|0|1|{quota}|{}",
                durations[0], durations[1]
            )
        );
    }
    assert_eq!(
        words(Step::Undo { since: NOW, reserved: false }, &charges[..1]),
        format!("1|tollgate:a|undo|1700000000000000|1|token_bucket|0|1|{quota}||1700000000000000")
    );
}
