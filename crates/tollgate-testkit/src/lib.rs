//! Proves that a store decides exactly, for those who wrote one.
//!
//! A rate limiter that is off by a microsecond or a unit looks right in every hand-written test.
//! This crate holds what finds the difference: worked timelines with the exact answer to each
//! request, a runner that replays them on any [`Store`](tollgate_core::Store), a model of every
//! algorithm that is slow and obvious, and a `redis-server` or a Redis Cluster of the test's own.
//!
//! # Proving a store of your own
//!
//! **1. Replay the worked timelines.** [`conformance::replay`] passes the timeline's time as
//! `now`, so nothing sleeps and the test takes milliseconds:
//!
//! ```
//! use tollgate_core::Store;
//! use tollgate_testkit::{conformance, timeline};
//!
//! async fn reproduces_every_timeline(store: impl Store) {
//!     for file in timeline::ALL {
//!         for timeline in timeline::parse(file).unwrap() {
//!             if let Err(failure) = conformance::replay(&store, &timeline).await {
//!                 panic!("{}: {failure}", timeline.name());
//!             }
//!         }
//!     }
//! }
//! ```
//!
//! A store that decides but forgets to spend fails with the step, the field and both values:
//!
//! ```text
//! classic-burst-5-at-1-per-second: step 1 at 0us: remaining expected 4, got 5
//! ```
//!
//! **2. Write timelines of your own.** The form of the files is on the page of [`mod@timeline`].
//! [`Model`] gives the exact answers for them.
//!
//! **3. Compare with the model at random.** The timelines show the known traps; random ones find the
//! others. Drive [`Model::apply`] and the store with the same random operations and compare
//! [`Answer`]s:
//!
//! ```
//! use tollgate_core::{Charge, Cost, MAX_CLOCK_SKEW_DEFAULT, Quota, Timestamp};
//! use tollgate_testkit::{Answer, Model};
//!
//! let quota = Quota::sliding_log("3/s".parse()?)?;
//! let charge = Charge::new("key", &quota, Cost::ONE);
//! let (mut model, mut state) = (Model::default(), None);
//! for step in 0..1_000 {
//!     let now = Timestamp::from_micros(1_700_000_000_000_000 + step * 77_777);
//!     let (decision, change) = charge.decide(state.as_ref(), MAX_CLOCK_SKEW_DEFAULT, now);
//!     change.apply(&mut state);
//!     assert_eq!(Answer::from(decision), model.check(&quota, Cost::ONE, now), "step {step}");
//! }
//! # Ok::<(), tollgate_core::QuotaError>(())
//! ```
//!
//! **4. What no timeline can show.** That concurrent calls equal some serial order (G6), that
//! several charges are spent together or not at all (G7), and that only full buckets are dropped
//! (G5, G9) is for tests of the store itself. For stores in Redis, [`RedisServer`] gives each test a
//! server that it can pause, kill and restart, [`RedisCluster`] several that share the slots, and
//! [`RedisSentinel`] a primary, a replica and the sentinels that fail over. [`FaultProxy`] stands
//! between a store and a server and does what networks do.
//!
//! # The command
//!
//! `tollgate-conformance` replays files on the stores of Tollgate, one line per timeline:
//!
//! ```text
//! $ tollgate-conformance --store redis://127.0.0.1:6379 cases/*.json
//! slots-come-back-by-release-and-by-the-end-of-a-lease: ok
//! ...
//! 29 timelines: 29 ok, 0 different, 0 unsupported
//! $ tollgate-conformance --store redis+cluster://127.0.0.1:7000,127.0.0.1:7001 cases/*.json
//! ```
//!
//! It exits with 0 if all are reproduced, with 1 if one differs or is unsupported, and with 2
//! if an argument, a file or the store is at fault.
//!
//! # Features
//!
//! `cli` (on by default) builds the command and needs the stores of Tollgate; libraries that only
//! test their own store turn it off. `tls` adds certificates, and servers that listen with them.

#[cfg(all(unix, feature = "tls"))]
pub mod certificates;
pub mod conformance;
pub mod fault_proxy;
pub mod model;
#[cfg(unix)]
pub mod redis_cluster;
#[cfg(unix)]
pub mod redis_sentinel;
#[cfg(unix)]
pub mod redis_server;
pub mod timeline;

mod answer;

pub use crate::answer::Answer;
pub use crate::fault_proxy::FaultProxy;
pub use crate::model::Model;
#[cfg(unix)]
pub use crate::redis_cluster::RedisCluster;
#[cfg(unix)]
pub use crate::redis_sentinel::RedisSentinel;
#[cfg(unix)]
pub use crate::redis_server::RedisServer;
