use std::sync::Arc;
use std::time::Duration;

use tollgate::{
    Attributes, Cost, FailurePolicy, ManualClock, Quota, Rate, RedisStore, Rule, TimeSource,
};

use crate::limiter::{Answer, Library, Limit, Limiter, Per, Time};
use crate::versions;

pub(crate) enum Tollgate {
    Memory,
    Redis { url: String },
}

/// Long enough for a machine whose two cores are busy; a run that misses it fails.
const REDIS_TIMEOUT: Duration = Duration::from_secs(5);

struct Bucket {
    limiter: tollgate::Limiter,
    attributes: Attributes,
    clock: Option<ManualClock>,
}

impl Library for Tollgate {
    fn name(&self) -> [&'static str; 2] {
        match self {
            Self::Memory => ["tollgate", "memory"],
            Self::Redis { .. } => ["tollgate", "redis"],
        }
    }

    fn settings(&self) -> String {
        let settings = match self {
            Self::Memory => "one rule",
            Self::Redis { .. } => "one rule, on_store_failure closed, timeout 5 s",
        };
        format!("{}, {settings}", versions::of("tollgate"))
    }

    fn is_shared(&self) -> bool {
        matches!(self, Self::Redis { .. })
    }

    fn limiter<'a>(
        &'a self,
        limit: Limit,
        time: Time,
        key: &'a str,
    ) -> Answer<'a, Option<Arc<dyn Limiter>>> {
        Box::pin(async move {
            let units = u64::from(limit.units);
            let rate = match limit.per {
                Per::Second => Rate::per_second(units),
                Per::Minute => Rate::per_minute(units),
                Per::Hour => Rate::per_hour(units),
            }?;
            let quota = Quota::new(rate, u64::from(limit.burst))?;
            let rule = Rule::new("accuracy", quota)
                .with_key(["key"])
                .with_failure_policy(FailurePolicy::Closed);
            let mut builder = tollgate::Limiter::builder().rule(rule);
            if let Self::Redis { url } = self {
                let source = match time {
                    Time::Injected => TimeSource::Client,
                    Time::System => TimeSource::Server,
                };
                let store =
                    RedisStore::builder(url.as_str()).time_source(source).timeout(REDIS_TIMEOUT);
                builder = builder.store(store.connect().await?);
            }
            let clock = (time == Time::Injected).then(ManualClock::new);
            if let Some(clock) = &clock {
                builder = builder.clock(clock.clone());
            }
            let attributes = Attributes::new().with("key", key);
            Ok(Some(Arc::new(Bucket { limiter: builder.build()?, attributes, clock }) as _))
        })
    }
}

impl Limiter for Bucket {
    fn spend(&self, cost: u32) -> Answer<'_, bool> {
        Box::pin(async move {
            let verdict = self.limiter.check_n(&self.attributes, Cost::from(cost)).await?;
            Ok(verdict.is_allowed())
        })
    }

    fn advance(&self, time: Duration) -> bool {
        self.clock.as_ref().map(|clock| clock.advance(time)).is_some()
    }
}
