//! The library on a Redis.

use tollgate::{Attributes, Limiter, Quota, RedisStore, Rule};

use super::value;
use crate::bench::options::Bench;

/// A limiter with one rule.
#[derive(Debug)]
pub(in crate::bench) struct Library {
    limiter: Limiter,
    attribute: String,
}

impl Library {
    pub(super) async fn new(args: &Bench) -> Result<Self, String> {
        let store = RedisStore::builder(&args.url).connect().await;
        let store = store.map_err(|error| error.to_string())?;
        let quota = Quota::from_rate(args.limit).map_err(|error| error.to_string())?;
        // Otherwise a failure would be answered, and so not be counted.
        let rule = Rule::new("tollgate-bench", quota)
            .with_key([args.attribute.as_str()])
            .with_failure_policy(tollgate::FailurePolicy::Closed);
        let limiter = Limiter::builder().store(store).rule(rule).build();
        let limiter = limiter.map_err(|error| error.to_string())?;
        Ok(Self { limiter, attribute: args.attribute.clone() })
    }

    pub(super) async fn ask(&self, key: u32) -> Result<bool, String> {
        let mut attributes = Attributes::new();
        attributes.insert(self.attribute.clone(), value(key));
        let verdict = self.limiter.check(&attributes).await.map_err(|error| error.to_string())?;
        Ok(verdict.is_allowed())
    }
}
