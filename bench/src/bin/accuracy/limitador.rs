use std::collections::HashMap;
use std::sync::Arc;

use limitador::RateLimiter;
use limitador::limit::{Context, Expression, Namespace, Predicate};

use crate::limiter::{Answer, Error, Library, Limit, Limiter, Time};
use crate::versions;

pub(crate) struct Limitador;

/// As in the documentation's example.
const CACHED_COUNTERS: u64 = 1_000;

struct Counter {
    limiter: RateLimiter,
    key: String,
}

impl Library for Limitador {
    fn name(&self) -> [&'static str; 2] {
        ["limitador", "memory"]
    }

    fn settings(&self) -> String {
        format!("{}, RateLimiter::new(1000), check_rate_limited_and_update", version())
    }

    fn limiter<'a>(
        &'a self,
        limit: Limit,
        _: Time,
        key: &'a str,
    ) -> Answer<'a, Option<Arc<dyn Limiter>>> {
        Box::pin(async move {
            if !limit.is_window() {
                return Ok(None);
            }
            let limiter = RateLimiter::new(CACHED_COUNTERS);
            limiter.add_limit(limit_of(limit)?);
            Ok(Some(Arc::new(Counter { limiter, key: key.to_owned() }) as _))
        })
    }
}

impl Limiter for Counter {
    fn spend(&self, cost: u32) -> Answer<'_, bool> {
        Box::pin(async move {
            let (namespace, context) = (namespace(), context(&self.key));
            let answer =
                self.limiter.check_rate_limited_and_update(&namespace, &context, u64::from(cost));
            // The library's error is not `Sync`.
            Ok(!answer.map_err(|error| error.to_string())?.limited)
        })
    }
}

pub(crate) fn version() -> &'static str {
    versions::of("limitador")
}

pub(crate) fn namespace() -> Namespace {
    "accuracy".into()
}

pub(crate) fn context(key: &str) -> Context<'static> {
    HashMap::from([("user_id".to_owned(), key.to_owned())]).into()
}

/// One counter per `user_id`, under no condition.
pub(crate) fn limit_of(limit: Limit) -> Result<limitador::limit::Limit, Error> {
    Ok(limitador::limit::Limit::new(
        namespace(),
        limit.units.into(),
        limit.per.seconds().into(),
        Vec::<Predicate>::new(),
        vec![Expression::parse("user_id")?],
    ))
}
