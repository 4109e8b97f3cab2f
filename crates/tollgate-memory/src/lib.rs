//! The in-process store of Tollgate: exact, sharded, and bounded whatever keys are sent.
//!
//! [`MemoryStore`] keeps the buckets of one process. It is the store of a service that runs once,
//! the local fallback of one whose Redis is gone, and the store of tests. It has no background
//! thread, no clock and no runtime: every call takes `now` and returns at once. The `tollgate`
//! crate puts rules and a clock around it.
//!
//! ```
//! use std::time::Duration;
//! use tollgate_core::{Charge, Cost, Operation, Quota, Timestamp};
//! use tollgate_memory::MemoryStore;
//!
//! let store = MemoryStore::builder().keys_max(2).build();
//! let quota = Quota::new("1/s".parse()?, 3)?;
//! let spend = |key, units, now| {
//!     store.decide_one(Operation::Spend, &Charge::new(key, &quota, Cost::new(units)), now)
//! };
//! let start = Timestamp::from_micros(1_700_000_000_000_000);
//! assert_eq!(spend("ip=1.2.3.4", 1, start)?.remaining(), 2);
//! assert_eq!(spend("ip=5.6.7.8", 3, start)?.remaining(), 0);
//! assert_eq!(store.len(), 2);
//!
//! // Both buckets are short of full, so there is no room for a third and nothing is spent.
//! let error = spend("ip=9.9.9.9", 1, start).unwrap_err();
//! assert!(error.is_full());
//!
//! // A second later the first is full again and makes room. The second is not, and stays.
//! let later = start.saturating_add(Duration::from_secs(1));
//! assert_eq!(spend("ip=9.9.9.9", 1, later)?.remaining(), 2);
//! assert_eq!(spend("ip=5.6.7.8", 2, later)?.retry_after(), Some(Duration::from_secs(1)));
//! assert_eq!((store.len(), store.evicted()), (2, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is kept
//!
//! Of each bucket the [`State`](tollgate_core::State), whatever its algorithm, and beside it a
//! [`Record`](tollgate_core::Record) for each ticket under which something was reserved, or refunded.
//! A state is changed in place, so a check copies none however large it is. A bucket that is full has
//! no state, and a record is gone when it has ended.
//!
//! A token bucket or a leaky bucket is kept without its key, by 112 bits of two hashes of it. Their seeds are
//! secret, each store's own, and have nothing in common. **Two keys whose 112 bits are the same share one
//! budget**: among n keys there are two with a probability below n²/2 / 2^112, if the hash is as good as
//! random. That is 1e-22 for a million keys, and far less than that of an error of the memory itself. Windows, logs,
//! slots and records are kept with their keys.
//!
//! # Atomicity
//!
//! The keys are spread over 64 shards, or over one for every 8,192 keys of `keys_max` if those are
//! more, up to 2,048, by a hash whose seed is the store's own, so that nobody can
//! choose keys that meet in one shard. Each shard is a hash table behind a lock, with others for what is
//! kept with its keys. A check locks the shards of its charges, each once and in ascending order,
//! reads, decides and writes, and unlocks them: concurrent checks equal some serial order (G6), several
//! charges are spent together or not at all (G7), and checks cannot deadlock. A check of one stored key
//! takes one lock and allocates nothing, unless a sliding window or a concurrency limit has more to
//! remember. A bucket that is denied twice in a row, with none of its shard in between, is denied without the
//! lock from then on: the shard posts a copy of it, which whoever changes anything there withdraws before letting go of its locks.
//!
//! # The cap
//!
//! At most `keys_max` buckets and as many records are stored, counted over all shards (G9), and no key
//! is longer than [`KEY_LEN_MAX`]. The two are counted apart, so that reservations and refunds, of which
//! one caller can have any number, leave no bucket without room. A bucket that is full is not stored in
//! the first place, so looks, denials, settlements and refunds without a ticket never need room. A spend
//! from a key that is not stored does, and so does the record of a reservation or of a refund under a
//! ticket. When the store is at its cap, it makes room by evicting a bucket that is full at `now`, or a
//! record that has ended. If there is none of that kind it fails with
//! [`is_full`](tollgate_core::StoreError::is_full) and spends nothing in any charge. What is neither full
//! nor ended is never evicted, since that would hand out its units twice.
//!
//! So a check fails if and only if more than `keys_max` buckets would be short of full, and a reservation
//! also if more than `keys_max` records would stand, with two exceptions. Checks that compete for the last room at
//! the same time may fail together where one would have fitted. And a check gives up when it has come upon 1,024
//! buckets that were put off since they took their place in the order of eviction (see below). It has put these
//! right, so that of a million of them no more than a thousand checks fail.
//!
//! Choose `keys_max` above the number of keys that spend within the longest time in which a quota
//! refills, and of tickets within the longest time for which they are remembered. A caller who invents keys can use up the room for new keys, but never the units of those that are stored; what
//! happens to new keys then is for the failure policy of the rules to say.
//!
//! # Eviction
//!
//! Each shard orders its buckets by the time at which they may be full, and its records by their end. A
//! spend puts a bucket's time off and leaves the order as it is; whoever finds the bucket first in it
//! puts it right. So all checks together move or evict at most one bucket for each that was spent from,
//! in O(log n), and a caller cannot make them do more. At the cap a check reads one number of each shard
//! that has nothing to evict, moves or evicts at most 1,024 buckets, and lets go of a lock after every 16.
//!
//! Below the cap each write evicts from its shards up to four buckets that are full or records that
//! have ended, and tables shrink when most of their keys are gone: memory that a burst of keys took
//! comes back with the writes that follow. [`MemoryStore::evict_full`] does the same for all shards
//! where no writes follow. Both wait until a bucket has been full for `max_clock_skew`, so that even a
//! check whose clock is behind by that much is decided as if nothing had been evicted (G5, G8). A
//! spending from a key that was stored waits 10 s longer, so that buckets that are always in use are
//! rarely touched for their place in the order.
//!
//! Two limits of this are worth knowing:
//!
//! - A bucket is full by the quota under which it was last written. If a quota is then made slower or
//!   larger, buckets that nobody checks in between still leave when they were full by the old one.
//! - When the clock has been set back by more than `max_clock_skew`, buckets lie in the future and
//!   would leave only when the clock has caught up. A check that finds no room moves shards of at least 4,096
//!   of them to `now`, with the units they have (G4), and there is room as soon as they refill. Fixed windows, slots and
//!   records do not tell when they were written: they leave when any that is written now would have
//!   ended for every clock, by the longest period, lease or reservation that their shard has seen.
//!
//! # Memory
//!
//! A stored token bucket or leaky bucket takes a slot of 32 bytes, half a cache line, in a table that is 70 to
//! 85 % full, and 16 to 20 bytes in the order: 55 to 70 bytes, however long its key is. Of its quota each shard keeps
//! once what the refill depends on. A bucket of another algorithm takes a slot of 64 bytes, and its key beside it. A
//! million token buckets took 65 bytes each, and 73 of resident memory with the allocator's share. An empty store
//! of the default size takes 33 KB. [`MemoryStore::bytes`] counts all but the allocator's share.
//!
//! To these come 16 to 32 bytes for each cell of a sliding window in which something was spent, at most
//! 101 cells; the same for each request that a sliding log remembers, at most 10,000; and some 130 for
//! each lease of a concurrency limit, at most 10,000. A record takes 118 to 141 bytes beside its key.
//! The cap counts keys, not these: choose small limits for logs and slots whose keys a caller can invent.
//!
//! # The longest check
//!
//! Tables grow by a fifth, one shard at a time, and under its lock: that moves up to 8,192 slots in a store of at most
//! 16 million keys, some tenths of a millisecond. Of larger stores the shards are larger too. What else one check
//! may have to do is bounded as said above, and takes no longer.

mod builder;
mod exact;
mod kept;
mod kept_bucket;
mod key_hash;
mod last_denied;
mod queue;
mod quotas;
mod room;
mod shard;
mod shard_lock;
mod shelf;
mod store;
mod sync;
mod table;

pub use crate::builder::{KEYS_MAX_DEFAULT, MemoryStoreBuilder};
pub use crate::store::{KEY_LEN_MAX, MemoryStore};
