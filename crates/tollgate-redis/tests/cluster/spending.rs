//! Requests over several slots spend in all of them or in none (G7).

use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_core::{
    Algorithm, Charge, Cost, Decision, MAX_CLOCK_SKEW_DEFAULT, Operation, Quota, State, Store,
    Stored, Ticket, decide_together,
};
use tollgate_testkit::{conformance, timeline};

use crate::support::{NOW, PATIENT, SHARED, apply, builder, keys, one, per_day, remaining, store};

#[tokio::test]
async fn g8_every_worked_timeline_is_reproduced() {
    let store = store(&SHARED, "worked").await;
    for file in timeline::ALL {
        for timeline in &timeline::parse(file).unwrap() {
            conformance::replay(&store, timeline)
                .await
                .unwrap_or_else(|failure| panic!("{}: {failure}", timeline.name()));
        }
    }
}

#[tokio::test]
async fn g7_what_other_slots_took_is_given_back_when_one_denies() {
    let rate = "5/s".parse().unwrap();
    let quotas = [
        per_day(5),
        Quota::leaky_bucket(rate, 5).unwrap(),
        Quota::fixed_window(rate).unwrap(),
        Quota::sliding_window(rate, Algorithm::CELLS_DEFAULT).unwrap(),
        Quota::sliding_log(rate).unwrap(),
        Quota::concurrency(5, Duration::from_secs(30)).unwrap(),
    ];
    let reserve = Operation::Reserve { ttl: Duration::from_secs(30) };
    for (index, wide) in quotas.iter().enumerate() {
        for (name, operation) in [("spend", Operation::Spend), ("reserve", reserve)] {
            let prefix = format!("denies-{name}-{index}");
            let store = store(&SHARED, &prefix).await;
            let keys = keys(&SHARED, &prefix);
            let narrow = per_day(1);
            let charges = [
                one(&keys[0], wide),
                one(&keys[1], wide).with_shadow(true),
                one(&keys[2], &narrow),
            ];
            let allowed = apply(&store, operation, &charges).await;
            let left: Vec<_> = allowed.iter().map(Decision::remaining).collect();
            assert_eq!(left, [4, 4, 0], "{name} {wide}");

            let others = charges.map(|charge| charge.with_ticket(Ticket::new(2)));
            let denied = apply(&store, operation, &others).await;
            let said: Vec<_> = denied.iter().map(|one| (one.is_allow(), one.remaining())).collect();
            // A shadow charge counts for itself.
            assert_eq!(said, [(true, 4), (true, 3), (false, 0)], "{name} {wide}");
            assert_eq!(remaining(&store, &keys[0], wide).await, 4, "{name} {wide}");
            // What was given back is not there to be settled.
            let settled = apply(&store, Operation::Settle, &others[..1]).await;
            assert!(settled[0].is_deny(), "{name} {wide}");
            assert_eq!(settled[0].remaining(), 4, "{name} {wide}");
        }
    }
}

#[tokio::test]
async fn a_lease_that_was_held_before_is_not_given_back_when_another_slot_denies() {
    let store = store(&SHARED, "held").await;
    let keys = keys(&SHARED, "held");
    let slots = Quota::concurrency(2, Duration::from_secs(30)).unwrap();
    let narrow = per_day(1);
    let charges = [one(&keys[0], &slots), one(&keys[1], &narrow)];
    let allowed = apply(&store, Operation::Spend, &charges).await;
    assert!(allowed.iter().all(Decision::is_allow));
    let denied = apply(&store, Operation::Spend, &charges).await;
    assert!(denied[0].is_allow() && denied[1].is_deny());
    assert_eq!(remaining(&store, &keys[0], &slots).await, 1);
}

#[tokio::test]
async fn operations_of_each_slot_are_answered_in_the_order_of_the_charges() {
    let store = store(&SHARED, "order").await;
    let quotas: Vec<_> = (1..=24).map(per_day).collect();
    let keys: Vec<_> = (1..=24).map(|number| format!("key={number}")).collect();
    let charges: Vec<_> = keys.iter().zip(&quotas).map(|(key, quota)| one(key, quota)).collect();
    let left =
        |decisions: &[Decision]| decisions.iter().map(Decision::remaining).collect::<Vec<_>>();
    assert_eq!(left(&apply(&store, Operation::Look, &charges).await), (1..=24).collect::<Vec<_>>());
    assert_eq!(left(&apply(&store, Operation::Spend, &charges).await), (0..24).collect::<Vec<_>>());
    let refunded = apply(&store, Operation::Refund, &charges).await;
    assert_eq!(left(&refunded), (1..=24).collect::<Vec<_>>());
    // Under a ticket it is made once.
    let again = [Charge { cost: Cost::new(24), ticket: None, ..charges[23] }];
    assert_eq!(left(&apply(&store, Operation::Spend, &again).await), [0]);
    assert_eq!(left(&apply(&store, Operation::Refund, &charges).await)[23], 0);
}

#[tokio::test]
async fn g8_requests_over_slots_are_decided_as_core_decides_them() {
    let store = store(&SHARED, "core").await;
    let rate = "20/min".parse().unwrap();
    let quotas = [
        per_day(20),
        Quota::fixed_window(rate).unwrap(),
        Quota::concurrency(20, Duration::from_secs(30)).unwrap(),
        Quota::new(rate, 7).unwrap(),
        Quota::new(rate, 20).unwrap(),
        Quota::fixed_window("9/hour".parse().unwrap()).unwrap(),
    ];
    let keys: Vec<_> = (0..quotas.len()).map(|number| format!("key={number}")).collect();
    let mut states: Vec<Option<State>> = vec![None; quotas.len()];
    let (mut now, mut denials, mut allowed) = (NOW, 0, 0);
    for step in 0_u64..1_500 {
        // Some numbers that look random.
        let mixed = step.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ step;
        let pick = |at: u32, below: u64| (mixed >> at) % below;
        now = now.saturating_add(Duration::from_micros(pick(40, 1_200_000)));
        let first = pick(3, 6) as usize;
        let chosen: Vec<_> =
            (0..2 + pick(7, 3) as usize).map(|offset| (first + offset) % 6).collect();
        let charges: Vec<_> = chosen
            .iter()
            .map(|&index| {
                Charge::new(&keys[index], &quotas[index], Cost::new(pick(11 + index as u32, 4)))
                    .with_ticket(Ticket::new(u128::from(step)))
                    .with_shadow(pick(17 + index as u32, 5) == 0)
            })
            .collect();
        let stored: Vec<_> = chosen
            .iter()
            .map(|&index| Stored { state: states[index].as_ref(), record: None })
            .collect();
        let effects =
            decide_together(Operation::Spend, &charges, &stored, MAX_CLOCK_SKEW_DEFAULT, now);
        let decisions = store.apply(Operation::Spend, &charges, now).await.unwrap();
        assert_eq!(decisions, effects.decisions, "step {step}: {charges:?}");
        match decisions.iter().all(Decision::is_allow) {
            true => allowed += 1,
            false => denials += 1,
        }
        for (change, index) in effects.changes.into_iter().zip(chosen) {
            change.apply(&mut states[index]);
        }
    }
    assert!(denials > 300 && allowed > 300, "{denials} denied, {allowed} allowed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g7_overlapping_requests_of_many_callers_spend_what_was_allowed() {
    let store = Arc::new(store(&SHARED, "many").await);
    let rate = "400/day".parse().unwrap();
    let quotas = Arc::new([
        per_day(300),
        Quota::fixed_window(rate).unwrap(),
        Quota::sliding_log(rate).unwrap(),
        Quota::sliding_window(rate, Algorithm::CELLS_DEFAULT).unwrap(),
        Quota::concurrency(500, Duration::from_secs(30)).unwrap(),
        per_day(1_000),
    ]);
    let tasks: Vec<_> = (0..32_usize)
        .map(|task| {
            let (store, quotas) = (Arc::clone(&store), Arc::clone(&quotas));
            tokio::spawn(async move {
                let mut spent = [0; 6];
                for call in 0..40 {
                    let ticket = Ticket::new((task as u128) << 64 | call);
                    let chosen = [0, 1, 2].map(|step| (task + step * (1 + task % 2)) % 6);
                    let keys = chosen.map(|index| format!("key={index}"));
                    let charges: Vec<_> = (1..)
                        .zip(chosen)
                        .zip(&keys)
                        .map(|((cost, index), key)| {
                            Charge::new(key, &quotas[index], Cost::new(cost)).with_ticket(ticket)
                        })
                        .collect();
                    let decisions = apply(&store, Operation::Spend, &charges).await;
                    if decisions.iter().all(Decision::is_allow) {
                        for (charge, index) in charges.iter().zip(chosen) {
                            spent[index] += charge.cost.units();
                        }
                    }
                }
                spent
            })
        })
        .collect();
    let mut spent = [0; 6];
    for task in tasks {
        for (sum, of_task) in spent.iter_mut().zip(task.await.unwrap()) {
            *sum += of_task;
        }
    }
    for (index, (quota, spent)) in quotas.iter().zip(spent).enumerate() {
        let left = remaining(&store, &format!("key={index}"), quota).await;
        assert_eq!(u64::from(quota.burst() - left), spent, "{quota}");
    }
    assert!(spent.iter().sum::<u64>() < 32 * 40 * 6, "{spent:?}");
}

#[tokio::test]
async fn g7_a_call_that_is_dropped_is_applied_as_a_whole() {
    let store = Arc::new(store(&SHARED, "dropped").await);
    let keys = keys(&SHARED, "dropped");
    let quota = per_day(1_000);
    for round in 1..=20 {
        let call = {
            let (store, keys) = (Arc::clone(&store), keys.clone());
            tokio::spawn(async move {
                let charges = keys.each_ref().map(|key| one(key, &quota));
                apply(&store, Operation::Spend, &charges).await
            })
        };
        tokio::task::yield_now().await;
        call.abort();
        assert!(call.await.is_err(), "it was under way");
        let start = Instant::now();
        loop {
            let mut left = Vec::new();
            for key in &keys {
                left.push(remaining(&store, key, &quota).await);
            }
            if left == [1_000 - round; 3] {
                break;
            }
            assert!(start.elapsed() < PATIENT, "round {round}: {left:?}");
        }
    }
}

#[tokio::test]
async fn keys_whose_records_would_be_elsewhere_are_refused() {
    let store = builder(&SHARED, "braces").connect().await.unwrap();
    let quota = per_day(5);
    let reserve = Operation::Reserve { ttl: Duration::from_secs(30) };
    for key in ["{user}:a", "plain", "a{b"] {
        let reserved = apply(&store, reserve, &[one(key, &quota)]).await;
        assert_eq!(reserved[0].remaining(), 4);
        let settled = apply(&store, Operation::Settle, &[one(key, &quota)]).await;
        assert!(settled[0].is_allow(), "{key}");
    }
    let error = store.apply(reserve, &[one("a}b", &quota)], NOW).await.unwrap_err();
    assert!(error.is_invalid());
    assert!(error.to_string().contains("escape it as %7D"), "{error}");
    assert!(apply(&store, Operation::Spend, &[one("a}b", &quota)]).await[0].is_allow());
}
