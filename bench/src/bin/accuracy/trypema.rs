use std::future;
use std::sync::Arc;

use trypema::local::LocalRateLimiterProvider;
use trypema::{RateLimit, RateLimitDecision, RateLimiterBuilder, WindowSize};

use crate::limiter::{Answer, Error, Library, Limit, Limiter, Per, Time};
use crate::versions;

pub(crate) struct Trypema;

struct Window {
    provider: Arc<LocalRateLimiterProvider>,
    rate: RateLimit,
    key: String,
}

impl Library for Trypema {
    fn name(&self) -> [&'static str; 2] {
        ["trypema", "local"]
    }

    fn settings(&self) -> String {
        format!("{}, local absolute, window of one period", versions::of("trypema"))
    }

    fn limiter<'a>(
        &'a self,
        limit: Limit,
        _: Time,
        key: &'a str,
    ) -> Answer<'a, Option<Arc<dyn Limiter>>> {
        let limiter = limit.is_window().then(|| limiter(limit, key)).transpose();
        Box::pin(future::ready(limiter))
    }
}

fn limiter(limit: Limit, key: &str) -> Result<Arc<dyn Limiter>, Error> {
    let units = f64::from(limit.units);
    let (rate, window) = match limit.per {
        Per::Second => (RateLimit::per_second(units)?, WindowSize::seconds(1)?),
        Per::Minute => (RateLimit::per_minute(units)?, WindowSize::minutes(1)?),
        Per::Hour => (RateLimit::per_hour(units)?, WindowSize::hours(1)?),
    };
    let provider = LocalRateLimiterProvider::builder().window_size(window).build()?;
    Ok(Arc::new(Window { provider, rate, key: key.to_owned() }))
}

impl Limiter for Window {
    fn spend(&self, cost: u32) -> Answer<'_, bool> {
        let decision = self.provider.absolute().inc(&self.key, &self.rate, u64::from(cost));
        Box::pin(future::ready(Ok(matches!(decision, RateLimitDecision::Allowed))))
    }
}
