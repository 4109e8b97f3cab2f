//! Spending that can be undone: reservations, and refunds that are made once.

#![allow(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::sync::Arc;
use std::time::Duration;

use tollgate::{
    Attributes, Cost, CostRule, Hold, Limiter, ManualClock, Matcher, MemoryStore, Quota, Rule,
    RuleSet, Treatment,
};

const TTL: Duration = Duration::from_secs(60);

fn quota(rate: &str, burst: u64) -> Quota {
    Quota::new(rate.parse().unwrap(), burst).unwrap()
}

fn limiter(rules: impl IntoIterator<Item = Rule>) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().rules(rules).clock(clock.clone()).build().unwrap();
    (limiter, clock)
}

async fn reserve(limiter: &Limiter, attributes: &Attributes, cost: u64) -> Hold {
    let reserved = limiter.reserve(attributes, Cost::new(cost), TTL).await.unwrap();
    assert!(reserved.verdict().is_allowed());
    reserved.into_hold().unwrap()
}

#[tokio::test]
async fn a_commit_settles_the_real_cost_in_every_rule() {
    let (limiter, _) = limiter([
        Rule::new("all", quota("1/hour", 100)),
        Rule::new("each", quota("1/hour", 50)).with_key(["account"]),
    ]);
    let acme = Attributes::from([("account", "acme")]);
    let hold = reserve(&limiter, &acme, 40).await;
    let settled = limiter.commit(&hold, Cost::new(10)).await.unwrap();
    let left: Vec<_> = settled.rules().iter().map(|rule| rule.decision().remaining()).collect();
    assert_eq!(left, [90, 40]);
}

#[tokio::test]
async fn a_commit_above_the_estimate_takes_what_is_there() {
    let (limiter, _) = limiter([Rule::new("all", quota("1/hour", 10))]);
    let hold = reserve(&limiter, &Attributes::new(), 4).await;
    assert_eq!(limiter.commit(&hold, Cost::new(7)).await.unwrap().remaining(), Some(3));
    let hold = reserve(&limiter, &Attributes::new(), 1).await;
    assert_eq!(limiter.commit(&hold, Cost::new(99)).await.unwrap().remaining(), Some(0));
}

#[tokio::test]
async fn a_reservation_is_settled_once_and_cancelled_whole() {
    let (limiter, _) = limiter([Rule::new("all", quota("1/hour", 10))]);
    let hold = reserve(&limiter, &Attributes::new(), 8).await;
    assert_eq!(limiter.cancel(&hold).await.unwrap().remaining(), Some(10));
    assert!(limiter.cancel(&hold).await.unwrap_err().is_not_held());
    assert!(limiter.commit(&hold, Cost::ONE).await.unwrap_err().is_not_held());
    assert_eq!(limiter.peek(&Attributes::new()).await.unwrap().remaining(), Some(10));
}

#[tokio::test]
async fn a_reservation_that_is_never_settled_ends_and_stays_spent() {
    let (limiter, clock) = limiter([Rule::new("all", quota("1/hour", 10))]);
    let hold = reserve(&limiter, &Attributes::new(), 8).await;
    clock.advance(TTL);
    assert!(limiter.commit(&hold, Cost::ONE).await.unwrap_err().is_not_held());
    assert_eq!(limiter.peek(&Attributes::new()).await.unwrap().remaining(), Some(2));
}

#[tokio::test]
async fn a_denied_reservation_holds_nothing() {
    let (limiter, _) = limiter([Rule::new("all", quota("1/hour", 10))]);
    let _ = limiter.check_n(&Attributes::new(), Cost::new(5)).await.unwrap();
    let denied = limiter.reserve(&Attributes::new(), Cost::new(6), TTL).await.unwrap();
    assert!(!denied.verdict().is_allowed());
    assert!(denied.into_hold().is_none());
    assert_eq!(limiter.peek(&Attributes::new()).await.unwrap().remaining(), Some(5));
}

#[tokio::test]
async fn the_cost_of_a_rule_multiplies_estimate_and_commit_alike() {
    let cost = CostRule::Attribute("weight".to_owned());
    let (limiter, _) = limiter([Rule::new("all", quota("1/hour", 100)).with_cost(cost)]);
    let heavy = Attributes::from([("weight", "10")]);
    let hold: Hold = reserve(&limiter, &heavy, 5).await.to_string().parse().unwrap();
    assert_eq!(limiter.commit(&hold, Cost::new(2)).await.unwrap().remaining(), Some(80));
    let wrong = Attributes::from([("weight", "ten")]);
    let error = limiter.check(&wrong).await.unwrap_err();
    assert!(error.is_invalid());
    assert_eq!(error.attribute(), Some("weight"));
}

#[tokio::test]
async fn an_exception_changes_the_quota_or_frees_or_blocks() {
    let rule = Rule::new("each", quota("1/hour", 2))
        .with_key(["account"])
        .with_exception(Matcher::new().with("account", ["acme"]), Treatment::Quota(quota("1/s", 9)))
        .with_exception(Matcher::new().with("account", ["internal-*"]), Treatment::Unlimited)
        .with_exception(Matcher::new().with("account", ["evil"]), Treatment::Blocked);
    let (limiter, _) = limiter([Rule::new("all", quota("1/hour", 100)), rule]);
    let account = |name: &'static str| Attributes::from([("account", name)]);
    let limit = |verdict: &tollgate::Verdict| verdict.decision().unwrap().limit();

    let acme = limiter.check(&account("acme")).await.unwrap();
    assert_eq!((limit(&acme), acme.remaining()), (9, Some(8)));
    let internal = limiter.check(&account("internal-7")).await.unwrap();
    assert_eq!(internal.rules().len(), 1);
    let blocked = limiter.check(&account("evil")).await.unwrap();
    assert!(!blocked.is_allowed());
    assert_eq!((limit(&blocked), blocked.retry_after()), (0, None));
    let all = limiter.peek(&account("other")).await.unwrap();
    assert_eq!(all.rules()[0].decision().remaining(), 98);

    let hold: Hold = reserve(&limiter, &account("acme"), 8).await.to_string().parse().unwrap();
    let settled = limiter.commit(&hold, Cost::new(3)).await.unwrap();
    assert_eq!(settled.rules()[1].decision().remaining(), 5);
}

#[tokio::test]
async fn a_rule_may_carry_a_shadow_quota_beside_the_one_in_force() {
    let rule = Rule::new("all", quota("1/hour", 5)).with_shadow_quota(quota("1/hour", 2));
    let (limiter, _) = limiter([rule]);
    for _ in 0..3 {
        assert!(limiter.check(&Attributes::new()).await.unwrap().is_allowed());
    }
    let verdict = limiter.peek_n(&Attributes::new(), Cost::ONE).await.unwrap();
    let said: Vec<_> = verdict
        .rules()
        .iter()
        .map(|rule| (rule.rule().name(), rule.decision().is_allow()))
        .collect();
    assert_eq!(said, [("all", true), ("all.shadow", false)]);
}

#[tokio::test]
async fn a_refund_with_an_id_is_made_once() {
    let (limiter, _) = limiter([Rule::new("all", quota("1/hour", 10))]);
    let request = Attributes::new();
    let _ = limiter.check_n(&request, Cost::new(9)).await.unwrap();
    for _ in 0..3 {
        let refunded = limiter.refund_once(&request, Cost::new(2), "order 66").await.unwrap();
        assert_eq!(refunded.remaining(), Some(3));
    }
    let other = limiter.refund_once(&request, Cost::new(2), "order 67").await.unwrap();
    assert_eq!(other.remaining(), Some(5));
}

fn each(burst: u64) -> Rule {
    Rule::new("each", quota("1/hour", burst)).with_key(["account"])
}

fn acme() -> Matcher {
    Matcher::new().with("account", ["acme"])
}

#[tokio::test]
async fn a_reservation_is_settled_under_the_quota_that_is_in_force_then() {
    let generous = each(2).with_exception(acme(), Treatment::Quota(quota("1/hour", 90)));
    let (limiter, _) = limiter([generous.clone()]);
    let request = Attributes::from([("account", "acme")]);
    let set = |rule: Rule| limiter.replace_rules(RuleSet::new([rule]).unwrap());
    let left = || async { limiter.peek(&request).await.unwrap().remaining() };

    // Another exception takes the place of the one that held.
    let hold: Hold = reserve(&limiter, &request, 50).await.to_string().parse().unwrap();
    let other = Matcher::new().with("account", ["other"]);
    let one_more = each(2)
        .with_exception(other, Treatment::Quota(quota("1/s", 5)))
        .with_exception(acme(), Treatment::Quota(quota("1/hour", 90)));
    set(one_more);
    assert_eq!(limiter.commit(&hold, Cost::new(40)).await.unwrap().remaining(), Some(50));

    // The exception is gone: what is left is capped at the rule's burst, and so is what is given back.
    let hold = reserve(&limiter, &request, 50).await;
    set(each(2));
    assert_eq!(left().await, Some(0));
    assert_eq!(limiter.cancel(&hold).await.unwrap().remaining(), Some(2));

    // Who is blocked or free has nothing to settle.
    for treatment in [Treatment::Blocked, Treatment::Unlimited] {
        set(generous.clone());
        let hold = reserve(&limiter, &request, 1).await;
        set(each(2).with_exception(acme(), treatment));
        assert!(limiter.cancel(&hold).await.unwrap_err().is_not_held());
    }
}

#[tokio::test]
async fn a_reservation_of_another_algorithm_is_not_held() {
    let (limiter, _) = limiter([each(10)]);
    let request = Attributes::from([("account", "acme")]);
    let hold = reserve(&limiter, &request, 8).await;
    let window = Quota::fixed_window("10/hour".parse().unwrap()).unwrap();
    let rule = Rule::new("each", window).with_key(["account"]);
    limiter.replace_rules(RuleSet::new([rule]).unwrap());
    assert_eq!(limiter.check_n(&request, Cost::new(9)).await.unwrap().remaining(), Some(1));
    assert!(limiter.cancel(&hold).await.unwrap_err().is_not_held());
    assert_eq!(limiter.peek(&request).await.unwrap().remaining(), Some(1));
}

#[tokio::test]
async fn nodes_that_disagree_on_the_algorithm_each_keep_their_count() {
    let store = Arc::new(MemoryStore::new());
    let on = |quota: Quota| {
        let rule = Rule::new("all", quota);
        Limiter::builder().rule(rule).store(Arc::clone(&store)).build().unwrap()
    };
    let rate = || "10/day".parse().unwrap();
    let nodes = [
        on(Quota::new(rate(), 10).unwrap()),
        on(Quota::fixed_window(rate()).unwrap()),
        on(Quota::sliding_log(rate()).unwrap()),
    ];
    let mut admitted = [0; 3];
    for _ in 0..30 {
        for (node, admitted) in nodes.iter().zip(&mut admitted) {
            *admitted += u32::from(node.check(&Attributes::new()).await.unwrap().is_allowed());
        }
    }
    assert_eq!(admitted, [10, 10, 10]);
}

#[tokio::test]
async fn leases_and_reservations_are_not_taken_for_each_other() {
    let slots = Rule::new("slots", Quota::concurrency(5, TTL).unwrap());
    let (limiter, _) = limiter([Rule::new("all", quota("1/hour", 10)), slots]);
    let request = Attributes::new();
    let reservation = reserve(&limiter, &request, 8).await;
    assert!(!reservation.is_slots());
    assert!(limiter.renew(&reservation).await.unwrap_err().is_not_held());
    assert!(limiter.release(&reservation).await.unwrap_err().is_not_held());

    let lease = limiter.enter(&request, Cost::ONE).await.unwrap().into_permit().unwrap();
    let lease = lease.into_hold();
    assert!(lease.is_slots());
    assert!(limiter.commit(&lease, Cost::ONE).await.unwrap_err().is_not_held());
    assert!(limiter.cancel(&lease).await.unwrap_err().is_not_held());
    let left = limiter.peek(&request).await.unwrap();
    let left: Vec<_> = left.rules().iter().map(|rule| rule.decision().remaining()).collect();
    assert_eq!(left, [1, 4]);
}

#[tokio::test]
async fn a_reservation_of_nothing_leaves_nothing_to_settle() {
    let store = Arc::new(MemoryStore::new());
    let limiter = Limiter::builder().rule(Rule::new("all", quota("1/hour", 10)));
    let limiter = limiter.store(Arc::clone(&store)).build().unwrap();
    let reserved = limiter.reserve(&Attributes::new(), Cost::ZERO, TTL).await.unwrap();
    assert!(reserved.verdict().is_allowed() && reserved.into_hold().is_none());
    let _ = limiter.refund_once(&Attributes::new(), Cost::ZERO, "order 66").await.unwrap();
    assert!(store.is_empty());
}

#[tokio::test]
async fn a_commit_tells_of_the_rules_that_held_something() {
    let window = || Quota::fixed_window("10/day".parse().unwrap()).unwrap();
    let (limiter, _) = limiter([Rule::new("a", quota("1/hour", 10)), Rule::new("b", window())]);
    let hold = reserve(&limiter, &Attributes::new(), 8).await;
    let now = [Rule::new("a", quota("1/hour", 10)), Rule::new("b", quota("1/hour", 10))];
    limiter.replace_rules(RuleSet::new(now).unwrap());
    let settled = limiter.commit(&hold, Cost::new(3)).await.unwrap();
    assert!(settled.is_allowed());
    assert_eq!((settled.rules().len(), settled.remaining()), (1, Some(7)));
}
