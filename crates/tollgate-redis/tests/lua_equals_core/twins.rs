//! A store and core side by side.

use std::collections::HashMap;
use std::time::Duration;

use tollgate_core::{
    Change, Charge, Cost, Decisions, Operation, Quota, Record, RecordChange, State, Store, Stored,
    Ticket, Timestamp, decide_together,
};
use tollgate_redis::{RedisStore, TimeSource};
use tollgate_testkit::RedisServer;

use crate::stored::{Dump, Seen, dump};

/// A store on the clock of the test, and a connection that looks at what it stores.
pub(crate) struct Twins {
    pub(crate) store: RedisStore,
    pub(crate) redis: redis::Connection,
    pub(crate) max_clock_skew: Duration,
}

/// One bucket as core keeps it, with its records.
#[derive(Debug)]
pub(crate) struct Twin {
    pub(crate) key: String,
    pub(crate) quota: Quota,
    pub(crate) state: Option<State>,
    pub(crate) records: HashMap<Ticket, Record>,
}

/// What a request is charged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charged {
    /// Which bucket.
    pub(crate) index: usize,
    pub(crate) cost: Cost,
    pub(crate) shadow: bool,
    pub(crate) ticket: Option<Ticket>,
}

impl Charged {
    pub(crate) fn new(index: usize, cost: u64) -> Self {
        Self { index, cost: Cost::new(cost), shadow: false, ticket: None }
    }

    pub(crate) fn with_ticket(self, ticket: Ticket) -> Self {
        Self { ticket: Some(ticket), ..self }
    }
}

impl Twin {
    pub(crate) fn new(key: impl Into<String>, quota: Quota) -> Self {
        Self { key: key.into(), quota, state: None, records: HashMap::new() }
    }

    /// The key in Redis.
    pub(crate) fn bucket_key(&self) -> String {
        format!("tollgate:{}", self.key)
    }

    /// The key of a record in Redis.
    fn record_key(&self, ticket: Ticket) -> String {
        format!("{{tollgate:{}}}:ticket:{ticket}", self.key)
    }
}

impl Twins {
    pub(crate) async fn new(server: &RedisServer, max_clock_skew: Duration) -> Self {
        let store = RedisStore::builder(server.url())
            .time_source(TimeSource::Client)
            .max_clock_skew(max_clock_skew)
            .timeout(Duration::from_secs(10))
            .connect()
            .await
            .unwrap();
        let redis = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        Self { store, redis, max_clock_skew }
    }

    /// Applies the operation to both, and compares what they decide and what they then hold.
    pub(crate) async fn apply(
        &mut self,
        operation: Operation,
        twins: &mut [Twin],
        charged: &[Charged],
        now: Timestamp,
        context: &str,
    ) -> Decisions {
        let charges: Vec<Charge<'_>> = charged
            .iter()
            .map(|&Charged { index, cost, shadow, ticket }| {
                let twin = &twins[index];
                Charge { shadow, ticket, ..Charge::new(&twin.key, &twin.quota, cost) }
            })
            .collect();
        let stored: Vec<Stored<'_>> = charged
            .iter()
            .map(|one| {
                let twin = &twins[one.index];
                let record = one.ticket.filter(|_| operation.has_records());
                let record = record.and_then(|ticket| twin.records.get(&ticket).copied());
                Stored { state: twin.state.as_ref(), record }
            })
            .collect();
        let effects = decide_together(operation, &charges, &stored, self.max_clock_skew, now);
        let applied = self.store.apply(operation, &charges, now).await;
        let decisions = applied.unwrap_or_else(|error| panic!("{context}: {operation:?} {error}"));
        assert_eq!(
            decisions, effects.decisions,
            "{context}: {operation:?} {charges:?} at {now} on {stored:?} under {:?}",
            self.max_clock_skew
        );

        for ((change, record), one) in effects.changes.iter().zip(&effects.records).zip(charged) {
            let twin = &mut twins[one.index];
            change.apply(&mut twin.state);
            match (record, one.ticket) {
                (RecordChange::Store(record), Some(ticket)) => {
                    twin.records.insert(ticket, *record);
                }
                (RecordChange::Remove, Some(ticket)) => drop(twin.records.remove(&ticket)),
                _ => {}
            }
        }
        let context = format!("{context}: {operation:?} {charged:?} at {now}");
        self.compare(twins, charged, &effects.changes, now, &context);
        decisions
    }

    /// Compares what Redis holds for the charged buckets with what core does.
    fn compare(
        &mut self,
        twins: &[Twin],
        charged: &[Charged],
        changes: &[Change],
        now: Timestamp,
        context: &str,
    ) {
        let bucket_keys = charged.iter().map(|one| twins[one.index].bucket_key());
        let record_key = |one: &Charged| Some(twins[one.index].record_key(one.ticket?));
        let keys: Vec<String> = bucket_keys.chain(charged.iter().filter_map(record_key)).collect();
        let mut dumps = dump(&mut self.redis, &keys).into_iter();
        for (one, change) in charged.iter().zip(changes) {
            let (twin, dump) = (&twins[one.index], dumps.next().unwrap());
            assert_eq!(dump.state(), twin.state.as_ref().map(Seen::from), "{context}");
            if let Some(state) = &twin.state {
                assert!(dump.ttl_ms > 0, "{context}: no TTL on {}", twin.key);
                if matches!(change, Change::Edit(_)) {
                    self.assert_ttl(twin, state, &dump, now, context);
                }
            }
        }
        for one in charged {
            let Some(ticket) = one.ticket else { continue };
            let dump = dumps.next().unwrap();
            let record = twins[one.index].records.get(&ticket);
            let expected = record.map(|Record { units, since, queue_end, ends }| {
                let [since, queue_end, ends] = [since, queue_end, ends].map(|at| at.as_micros());
                format!("{units}:{since}:{queue_end}:{ends}")
            });
            assert_eq!(dump.content.first(), expected.as_ref(), "{context}: {ticket}");
            assert_eq!(dump.ttl_ms > 0, record.is_some(), "{context}: {ticket}");
        }
    }

    /// G5: after a write the key lives at least until nothing in it counts, and not much longer.
    fn assert_ttl(&self, twin: &Twin, state: &State, dump: &Dump, now: Timestamp, context: &str) {
        let look = Charge::new(&twin.key, &twin.quota, Cost::ZERO);
        let (decision, _) = look.decide(Some(state), self.max_clock_skew, now);
        let needed_us = decision.reset_after().as_micros();
        let needed_ms = needed_us.div_ceil(1_000);
        // Beyond 2^53 us the script's time is rounded, maybe to the other side of a millisecond.
        let rounding_ms = (needed_ms >> 51) + u128::from(needed_us >= 1 << 53);
        let ttl_ms = u128::try_from(dump.ttl_ms).unwrap();
        let range = needed_ms..=needed_ms + 5_000 + rounding_ms;
        assert!(range.contains(&ttl_ms), "{context}: TTL {ttl_ms} ms, not {range:?}");
    }
}
