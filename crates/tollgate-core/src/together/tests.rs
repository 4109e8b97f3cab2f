use super::*;
use crate::quota::Quota;
use crate::ticket::Ticket;
use crate::token_bucket::MAX_CLOCK_SKEW_DEFAULT;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
const RESERVE: Operation = Operation::Reserve { ttl: Duration::from_secs(60) };

fn quota(burst: u64) -> Quota {
    Quota::new("1/s".parse().unwrap(), burst).unwrap()
}

fn decide(operation: Operation, charges: &[Charge<'_>]) -> (Decisions, SmallVec<[Change; 2]>) {
    let absent = vec![Stored::default(); charges.len()];
    let effects = decide_together(operation, charges, &absent, MAX_CLOCK_SKEW_DEFAULT, NOW);
    (effects.decisions, effects.changes)
}

/// A bucket and the record of one ticket, as a store keeps them.
#[derive(Default)]
struct Kept {
    state: Option<State>,
    record: Option<Record>,
}

impl Kept {
    fn apply(&mut self, operation: Operation, charge: Charge<'_>, now: Timestamp) -> Decision {
        let stored = Stored { state: self.state.as_ref(), record: self.record };
        let mut effects =
            decide_together(operation, &[charge], &[stored], MAX_CLOCK_SKEW_DEFAULT, now);
        effects.changes.remove(0).apply(&mut self.state);
        match effects.records.remove(0) {
            RecordChange::Keep => {}
            RecordChange::Store(record) => self.record = Some(record),
            RecordChange::Remove => self.record = None,
        }
        effects.decisions.remove(0)
    }
}

#[test]
fn g7_all_spend_when_all_are_allowed() {
    let (a, b) = (quota(5), quota(9));
    let charges = [Charge::new("a", &a, Cost::new(2)), Charge::new("b", &b, Cost::new(3))];
    let (decisions, changes) = decide(Operation::Spend, &charges);
    assert_eq!((decisions[0].remaining(), decisions[1].remaining()), (3, 6));
    assert!(changes.iter().all(|change| matches!(change, Change::Edit(_))));
}

#[test]
fn g7_none_spends_when_one_denies() {
    let (a, b) = (quota(5), quota(9));
    let charges = [Charge::new("a", &a, Cost::new(2)), Charge::new("b", &b, Cost::new(10))];
    let (decisions, changes) = decide(Operation::Spend, &charges);
    assert!(decisions[0].is_allow() && decisions[1].is_deny());
    assert_eq!((decisions[0].remaining(), decisions[1].remaining()), (5, 9));
    assert_eq!(changes[..], [Change::Keep, Change::Keep]);
}

#[test]
fn g7_holds_across_algorithms() {
    let window = Quota::fixed_window("2/min".parse().unwrap()).unwrap();
    let slots = Quota::concurrency(1, Duration::from_secs(30)).unwrap();
    let bucket = quota(5);
    let charges = |cost| {
        [
            Charge::new("a", &window, Cost::new(cost)),
            Charge::new("b", &slots, Cost::ONE).with_ticket(Ticket::new(1)),
            Charge::new("c", &bucket, Cost::new(cost)),
        ]
    };
    let (decisions, changes) = decide(Operation::Spend, &charges(3));
    let said: Vec<_> = decisions.iter().map(Decision::is_allow).collect();
    assert_eq!(said, [false, true, true]);
    assert!(changes.iter().all(|change| *change == Change::Keep));
    let (decisions, changes) = decide(Operation::Spend, &charges(2));
    assert!(decisions.iter().all(Decision::is_allow));
    assert!(changes.iter().all(|change| matches!(change, Change::Edit(_))));
}

#[test]
fn a_shadow_charge_never_denies_the_others() {
    let (a, b) = (quota(5), quota(1));
    let shadow = Charge::new("b", &b, Cost::new(2)).with_shadow(true);
    let (decisions, changes) =
        decide(Operation::Spend, &[Charge::new("a", &a, Cost::new(2)), shadow]);
    assert!(decisions[0].is_allow() && decisions[1].is_deny());
    assert!(matches!(changes[0], Change::Edit(_)));
    assert_eq!(changes[1], Change::Keep);
}

#[test]
fn a_shadow_charge_counts_even_when_an_enforced_one_denies() {
    let (a, b) = (quota(1), quota(5));
    let shadow = Charge::new("b", &b, Cost::new(2)).with_shadow(true);
    let (decisions, changes) =
        decide(Operation::Spend, &[Charge::new("a", &a, Cost::new(2)), shadow]);
    assert!(decisions[0].is_deny());
    assert_eq!(decisions[1].remaining(), 3);
    assert_eq!(changes[0], Change::Keep);
    assert!(matches!(changes[1], Change::Edit(_)));
}

#[test]
fn g3_a_look_spends_nothing() {
    let a = quota(5);
    let (decisions, changes) = decide(Operation::Look, &[Charge::new("a", &a, Cost::new(5))]);
    assert_eq!(decisions[0].remaining(), 5);
    assert_eq!(changes[..], [Change::Keep]);
}

#[test]
fn a_reservation_is_settled_at_the_real_cost() {
    let quota = quota(10);
    let charge = |cost| Charge::new("a", &quota, Cost::new(cost)).with_ticket(Ticket::new(7));
    for (real, left) in [(0, 10), (2, 8), (4, 6), (9, 1), (99, 0)] {
        let mut kept = Kept::default();
        assert_eq!(kept.apply(RESERVE, charge(4), NOW).remaining(), 6);
        let settled = kept.apply(Operation::Settle, charge(real), NOW);
        assert!(settled.is_allow());
        assert_eq!(settled.remaining(), left, "settled at {real}");
        let again = kept.apply(Operation::Settle, charge(real), NOW);
        assert!(again.is_deny());
        assert_eq!(again.remaining(), left);
    }
}

#[test]
fn a_repeated_reservation_spends_nothing_more() {
    let quota = quota(10);
    let charge = Charge::new("a", &quota, Cost::new(8)).with_ticket(Ticket::new(7));
    let mut kept = Kept::default();
    for _ in 0..3 {
        let decision = kept.apply(RESERVE, charge, NOW);
        assert!(decision.is_allow());
        assert_eq!(decision.remaining(), 2);
    }
}

#[test]
fn a_reservation_that_is_not_settled_ends_and_stays_spent() {
    let quota = quota(10);
    let charge = Charge::new("a", &quota, Cost::new(10)).with_ticket(Ticket::new(7));
    let operation = Operation::Reserve { ttl: Duration::from_secs(4) };
    let mut kept = Kept::default();
    assert!(kept.apply(operation, charge, NOW).is_allow());
    let late = NOW.saturating_add(Duration::from_secs(4));
    let settled = kept.apply(Operation::Settle, charge, late);
    assert!(settled.is_deny());
    assert_eq!(settled.remaining(), 4);
}

#[test]
fn a_denied_reservation_leaves_no_record() {
    let quota = quota(3);
    let mut kept = Kept::default();
    let all = Charge::new("a", &quota, Cost::new(3));
    assert!(kept.apply(Operation::Spend, all, NOW).is_allow());
    let one = Charge::new("a", &quota, Cost::ONE).with_ticket(Ticket::new(7));
    assert!(kept.apply(RESERVE, one, NOW).is_deny());
    assert_eq!(kept.record, None);
}

#[test]
fn a_refund_under_a_ticket_is_made_once() {
    let quota = quota(10);
    let mut kept = Kept::default();
    let _ = kept.apply(Operation::Spend, Charge::new("a", &quota, Cost::new(9)), NOW);
    let refund = Charge::new("a", &quota, Cost::new(2)).with_ticket(Ticket::of("order 66"));
    assert_eq!(kept.apply(Operation::Refund, refund, NOW).remaining(), 3);
    assert_eq!(kept.apply(Operation::Refund, refund, NOW).remaining(), 3);
    let without = Charge { ticket: None, ..refund };
    assert_eq!(kept.apply(Operation::Refund, without, NOW).remaining(), 5);
}

#[test]
fn a_reservation_that_has_left_its_window_gives_nothing_back() {
    let rate = || "10/min".parse().unwrap();
    let sliding = Quota::sliding_window(rate(), Algorithm::CELLS_DEFAULT).unwrap();
    let quotas =
        [Quota::fixed_window(rate()).unwrap(), sliding, Quota::sliding_log(rate()).unwrap()];
    for quota in quotas {
        let charge = |units| Charge::new("a", &quota, Cost::new(units));
        let mine = charge(8).with_ticket(Ticket::new(1));
        let reserve = Operation::Reserve { ttl: Duration::from_secs(600) };
        for (later_s, left) in [(0, 9), (70, 0)] {
            let mut kept = Kept::default();
            assert!(kept.apply(reserve, mine, NOW).is_allow());
            let later = NOW.saturating_add(Duration::from_secs(later_s));
            let spent = if later_s == 0 { 1 } else { 10 };
            assert!(kept.apply(Operation::Spend, charge(spent), later).is_allow());
            let cancelled = Charge { cost: Cost::ZERO, ..mine };
            let decision = kept.apply(Operation::Settle, cancelled, later);
            assert!(decision.is_allow());
            assert_eq!(decision.remaining(), left, "{quota:?} after {later_s} s");
            assert_eq!(kept.record, None);
        }
    }
}

#[test]
fn what_is_taken_is_taken_as_far_as_it_is_there() {
    let five = quota(5);
    let mut kept = Kept::default();
    let taken = kept.apply(Operation::Take, Charge::new("a", &five, Cost::new(3)), NOW);
    assert!(taken.is_allow());
    assert_eq!(taken.remaining(), 2);
    let more = kept.apply(Operation::Take, Charge::new("a", &five, Cost::new(100)), NOW);
    assert!(more.is_allow());
    assert_eq!((more.remaining(), more.reset_after()), (0, Duration::from_secs(5)));
    let nothing = kept.apply(Operation::Take, Charge::new("a", &five, Cost::ONE), NOW);
    assert_eq!((nothing.is_allow(), nothing.remaining()), (true, 0));
}

#[test]
fn what_is_taken_of_one_bucket_does_not_depend_on_the_others() {
    let (one, nine) = (quota(1), quota(9));
    let charges = [Charge::new("a", &one, Cost::new(7)), Charge::new("b", &nine, Cost::new(7))];
    let (decisions, _) = decide(Operation::Take, &charges);
    assert_eq!((decisions[0].remaining(), decisions[1].remaining()), (0, 2));
}
