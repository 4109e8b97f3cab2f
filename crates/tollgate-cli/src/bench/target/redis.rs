//! The library on a Redis.

use std::process;

use tollgate::{Attributes, Clock, Limiter, Quota, RedisStore, Rule, SystemClock};

use super::{Answered, value};
use crate::bench::options::Bench;

/// A limiter with one rule.
#[derive(Debug)]
pub(in crate::bench) struct Library {
    limiter: Limiter,
    attribute: String,
}

impl Library {
    pub(super) async fn new(args: &Bench) -> Result<Self, String> {
        // A node of applications would take a share of what they may admit while Redis fails. It
        // announces itself under a prefix of its own, so it is none of theirs.
        let store = RedisStore::builder(&args.url).prefix(args.prefix()).connect().await;
        let store = store.map_err(|error| error.to_string())?;
        let quota = Quota::from_rate(args.limit()?).map_err(|error| error.to_string())?;
        // Otherwise a failure would be answered, and so not be counted.
        let rule = Rule::new(rule_name(), quota)
            .with_key([args.attribute.as_str()])
            .with_failure_policy(tollgate::FailurePolicy::Closed);
        let limiter = Limiter::builder().store(store).rule(rule).build();
        let limiter = limiter.map_err(|error| error.to_string())?;
        Ok(Self { limiter, attribute: args.attribute.clone() })
    }

    pub(super) async fn ask(&self, key: u32) -> Result<Answered, String> {
        let mut attributes = Attributes::new();
        attributes.insert(self.attribute.clone(), value(key));
        let verdict = self.limiter.check(&attributes).await.map_err(|error| error.to_string())?;
        Ok(Answered { is_allowed: verdict.is_allowed(), has_rule: true })
    }
}

/// Names the rule, and so the buckets, as no other run does: each begins with full ones.
fn rule_name() -> String {
    format!("bench-{:x}-{:x}", SystemClock.now().as_micros(), process::id())
}
