//! The Redis store of Tollgate: many processes share one exact budget.
//!
//! [`RedisStore`] keeps each bucket under one key. One Lua script reads, judges, spends and sets the
//! expiry of all buckets of a request in one atomic step, whatever their algorithms, in the same
//! integer arithmetic as `tollgate_core`: for the same timeline it gives the same decisions and
//! stores the same state (G8).
//!
//! # Rules
//!
//! 1. The key of a bucket is `<prefix>:<key of the charge>`. It holds a hash of decimal integers, or
//!    for a concurrency limit a sorted set of leases; `lua/README.md` lists the fields, and what each
//!    algorithm costs. For a token bucket they are `level`, `scale` and `ts` (microseconds since the
//!    Unix epoch): the bucket held `level / scale` tokens at `ts`.
//! 2. A reservation, and a refund under a ticket, leave a note beside the bucket, under
//!    `{<key of the bucket>}:ticket:<ticket>`, until they end.
//! 3. Every write sets a TTL of the time until nothing in the key counts plus 5 s. An expired key is
//!    a full bucket, which is the same as none (G5). A denial and a look write nothing (G3).
//! 4. Time is the server's `TIME`, read inside the script, unless [`TimeSource::Client`] says
//!    otherwise.
//! 5. A key that holds something else is never decided on and never written: the call fails as
//!    [corrupt](tollgate_core::StoreError::is_corrupt) and names the key. The state of another
//!    algorithm counts as none; rules keep it under [another key](tollgate_core::key).
//! 6. Each operation ends within its deadline, 50 ms unless set otherwise. Only an error that says
//!    that nothing was executed is answered by a second try, once, inside the same deadline: a
//!    connection that did not come about, or a server that is loading, busy, failing over or
//!    read-only. A timeout is never followed by one. A script that the server has forgotten is sent
//!    again and counted by [`RedisStatus::script_reloads`].
//! 7. Connections are made in the background, one after the other, and never by a call. Calls wait
//!    within their deadline for the first attempt after a connection ended; once that has failed or
//!    takes longer than a deadline, they fail at once until there is a connection. Between attempts
//!    are jittered pauses, from 10 ms up to half a second.
//! 8. A connection is replaced when it breaks, when five calls in a row had no answer and nothing else
//!    came for 250 ms either (a half-open connection), and when the server is read-only, then at most
//!    once a second. The kernel breaks it when sent data is not acknowledged for 2 s (Linux).
//! 9. At most 10,000 calls are under way unless set otherwise; further ones fail at once.
//!
//! [`RedisStore::status`] counts all of that.
//!
//! # TLS
//!
//! `rediss://` in the place of `redis://`. The server's certificate is always checked, against the CAs
//! of the system or those of [`Tls`], which also holds the client's own certificate (mTLS). The
//! cryptography is that of *ring*, whatever else the process has installed.
//!
//! # Redis Sentinel
//!
//! [`RedisStore::sentinel`], or a URL of `redis+sentinel://`, names the sentinels. All are asked for the
//! primary, and the one with the latest view is believed. They are asked again when one announces a
//! `+switch-master`, and when the primary cannot be reached, does not answer or is read-only, ten times
//! a second at most. A failover to a replica that lags admits again what the lag lost.
//!
//! # Redis Cluster
//!
//! [`RedisStore::cluster`], or a URL of `redis+cluster://`, names one or more nodes, and the others are
//! found. Redirections (`MOVED`, `ASK`) are followed inside the deadline. The slots are looked up again
//! when a node redirects, cannot be reached, or answers nothing; a node that is gone fails the calls on
//! its slots only.
//!
//! Buckets of one hash slot are decided in one atomic step, those of several slots beside each other.
//! If an enforced charge is denied in one slot, or a slot fails, what the other slots took is given
//! back at once:
//!
//! - A request never spends in some buckets only, for longer than **the delay of that giving back, one
//!   more round trip** (G7). Others may be denied meanwhile by what is about to come back.
//! - Nothing is admitted that one server would not admit (G1). What cannot be given back because a node
//!   does not answer stays spent, and comes back as spent units do. So does what a node spent whose
//!   answer was late.
//! - A shadow charge counts for itself and is not given back, unless the call fails.
//! - [`Settle`](tollgate_core::Operation::Settle), [`Refund`](tollgate_core::Operation::Refund),
//!   [`Renew`](tollgate_core::Operation::Renew) and [`Release`](tollgate_core::Operation::Release) are
//!   applied in each slot for itself: where one fails, the others are done. Under a ticket they may be
//!   repeated.
//!
//! Each node's own clock decides in its slots. Keys with a common hash tag, `{alice}:...`, are in one
//! slot.
//!
//! # Deployment caveat
//!
//! Give Tollgate a primary, not a replica, and memory enough for a `maxmemory-policy` of
//! `noeviction`. Every other policy evicts buckets that are not full, and an evicted bucket is a
//! full one; `volatile-ttl` does the least harm, as it begins with those that are nearest to full.
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
mod coalesce;
mod connection;
mod error;
mod health;
mod key;
mod lookup;
mod membership;
mod reply;
mod script;
mod script_time;
mod sentinel;
mod server;
mod status;
mod store;
mod stream;
mod target;
mod tls;
mod transport;
mod url;

pub use crate::builder::{RedisStoreBuilder, TimeSource};
pub use crate::script::SCRIPT;
pub use crate::script_time::ScriptTime;
pub use crate::status::RedisStatus;
pub use crate::store::RedisStore;
pub use crate::tls::Tls;
