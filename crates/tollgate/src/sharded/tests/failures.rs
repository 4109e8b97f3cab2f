//! Shards whose store does not answer.

use super::*;

#[tokio::test]
async fn a_denial_stands_if_the_other_shard_does_not_answer() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    let rules = [sharded("all", quota("4/day", 4), 4)];
    let other = limiter(&remote, &rules, &clock);
    while left(&other).await != Some(0) {
        let _ = check(&other, 1).await;
    }
    // This one knows of no denial yet.
    let limiter = limiter(&remote, &rules, &clock);
    remote.fails_again.store(true, Ordering::SeqCst);
    let mut failed = 0;
    for _ in 0..5 {
        remote.calls();
        let verdict = check(&limiter, 1).await;
        assert_eq!((verdict.is_allowed(), verdict.mode()), (false, Mode::Exact));
        failed += remote.calls().len().saturating_sub(1);
    }
    assert!(failed > 0);
}

#[tokio::test(start_paused = true)]
async fn g10_without_the_store_the_whole_share_is_granted_here_and_then_charged_to_all_shards() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    let limiter = limiter(&remote, &[sharded("all", quota("16/day", 16), 4)], &clock);
    remote.fails.store(true, Ordering::SeqCst);
    for spent in 1..=11_u32 {
        let verdict = check(&limiter, 1).await;
        assert!(verdict.is_allowed());
        assert_eq!((verdict.mode(), verdict.remaining()), (Mode::Local, Some(16 - spent)));
    }
    assert_eq!(limiter.status().debts, 1);
    remote.fails.store(false, Ordering::SeqCst);
    // The breaker's probe finds out, and what is owed is charged.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(limiter.status().debts, 0);
    let look = limiter.peek(&Attributes::new()).await.unwrap();
    assert_eq!((look.mode(), look.remaining()), (Mode::Exact, Some(5)));
    let mut admitted = 0;
    for _ in 0..100 {
        admitted += u32::from(check(&limiter, 1).await.is_allowed());
    }
    assert_eq!(admitted, 5);
}

#[tokio::test(start_paused = true)]
async fn g10_a_lost_shard_is_decided_here_while_the_others_go_on() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    let limiter = limiter(&remote, &[sharded("all", quota("40/day", 40), 4)], &clock);
    *remote.lost.lock().unwrap() = Some("default:all:@shard=2");
    let (mut exact, mut local) = (0, 0);
    for _ in 0..600 {
        let verdict = check(&limiter, 1).await;
        let admitted = u32::from(verdict.is_allowed());
        match verdict.mode() {
            Mode::Exact => exact += admitted,
            mode => {
                assert_eq!(mode, Mode::Local);
                local += admitted;
            }
        }
    }
    // All of the three shards, and this node's share of the whole.
    assert_eq!((exact, local), (30, 40));
}

/// A store that takes its time.
struct Slow(Remote);

const TAKES: Duration = Duration::from_millis(30);

impl Store for Slow {
    async fn apply(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        tokio::time::sleep(TAKES).await;
        self.0.apply(operation, charges, now).await
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.0.reset(keys).await
    }
}

#[tokio::test(start_paused = true)]
async fn g10_both_shards_are_asked_within_one_deadline() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    for (deadline, calls, took) in [(50, 1, 50), (61, 2, 60), (100, 2, 60)] {
        let limiter = Limiter::builder()
            .rule(sharded("all", quota("2/day", 2), 2))
            .clock(clock.clone())
            .store(AnyStore::new(Slow(remote.clone())))
            .store_timeout(Duration::from_millis(deadline))
            .build()
            .unwrap();
        remote.memory.forget(&["default:all:@shard=0", "default:all:@shard=1"]);
        for shard in [0, 1] {
            let key = tollgate_core::key::shard("default:all", shard);
            let one = quota("1/day", 1);
            let charge = [Charge::new(&key, &one, Cost::ONE)];
            let now = crate::clock::Clock::now(&clock);
            assert!(remote.memory.decide(Operation::Spend, &charge, now).unwrap()[0].is_allow());
        }
        remote.calls();
        let start = tokio::time::Instant::now();
        let denied = check(&limiter, 1).await;
        assert_eq!((denied.is_allowed(), denied.mode()), (false, Mode::Exact));
        assert_eq!(start.elapsed(), Duration::from_millis(took));
        assert_eq!(remote.calls().len(), calls);
    }
}
