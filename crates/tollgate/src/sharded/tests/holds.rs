//! What is given back goes to the shard that was charged.

use super::*;
use crate::hold::Hold;

const TTL: Duration = Duration::from_secs(60);

/// What is left in each shard.
fn in_shards(remote: &Remote, terms: &Quota, count: usize, clock: &ManualClock) -> Vec<u32> {
    let terms =
        tollgate_core::ShardTerms::of(terms, u8::try_from(count).unwrap().try_into().unwrap());
    let terms = terms.unwrap();
    let now = crate::clock::Clock::now(clock);
    let look = |number: usize| {
        let key = tollgate_core::key::shard("default:all", number);
        let charge = [Charge::new(&key, terms.quota(number), Cost::ZERO)];
        remote.memory.decide(Operation::Look, &charge, now).unwrap()[0].remaining()
    };
    (0..count).map(look).collect()
}

#[tokio::test]
async fn a_reservation_is_settled_in_the_shard_that_its_text_names() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    let whole = quota("40/day", 40);
    let limiter = limiter(&remote, &[sharded("all", whole, 4)], &clock);
    let shards = || in_shards(&remote, &whole, 4, &clock);
    let request = Attributes::new();
    for _ in 0..6 {
        let reserved = limiter.reserve(&request, Cost::new(8), TTL).await.unwrap();
        if !reserved.verdict().is_allowed() {
            assert!(reserved.into_hold().is_none());
            continue;
        }
        let before = shards();
        let text = reserved.into_hold().unwrap().to_string();
        let hold: Hold = text.parse().unwrap();
        let committed = limiter.commit(&hold, Cost::new(3)).await.unwrap();
        assert_eq!(committed.decision().unwrap().limit(), 40);
        let gained: Vec<_> = shards().iter().zip(&before).map(|(now, then)| now - then).collect();
        assert_eq!(gained.iter().sum::<u32>(), 5);
        assert_eq!(gained.iter().filter(|units| **units == 5).count(), 1, "{gained:?}");
        assert!(limiter.commit(&hold, Cost::new(3)).await.unwrap_err().is_not_held());
    }
    let left = left(&limiter).await.unwrap();
    let reserved = limiter.reserve(&request, Cost::new(1), TTL).await.unwrap();
    let _ = limiter.cancel(&reserved.into_hold().unwrap()).await.unwrap();
    assert_eq!(super::left(&limiter).await, Some(left));
}

#[tokio::test]
async fn a_hold_of_a_shard_that_is_gone_is_not_held() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    let whole = quota("64/day", 64);
    let limiter = limiter(&remote, &[sharded("all", whole, 32)], &clock);
    let mut lost = 0;
    for _ in 0..16 {
        let reserved = limiter.reserve(&Attributes::new(), Cost::ONE, TTL).await.unwrap();
        let hold = reserved.into_hold().unwrap();
        limiter.replace_rules(crate::RuleSet::new([sharded("all", whole, 2)]).unwrap());
        match limiter.cancel(&hold).await {
            Ok(_) => {}
            Err(error) => {
                assert!(error.is_not_held());
                lost += 1;
            }
        }
        limiter.replace_rules(crate::RuleSet::new([Rule::new("all", whole)]).unwrap());
        assert!(limiter.cancel(&hold).await.unwrap_err().is_not_held());
        limiter.replace_rules(crate::RuleSet::new([sharded("all", whole, 32)]).unwrap());
    }
    assert!(lost >= 8, "{lost}");
}

#[tokio::test]
async fn a_refund_goes_to_the_shard_that_lacks_the_most_and_under_an_id_is_made_once() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    let whole = quota("40/day", 40);
    let limiter = limiter(&remote, &[sharded("all", whole, 4)], &clock);
    let request = Attributes::new();
    assert!(check(&limiter, 9).await.is_allowed());
    assert!(check(&limiter, 1).await.is_allowed());
    let _ = limiter.refund(&request, Cost::new(9)).await.unwrap();
    let mut shards = in_shards(&remote, &whole, 4, &clock);
    shards.sort_unstable();
    assert_eq!(shards, [9, 10, 10, 10]);
    while left(&limiter).await != Some(0) {
        let _ = check(&limiter, 1).await;
    }
    for _ in 0..3 {
        let _ = limiter.refund_once(&request, Cost::new(4), "order 7").await.unwrap();
    }
    assert_eq!(left(&limiter).await, Some(4));
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_waits_for_units_of_any_shard_and_gives_back_to_its_own() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    let whole = quota("40/s", 4);
    let limiter = limiter(&remote, &[sharded("all", whole, 4)], &clock);
    let request = Attributes::new();
    while left(&limiter).await != Some(0) {
        let _ = check(&limiter, 1).await;
    }
    let refused = limiter.acquire(&request, Cost::ONE, Duration::from_millis(50)).await.unwrap();
    assert!(!refused.is_granted(), "a shard gains a unit in 100 ms");
    let ticking = tokio::spawn({
        let clock = clock.clone();
        async move {
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
                clock.advance(Duration::from_millis(1));
            }
        }
    });
    let start = tokio::time::Instant::now();
    let granted = limiter.acquire(&request, Cost::ONE, Duration::from_secs(1)).await.unwrap();
    assert!(granted.is_granted());
    assert!(start.elapsed() <= Duration::from_millis(102), "{:?}", start.elapsed());
    ticking.abort();
    let before = in_shards(&remote, &whole, 4, &clock);
    assert_eq!(before.iter().sum::<u32>(), 3);
}

#[tokio::test]
async fn a_reservation_by_several_rules_is_tried_once_where_they_are_not_decided_in_one_step() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    let wide = Rule::new("wide", quota("1000/day", 1_000)).with_key(["account"]);
    let limiter = limiter(&remote, &[sharded("all", quota("4/day", 4), 4), wide], &clock);
    let request = Attributes::from([("account", "a")]);
    let mut reserved = 0;
    for _ in 0..100 {
        remote.calls();
        let said = limiter.reserve(&request, Cost::ONE, TTL).await.unwrap();
        assert_eq!(remote.calls().len(), 1);
        reserved += u32::from(said.into_hold().is_some());
    }
    let wide = limiter.peek(&request).await.unwrap().rules()[1].decision().remaining();
    assert_eq!((reserved, wide), (4, 996));
}
