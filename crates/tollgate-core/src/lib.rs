//! The exact rate-limiting algorithms of Tollgate as pure functions.
//!
//! This crate contains no I/O, reads no clock and needs no runtime. A decision is a function of
//! the stored state, the quota, the cost and `now`; stores own the atomic swap. Applications
//! depend on the `tollgate` crate, which puts a store and a clock around it; this crate is for
//! those who write a store of their own.
//!
//! # The three nouns
//!
//! - A [`Quota`] is a [`Rate`] with a burst, checked at construction and scaled so that all
//!   arithmetic is exact.
//! - A [`Rule`] names a quota, the requests it applies to and the [`Attributes`] that make its
//!   buckets; a [`RuleSet`] turns a request into [`Charge`]s.
//! - A [`Decision`] is what one bucket answers; [`decide_together`] decides the charges of one
//!   request, all or none.
//!
//! The algorithm and its rules are on the page of [`token_bucket`]; the form of a key is on the
//! page of [`mod@key`]. What a store must guarantee is on [`Store`].
//!
//! # Guarantees
//!
//! The ids G1 to G11 in these docs are those of the guarantees that Tollgate states and tests; see
//! `docs/guarantees.md`.

pub mod concurrency;
pub mod fixed_window;
pub mod key;
pub mod leaky_bucket;
pub mod sliding_log;
pub mod sliding_window;
pub mod token_bucket;

mod algorithm;
mod attributes;
mod breaker;
mod charge;
mod cost;
mod cost_rule;
mod decision;
mod divisor;
mod edit;
mod exception;
mod failure_policy;
mod fraction;
mod hot_keys;
mod judgement;
mod matcher;
mod operation;
mod pattern;
mod quota;
mod rate;
mod record;
mod rule;
mod rule_set;
mod shards;
mod state;
mod store;
mod ticket;
mod time;
mod together;
mod view;

pub use crate::algorithm::Algorithm;
pub use crate::attributes::{Attributes, DOMAIN_DEFAULT};
pub use crate::breaker::{Breaker, BreakerSettings};
pub use crate::charge::Charge;
pub use crate::cost::Cost;
pub use crate::cost_rule::{CostError, CostRule};
pub use crate::decision::{Allow, Decision, Deny};
pub use crate::edit::Edit;
pub use crate::exception::{Exception, Treatment};
pub use crate::failure_policy::{FailurePolicy, LocalShare};
pub use crate::fraction::Fraction;
pub use crate::hot_keys::{HotKeys, LeaseTerms};
pub use crate::judgement::{Fit, Judgement, Shortfall};
pub use crate::matcher::Matcher;
pub use crate::operation::Operation;
pub use crate::pattern::Pattern;
pub use crate::quota::{Quota, QuotaError};
pub use crate::rate::Rate;
pub use crate::record::{Record, RecordChange};
pub use crate::rule::{Missing, Rule, RuleError};
pub use crate::rule_set::{Applied, RuleSet};
pub use crate::shards::ShardTerms;
pub use crate::state::{Change, State};
pub use crate::store::{Store, StoreError, StoreErrorKind};
pub use crate::ticket::Ticket;
pub use crate::time::Timestamp;
pub use crate::together::{Decisions, Effects, Stored, decide_together};
pub use crate::token_bucket::{Bucket, Decided, JudgedBucket, MAX_CLOCK_SKEW_DEFAULT};
