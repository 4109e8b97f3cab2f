//! A distributed rate limiter: one exact shared budget for all replicas of a service.
//!
//! A service that runs as N replicas with a limit in each process admits N times what was meant.
//! Tollgate keeps the budget in one place: a token bucket in Redis, where one script refills,
//! judges, spends and sets the expiry in a single atomic step. Without Redis the same limiter runs
//! on an in-memory store with the same decisions.
//!
//! # Example
//!
//! A limiter on the in-memory store, with a clock that stands still until it is told to move:
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Attributes, Cost, Limiter, ManualClock, Quota, Rule};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = ManualClock::new();
//! let limiter = Limiter::builder()
//!     .rule(Rule::new("login-per-ip", Quota::new("20/min".parse()?, 2)?).with_key(["ip"]))
//!     .clock(clock.clone())
//!     .build()?;
//! let alice = Attributes::from([("ip", "203.0.113.7")]);
//!
//! assert_eq!(limiter.check(&alice).await?.remaining(), Some(1));
//! assert_eq!(limiter.check(&alice).await?.remaining(), Some(0));
//!
//! let denied = limiter.check(&alice).await?;
//! assert!(!denied.is_allowed());
//! assert_eq!(denied.rule().map(Rule::name), Some("login-per-ip"));
//! assert_eq!(denied.retry_after(), Some(Duration::from_secs(3)));
//!
//! clock.advance(Duration::from_secs(3));
//! assert!(limiter.check_n(&alice, Cost::ONE).await?.is_allowed());
//! # Ok(())
//! # }
//! ```
//!
//! The same limiter on Redis, shared by every process that uses the same server and prefix:
//!
//! ```no_run
//! # #[cfg(feature = "redis")]
//! # async fn on_redis() -> Result<(), Box<dyn std::error::Error>> {
//! use tollgate::{Limiter, Quota, RedisStore, Rule};
//!
//! let store = RedisStore::builder("redis://127.0.0.1:6379").connect().await?;
//! let limiter = Limiter::builder()
//!     .store(store)
//!     .rule(Rule::new("login-per-ip", Quota::from_rate("20/min".parse()?)?).with_key(["ip"]))
//!     .build()?;
//! # Ok(())
//! # }
//! ```
//!
//! # How it fits together
//!
//! - A [`Rule`] says which requests it applies to, which [`Attributes`] make its buckets, what a
//!   request costs, and the [`Quota`] of each bucket, counted by one of six [`Algorithm`]s. Every rule that applies to a request is charged: all of them, or
//!   none (G7).
//! - A [`Limiter`] judges a request and gives a [`Verdict`]. A denial is a verdict, never an
//!   error. [`check`](Limiter::check) spends, [`peek`](Limiter::peek) looks,
//!   [`refund`](Limiter::refund) gives back, [`reset`](Limiter::reset) fills.
//!   [`acquire`](Limiter::acquire) waits for units, for a leaky bucket's turn or for a slot, and
//!   [`enter`](Limiter::enter) takes them if they are there now.
//!   [`reserve`](Limiter::reserve) spends an estimate that [`commit`](Limiter::commit) settles.
//! - A [`Store`] keeps the buckets: [`MemoryStore`], [`RedisStore`] or one of your own through
//!   [`AnyStore::new`].
//! - When the store cannot answer, the rule's [`FailurePolicy`] does.
//!
//! # What it guarantees
//!
//! In any interval of length w a bucket admits at most `burst + rate * w` units, across all
//! processes (G1). `retry_after` is exact to the microsecond (G2). A denial and a peek cost
//! nothing (G3). The whole list, with the tests that prove each, is in `docs/guarantees.md`.
//!
//! # When the store does not answer
//!
//! No operation waits for a store longer than its deadline, 50 ms unless set otherwise. After ten
//! failures in a row a breaker opens: the store is not asked any more, and a probe in the
//! background finds out when it is back. Meanwhile each rule's [`FailurePolicy`] decides. Under
//! [`FailurePolicy::Local`] that is a bucket of this process with its share of the quota: under
//! [`LocalShare::Auto`] the quota divided by the number of live nodes, which announce themselves in
//! Redis. What was spent so is charged to the store when it is back, as far as it still counts.
//! [`Limiter::status`] tells operators how it stands.
//!
//! This needs a tokio runtime with a timer. The in-memory store needs none.
//!
//! # Features
//!
//! - `redis` (on by default): [`RedisStore`]. Without it the crate has no network code and needs
//!   no runtime.

mod acquire;
mod any_store;
mod at_once;
mod attempt;
mod background;
mod builder;
mod charged;
mod clock;
mod debts;
mod decide;
mod denials;
mod error;
mod fallback;
mod health;
mod hold;
mod lease;
mod limiter;
mod line;
mod nodes;
mod part;
mod permit;
mod recovery;
mod reservation;
mod sharded;
mod slices;
mod status;
mod store_calls;
mod store_parts;
mod verdict;

pub use tollgate_core::{
    Algorithm, Allow, Applied, Attributes, BreakerSettings, Charge, Cost, CostRule, Decision,
    Decisions, Deny, Exception, FailurePolicy, Fraction, HotKeys, LeaseTerms, LocalShare, Matcher,
    Missing, Operation, Pattern, Quota, QuotaError, Rate, Rule, RuleError, RuleSet, ShardTerms,
    Store, StoreError, StoreErrorKind, Ticket, Timestamp, Treatment,
};
pub use tollgate_memory::MemoryStore;
#[cfg(feature = "redis")]
pub use tollgate_redis::{RedisStatus, RedisStore, RedisStoreBuilder, ScriptTime, TimeSource, Tls};

pub use crate::acquire::Acquisition;
pub use crate::any_store::AnyStore;
pub use crate::builder::LimiterBuilder;
pub use crate::clock::{Clock, ManualClock, SystemClock};
pub use crate::error::CheckError;
pub use crate::hold::{Hold, HoldError};
pub use crate::limiter::Limiter;
pub use crate::part::Part;
pub use crate::permit::Permit;
pub use crate::reservation::Reservation;
pub use crate::status::{Status, StatusChange};
pub use crate::store_calls::{StoreCall, StoreCallEnd, StoreCalls};
pub use crate::verdict::{Mode, RuleDecision, Verdict};
