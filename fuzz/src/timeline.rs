//! Files of timelines, and what the memory store and the exact model make of them (G8).

use tollgate_core::{Charge, Operation, Timestamp};
use tollgate_memory::MemoryStore;
use tollgate_testkit::timeline::{self, Step, Timeline};
use tollgate_testkit::{Answer, Model};

/// Enough for any course of events; more would be a test of patience.
const STEPS_MAX: usize = 100;

/// Checks that a file is refused with a reason, or that the store answers its requests as the model
/// does, whatever the file expects.
pub fn check(data: &[u8]) {
    match timeline::parse(&String::from_utf8_lossy(data)) {
        Ok(timelines) => timelines.iter().take(8).for_each(check_timeline),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn check_timeline(timeline: &Timeline) {
    let Some(quota) = timeline.quota() else {
        return assert!(timeline.steps().is_empty());
    };
    let mut quota = *quota;
    let (mut model, store) = (Model::default(), MemoryStore::new());
    for (index, step) in timeline.steps().iter().take(STEPS_MAX).enumerate() {
        match *step {
            Step::SetQuota(changed) => quota = changed,
            Step::Request { at, operation, ticket, cost, .. } => {
                let now = timeline.start().saturating_add(at);
                let charge = Charge { ticket, ..Charge::new("key", &quota, cost) };
                let expected = model.apply(operation, &charge, now);
                let got = ask(&store, operation, &charge, now);
                assert_eq!(got, expected, "step {index} of {timeline:?}");
            }
        }
    }
}

fn ask(store: &MemoryStore, operation: Operation, charge: &Charge<'_>, now: Timestamp) -> Answer {
    let judges_cost =
        matches!(operation, Operation::Spend | Operation::Look | Operation::Reserve { .. });
    if judges_cost && !charge.quota.admits(charge.cost) {
        return Answer::Impossible;
    }
    match store.decide_one(operation, charge, now) {
        Ok(decision) => Answer::from(decision),
        Err(error) => panic!("the store failed: {error}"),
    }
}
