use std::time::Duration;

use allocation_counter::measure;
use tollgate_core::{
    CostRule, FailurePolicy, Matcher, Missing, Operation, Quota, Rate, Timestamp, Treatment,
};
use tollgate_memory::MemoryStore;

use super::*;
use crate::clock::{Clock, ManualClock};

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

fn quota(text: &str, burst: u64) -> Quota {
    Quota::new(rate(text), burst).unwrap()
}

/// Rules of every kind, and more of them than are kept without an allocation.
fn rules() -> Vec<Rule> {
    let window = Quota::fixed_window(rate("9/2s")).unwrap();
    let queue = Quota::leaky_bucket(rate("3/s"), 6).unwrap();
    let costs = vec![(Matcher::new().with("path", ["/export"]), Cost::new(3))];
    let (acme, free, banned) = (
        Matcher::new().with("account", ["acme"]),
        Matcher::new().with("account", ["free"]),
        Matcher::new().with("account", ["banned"]),
    );
    vec![
        Rule::new("everyone", quota("9/s", 40)).with_failure_policy(FailurePolicy::Open),
        Rule::new("ip", quota("2/s", 8)).with_key(["ip"]).with_shadow_quota(quota("1/s", 2)),
        Rule::new("login", window).with_match("path", ["/login"]).with_key(["ip", "account"]),
        Rule::new("queue", queue)
            .with_key(["account"])
            .with_missing(Missing::Share)
            .with_exception(acme, Treatment::Quota(quota("7/s", 20)))
            .with_exception(free, Treatment::Unlimited),
        Rule::new("banned", quota("1/s", 30))
            .with_exception(banned, Treatment::Blocked)
            .with_cost(CostRule::PerMatch(costs)),
        Rule::new("bytes", quota("50/s", 100))
            .with_key(["ip"])
            .with_cost(CostRule::Attribute("bytes".to_owned()))
            .with_failure_policy(FailurePolicy::Closed)
            .with_match("path", ["/export"]),
        Rule::new("watched", quota("1/s", 3))
            .with_shadow(true)
            .with_cost(CostRule::Constant(Cost::new(2))),
        Rule::new("elsewhere", quota("1/s", 1)).with_domain("shop"),
    ]
}

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[usize::try_from(self.below(values.len() as u64)).unwrap()]
    }

    fn request(&mut self) -> Attributes {
        let mut request = Attributes::new();
        if self.below(20) == 0 {
            request = request.with_domain(self.one_of(&["shop", "unknown"]));
        }
        let values = [
            ("path", &["/login", "/export", "/"][..]),
            ("ip", &["203.0.113.7", "203.0.113.8", "2001:db8::1", "203.0.113.9"]),
            ("account", &["acme", "free", "a-1", "a-2", "a-3", "a-4", "banned"]),
            ("bytes", &["7", "0", "40", "400", "ten"]),
        ];
        for (name, values) in values {
            if self.below(4) > 0 {
                request.insert(name, self.one_of(values));
            }
        }
        request
    }
}

fn is_same(one: &Result<Verdict, CheckError>, other: &Result<Verdict, CheckError>) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => one == other,
        (Err(one), Err(other)) => {
            let told = |error: &CheckError| (error.to_string(), error.store_failure());
            told(one) == told(other)
        }
        _ => false,
    }
}

#[tokio::test]
async fn what_is_decided_at_once_is_what_any_store_would_have_had_decided() {
    let (clock, mut numbers) = (ManualClock::new(), Numbers(7));
    // Of two that are alike one is asked the short way and one the way of every store. Some stores
    // are full.
    let limiters = |keys_max: usize| {
        [(); 2].map(|()| {
            let store = MemoryStore::builder().keys_max(keys_max).build();
            Limiter::builder().rules(rules()).store(store).clock(clock.clone()).build().unwrap()
        })
    };
    let (mut at_once, mut left, mut denied, mut failed) = (0, 0, 0, 0);
    for keys_max in [1_000, 9, 4] {
        let [short, long] = limiters(keys_max);
        let mut latest = clock.now().as_micros();
        for _ in 0..8_000 {
            latest += numbers.below(200_000);
            // Within the skew what is evicted changes no decision, nor at the cap as time goes on.
            let is_back = keys_max == 1_000 && numbers.below(20) == 0;
            let back = if is_back { numbers.below(1_000_000) } else { 0 };
            clock.set(Timestamp::from_micros(latest - back));
            let request = numbers.request();
            let cost = Cost::new(numbers.one_of(&[1, 1, 1, 0, 2, 5, 9, 41]));
            let operation = numbers.one_of(&[Operation::Spend, Operation::Spend, Operation::Look]);
            let expected = match long.charged(&request, cost) {
                Ok(charged) => long.decide(operation, &charged, None).await,
                Err(error) => Err(error),
            };
            let said = match operation {
                Operation::Look => short.peek_n(&request, cost).await,
                _ if cost == Cost::ONE => short.check(&request).await,
                _ => short.check_n(&request, cost).await,
            };
            assert!(
                is_same(&said, &expected),
                "{operation:?} {cost} {request:?}: {said:#?}, not {expected:#?}"
            );
            match short.decide_at_once(Operation::Look, &request, cost) {
                Some(_) => at_once += 1,
                None => left += 1,
            }
            denied += u64::from(said.as_ref().is_ok_and(|said| !said.is_allowed()));
            failed += u64::from(said.as_ref().is_ok_and(|said| said.store_failure().is_some()));
            failed += u64::from(said.is_err_and(|error| error.is_store_failure()));
        }
    }
    let counts = [at_once, left, denied, failed];
    assert!(counts.iter().all(|count| *count > 1_000), "{counts:?}");
}

/// Polls a future that is done when it is first polled.
fn polled<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(done) => done,
        std::task::Poll::Pending => unreachable!("a store in memory answers at once"),
    }
}

#[test]
fn a_check_by_two_rules_in_memory_allocates_nothing() {
    let clock = ManualClock::new();
    let rules = [
        Rule::new("ip", quota("100/s", 500)).with_key(["ip"]),
        Rule::new("account", quota("100/s", 500)).with_key(["account"]).with_match("path", ["/*"]),
    ];
    let limiter = Limiter::builder().rules(rules).clock(clock.clone()).build().unwrap();
    let request =
        Attributes::from([("ip", "203.0.113.7"), ("account", "a-4711"), ("path", "/login")]);
    let check = || polled(limiter.check(&request)).unwrap().is_allowed();
    assert!(measure(|| assert!(check())).count_total > 0, "the counter counts");
    let (mut allowed, mut denied) = (0, 0);
    let counted = measure(|| {
        for _ in 0..1_000 {
            clock.advance(Duration::from_micros(100));
            if check() { allowed += 1 } else { denied += 1 }
        }
    });
    assert_eq!((counted.count_total, allowed + denied), (0, 1_000));
    assert!(allowed > 500 && denied > 300, "{allowed} {denied}");
}
