//! The reference: plain maps, and the pure function.

use std::collections::HashMap;
use std::time::Duration;

use tollgate_core::{
    Change, Charge, Decisions, Operation, Record, RecordChange, State, Stored, Ticket, Timestamp,
    decide_together,
};

type Records = HashMap<(String, Ticket), Record>;

/// A state, and when the bucket is full by the quota that wrote it, in microseconds.
#[derive(Clone, Debug)]
struct Written {
    state: State,
    full_at_us: u128,
}

/// Maps without a limit. Nothing leaves them unless [`evict`](Self::evict) is called.
#[derive(Clone, Debug)]
pub struct Reference {
    states: HashMap<String, Written>,
    records: Records,
    max_clock_skew: Duration,
    /// How many times a state had to be moved to the time of a request.
    pub repaired: usize,
}

impl Reference {
    pub fn new(max_clock_skew: Duration) -> Self {
        let (states, records) = (HashMap::new(), HashMap::new());
        Self { states, records, max_clock_skew, repaired: 0 }
    }

    /// Drops what has been full, or has ended, for the clock skew.
    pub fn evict(&mut self, now: Timestamp) {
        let by = now.saturating_sub(self.max_clock_skew);
        self.states.retain(|_, written| written.full_at_us > u128::from(by.as_micros()));
        self.records.retain(|_, record| record.stands(by));
    }

    /// Fills the bucket of a key. Records stay.
    pub fn reset(&mut self, key: &str) {
        self.states.remove(key);
    }

    /// Applies a request, unless more than `keys_max` buckets, or more records, would then be live.
    pub fn apply(
        &mut self,
        operation: Operation,
        charges: &[Charge<'_>],
        keys_max: usize,
        now: Timestamp,
    ) -> Option<Decisions> {
        let record_of = |charge: &Charge<'_>| Some((charge.key.to_owned(), charge.ticket?));
        let stored: Vec<_> = charges
            .iter()
            .map(|charge| Stored {
                state: self.states.get(charge.key).map(|written| &written.state),
                record: record_of(charge)
                    .filter(|_| operation.has_records())
                    .and_then(|key| self.records.get(&key).copied()),
            })
            .collect();
        let effects = decide_together(operation, charges, &stored, self.max_clock_skew, now);

        let mut after = self.clone();
        for (index, charge) in charges.iter().enumerate() {
            after.change(
                charge,
                effects.changes[index],
                effects.decisions[index].reset_after(),
                now,
            );
            match (effects.records[index], record_of(charge)) {
                (RecordChange::Store(record), Some(key)) => drop(after.records.insert(key, record)),
                (RecordChange::Remove, Some(key)) => drop(after.records.remove(&key)),
                _ => {}
            }
        }
        if after.live_max(now) > keys_max {
            return None;
        }
        *self = after;
        Some(effects.decisions)
    }

    fn change(
        &mut self,
        charge: &Charge<'_>,
        change: Change,
        reset_after: Duration,
        now: Timestamp,
    ) {
        if change == Change::Keep {
            return;
        }
        let mut state = self.states.remove(charge.key).map(|written| written.state);
        let is_ahead = |ts: Timestamp| ts.saturating_since(now) > self.max_clock_skew;
        self.repaired += usize::from(state.as_ref().and_then(State::ts).is_some_and(is_ahead));
        change.apply(&mut state);
        let full_at_us = u128::from(now.as_micros()) + reset_after.as_micros();
        let written = state.map(|state| (charge.key.to_owned(), Written { state, full_at_us }));
        self.states.extend(written);
    }

    /// Returns how many buckets are live, or how many records if those are more.
    fn live_max(&self, now: Timestamp) -> usize {
        let is_short = |written: &&Written| written.full_at_us > u128::from(now.as_micros());
        let states = self.states.values().filter(is_short).count();
        states.max(self.records.values().filter(|record| record.stands(now)).count())
    }
}
