//! What a request waits for, on tokio's paused time.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use tokio::time::{Instant, sleep, timeout};
use tollgate::Limiter;
use tollgate_tower::{RateLimitLayer, Rejection};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{
    Body, hello, leaky, limiter_on_paused_time, remaining, request_from, rule, send, slots, text,
};

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Sends `count` requests at once and returns when each reached the service, in milliseconds, and
/// how many did not.
async fn reached(layer: RateLimitLayer, count: usize) -> (Vec<u128>, usize) {
    let (start, starts) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&starts);
    let service = layer.layer(service_fn(move |_: Request<()>| {
        seen.lock().unwrap().push(start.elapsed().as_millis());
        async { Ok::<_, Infallible>(Response::new(Body::default())) }
    }));
    let tasks: Vec<_> = (0..count)
        .map(|_| tokio::spawn(service.clone().oneshot(request_from("203.0.113.7:1"))))
        .collect();
    let mut refused = 0;
    for task in tasks {
        let response = task.await.unwrap().unwrap();
        refused += usize::from(response.extensions().get::<Rejection>().is_some());
    }
    let starts = starts.lock().unwrap().clone();
    (starts, refused)
}

#[tokio::test(start_paused = true)]
async fn requests_through_a_leaky_bucket_reach_the_service_evenly_spaced() {
    let limiter = limiter_on_paused_time([leaky("sms", "10/s", 5)]);
    let layer = RateLimitLayer::new(limiter);
    assert_eq!(
        reached(layer, 7).await,
        (vec![0, 100, 200, 300, 400], 2),
        "five places, two refused"
    );
}

#[tokio::test(start_paused = true)]
async fn units_are_not_waited_for_unless_it_is_set() {
    let limited = || limiter_on_paused_time([rule("all", "10/s", 2)]);
    assert_eq!(reached(RateLimitLayer::new(limited()), 4).await, (vec![0, 0], 2));
    let layer = RateLimitLayer::new(limited()).max_wait(ms(200));
    assert_eq!(reached(layer, 5).await, (vec![0, 0, 100, 200], 1));
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_waited_for_if_it_is_set_and_taken_as_soon_as_it_is_free() {
    let limiter = limiter_on_paused_time([slots("exports", 1)]);
    let start = Instant::now();
    let slow = service_fn(|_: Request<()>| async {
        sleep(ms(70)).await;
        Ok::<_, Infallible>(Response::new(Body::default()))
    });
    let service = RateLimitLayer::new(limiter).max_wait(ms(100)).layer(slow);
    let exports = || service.clone().oneshot(request_from("203.0.113.7:1"));
    let (one, two, three) = tokio::join!(
        async { (exports().await.unwrap().status().as_u16(), start.elapsed()) },
        async { (exports().await.unwrap().status().as_u16(), start.elapsed()) },
        async { (exports().await.unwrap().status().as_u16(), start.elapsed()) },
    );
    assert_eq!((one, two), ((200, ms(70)), (200, ms(140))));
    assert_eq!(three, (429, ms(100)));
}

#[tokio::test(start_paused = true)]
async fn a_delay_beyond_the_longest_wait_is_a_429_that_says_when_there_is_none() {
    let limiter = limiter_on_paused_time([leaky("sms", "1/s", 9)]);
    let service = RateLimitLayer::new(limiter.clone()).max_wait(ms(1_500)).layer(hello().0);
    let start = Instant::now();
    for _ in 0..2 {
        assert_eq!(send(&service, request_from("203.0.113.7:1")).await.status(), 200);
    }
    assert_eq!(start.elapsed(), ms(1_000));
    let _ = limiter.check(&tollgate::Attributes::new()).await.unwrap();
    let denied = send(&service, request_from("203.0.113.7:1")).await;
    assert_eq!(start.elapsed(), ms(1_000), "it was refused at once");
    let rejection = denied.extensions().get::<Rejection>().unwrap();
    assert!(rejection.is_denied() && !rejection.is_blocked());
    assert_eq!(
        text(denied).await,
        concat!(
            "429 Too Many Requests\n",
            "content-type: application/problem+json\n",
            "ratelimit-policy: \"sms\";q=9;w=9\n",
            "ratelimit: \"sms\";r=7;t=2\n",
            "retry-after: 2\n",
            "x-ratelimit-limit: 9\n",
            "x-ratelimit-remaining: 7\n",
            "x-ratelimit-reset: 2\n",
            "x-ratelimit-rule: sms\n",
            "\n",
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
            r#""title":"Too Many Requests","status":429,"#,
            r#""detail":"the rate limit is used up: try again in 2000 ms","#,
            r#""rule":"sms","retry_after_ms":2000,"violated-policies":["sms"]}"#,
        )
    );
    assert_eq!(remaining(&limiter).await, 7, "nothing was spent for it");
    sleep(ms(2_000)).await;
    let zero = RateLimitLayer::new(limiter.clone()).max_wait(ms(0)).layer(hello().0);
    assert_eq!(send(&zero, request_from("203.0.113.7:1")).await.status(), 200);
    assert_eq!(send(&zero, request_from("203.0.113.7:1")).await.status(), 429);
}

async fn goes_away(limiter: &Limiter, layer: RateLimitLayer, after: Duration) {
    let before = remaining(limiter).await;
    let (hello, reached) = hello();
    let service = layer.layer(hello);
    let response = service.oneshot(request_from("203.0.113.7:1"));
    assert!(timeout(after, response).await.is_err());
    assert_eq!(reached.load(std::sync::atomic::Ordering::SeqCst), 0);
    assert_eq!(remaining(limiter).await, before);
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_while_waiting_leaves_nothing_spent() {
    for rules in
        [vec![leaky("sms", "1/min", 9)], vec![leaky("sms", "1/min", 9), slots("exports", 9)]]
    {
        let limiter = limiter_on_paused_time(rules);
        let _ = limiter.check(&tollgate::Attributes::new()).await.unwrap();
        goes_away(&limiter, RateLimitLayer::new(limiter.clone()), ms(10)).await;
    }
    let limiter = limiter_on_paused_time([rule("all", "1/min", 1)]);
    let _ = limiter.check(&tollgate::Attributes::new()).await.unwrap();
    let layer = RateLimitLayer::new(limiter.clone()).max_wait(ms(60_000));
    goes_away(&limiter, layer, ms(10)).await;
}
