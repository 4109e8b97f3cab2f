use std::future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock, FakeRelativeClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};

use crate::limiter::{Answer, Error, Library, Limit, Limiter, Per, Time};
use crate::versions;

pub(crate) struct Governor;

struct Cells<C: Clock> {
    limiter: RateLimiter<String, DashMapStateStore<String>, C, NoOpMiddleware<C::Instant>>,
    key: String,
    injected: Option<FakeRelativeClock>,
}

impl Library for Governor {
    fn name(&self) -> [&'static str; 2] {
        ["governor", "keyed"]
    }

    fn settings(&self) -> String {
        format!("{}, keyed (DashMap), allow_burst, check_key_n", versions::of("governor"))
    }

    fn limiter<'a>(
        &'a self,
        limit: Limit,
        time: Time,
        key: &'a str,
    ) -> Answer<'a, Option<Arc<dyn Limiter>>> {
        Box::pin(future::ready(limiter(limit, time, key).map(Some)))
    }
}

fn limiter(limit: Limit, time: Time, key: &str) -> Result<Arc<dyn Limiter>, Error> {
    let units = NonZeroU32::try_from(limit.units)?;
    let quota = match limit.per {
        Per::Second => Quota::per_second(units),
        Per::Minute => Quota::per_minute(units),
        Per::Hour => Quota::per_hour(units),
    };
    let quota = quota.allow_burst(NonZeroU32::try_from(limit.burst)?);
    let key = key.to_owned();
    Ok(match time {
        Time::Injected => {
            let clock = FakeRelativeClock::default();
            let limiter = RateLimiter::dashmap_with_clock(quota, clock.clone());
            Arc::new(Cells { limiter, key, injected: Some(clock) })
        }
        Time::System => {
            let limiter = RateLimiter::dashmap_with_clock(quota, DefaultClock::default());
            Arc::new(Cells { limiter, key, injected: None })
        }
    })
}

impl<C: Clock + Send + Sync> Limiter for Cells<C> {
    fn spend(&self, cost: u32) -> Answer<'_, bool> {
        Box::pin(async move {
            let cost = NonZeroU32::try_from(cost)?;
            Ok(self.limiter.check_key_n(&self.key, cost)?.is_ok())
        })
    }

    fn advance(&self, time: Duration) -> bool {
        self.injected.as_ref().map(|clock| clock.advance(time)).is_some()
    }
}
