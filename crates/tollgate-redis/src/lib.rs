//! The Redis store of Tollgate: many processes share one exact budget.
//!
//! [`RedisStore`] keeps each bucket in one Redis hash. One Lua script refills, judges, spends and
//! sets the expiry of all buckets of a request in one atomic step, in the same integer arithmetic
//! as `tollgate_core`: for the same timeline it gives the same decisions and stores the same state
//! (G8).
//!
//! # Rules
//!
//! 1. The key of a bucket is `<prefix>:<key of the charge>`. The hash has the decimal fields
//!    `level`, `scale` and `ts` (microseconds since the Unix epoch): the bucket held
//!    `level / scale` tokens at `ts`.
//! 2. Every write sets a TTL of the time until the bucket is full plus 5 s. An expired key is a
//!    full bucket, which is the same as none (G5). A denial and a look write nothing (G3).
//! 3. Time is the server's `TIME`, read inside the script, unless [`TimeSource::Client`] says
//!    otherwise.
//! 4. A key that holds something else is never decided on and never written: the call fails as
//!    [corrupt](tollgate_core::StoreError::is_corrupt) and names the key.
//! 5. Each operation ends within its deadline, 50 ms unless set otherwise. Only an error that says
//!    that nothing was executed is answered by a second try, once, inside the same deadline: a
//!    connection that did not come about, or a server that is loading, busy, failing over or
//!    read-only. A script that the server has forgotten is sent again and counted by
//!    [`RedisStore::script_reloads`].
//! 6. A broken connection is replaced at the next call, in the background, by one attempt for all
//!    who wait. So is one that answered nothing for a second, and one to a server that became a
//!    replica.
//!
//! # Deployment caveat
//!
//! Give Tollgate a primary, not a replica, and memory enough for a `maxmemory-policy` of
//! `noeviction`. Every other policy evicts buckets that are not full, and an evicted bucket is a
//! full one; `volatile-ttl` does the least harm, as it begins with those that are nearest to full.
//! A failover to a replica that lags admits again what the lag lost.
//!
//! Operations run inside a tokio runtime with I/O and time enabled. Needs Redis 5 or later, or
//! Valkey; the server's user needs the commands that `lua/README.md` lists.
//!
//! # Examples
//!
//! ```no_run
//! use tollgate_core::{Charge, Cost, Operation, Quota, Store, Timestamp};
//! use tollgate_redis::RedisStore;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::builder("redis://127.0.0.1:6379").connect().await?;
//! let quota = Quota::new("20/min".parse()?, 20)?;
//! let charge = Charge::new("default:login:ip=192.0.2.1", &quota, Cost::ONE);
//! // The server's clock decides, so `now` is ignored.
//! let decisions = store.apply(Operation::Spend, &[charge], Timestamp::EPOCH).await?;
//! assert_eq!(decisions[0].remaining(), 19);
//! # Ok(())
//! # }
//! ```

mod across;
mod builder;
mod call;
mod cluster;
mod connection;
mod error;
mod key;
mod reply;
mod script;
mod store;
mod target;
mod transport;

pub use crate::builder::{RedisStoreBuilder, TimeSource};
pub use crate::script::SCRIPT;
pub use crate::store::RedisStore;
