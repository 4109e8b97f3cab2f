use std::sync::Arc;

use limitador::AsyncRateLimiter;
use limitador::storage::redis::AsyncRedisStorage;

use crate::limitador::{context, limit_of, namespace, version};
use crate::limiter::{Answer, Library, Limit, Limiter, Time};

pub(crate) struct LimitadorRedis {
    pub(crate) url: String,
}

struct Counter {
    limiter: AsyncRateLimiter,
    key: String,
}

impl Library for LimitadorRedis {
    fn name(&self) -> [&'static str; 2] {
        ["limitador", "redis"]
    }

    fn settings(&self) -> String {
        format!("{}, AsyncRedisStorage, check_rate_limited_and_update", version())
    }

    fn is_shared(&self) -> bool {
        true
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
            let storage = AsyncRedisStorage::new(&self.url).await?;
            let limiter = AsyncRateLimiter::new_with_storage(Box::new(storage));
            limiter.add_limit(limit_of(limit)?);
            Ok(Some(Arc::new(Counter { limiter, key: key.to_owned() }) as _))
        })
    }
}

impl Limiter for Counter {
    fn spend(&self, cost: u32) -> Answer<'_, bool> {
        Box::pin(async move {
            let (namespace, context) = (namespace(), context(&self.key));
            let answer = self
                .limiter
                .check_rate_limited_and_update(&namespace, &context, u64::from(cost))
                .await;
            // The library's error is not `Sync`.
            Ok(!answer.map_err(|error| error.to_string())?.limited)
        })
    }
}
