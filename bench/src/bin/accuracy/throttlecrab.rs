use std::future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use throttlecrab::{PeriodicStore, RateLimiter};

use crate::limiter::{Answer, Library, Limit, Limiter, Time};
use crate::versions;

pub(crate) struct Throttlecrab;

struct Key {
    limiter: Mutex<RateLimiter<PeriodicStore>>,
    limit: Limit,
    key: String,
    injected: Option<Mutex<SystemTime>>,
}

impl Library for Throttlecrab {
    fn name(&self) -> [&'static str; 2] {
        ["throttlecrab", "periodic"]
    }

    fn settings(&self) -> String {
        format!("{}, PeriodicStore, in a Mutex as its docs advise", versions::of("throttlecrab"))
    }

    fn limiter<'a>(
        &'a self,
        limit: Limit,
        time: Time,
        key: &'a str,
    ) -> Answer<'a, Option<Arc<dyn Limiter>>> {
        let limiter = Mutex::new(RateLimiter::new(PeriodicStore::new()));
        let injected = (time == Time::Injected).then(|| Mutex::new(system_time()));
        let key = Key { limiter, limit, key: key.to_owned(), injected };
        Box::pin(future::ready(Ok(Some(Arc::new(key) as _))))
    }
}

impl Limiter for Key {
    fn spend(&self, cost: u32) -> Answer<'_, bool> {
        Box::pin(async move {
            let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.injected.as_ref().map_or_else(system_time, |clock| {
                *clock.lock().unwrap_or_else(PoisonError::into_inner)
            });
            let (allowed, _) = limiter.rate_limit(
                &self.key,
                self.limit.burst.into(),
                self.limit.units.into(),
                self.limit.per.seconds().into(),
                cost.into(),
                now,
            )?;
            Ok(allowed)
        })
    }

    fn advance(&self, time: Duration) -> bool {
        let clock = self.injected.as_ref();
        clock.map(|now| *now.lock().unwrap_or_else(PoisonError::into_inner) += time).is_some()
    }
}

#[expect(clippy::disallowed_methods, reason = "the library takes the time from its caller")]
fn system_time() -> SystemTime {
    SystemTime::now()
}
