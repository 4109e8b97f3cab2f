//! The offered load, and what an algorithm admits of it.

use std::time::Duration;

use tollgate_core::{
    Algorithm, Charge, Cost, MAX_CLOCK_SKEW_DEFAULT, Operation, Quota, State, Stored, Ticket,
    Timestamp, decide_together,
};

/// How long the plots last.
pub(super) const LENGTH: Duration = Duration::from_millis(7_500);

/// How long a request is in flight where that matters.
pub(super) const SERVICE_TIME: Duration = Duration::from_millis(200);

/// A whole second, so that the windows that are aligned to it begin where the axis has its marks.
const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// When requests arrive: 30 at once shortly before a second begins, 25 per second for three
/// seconds, and 30 at once after a pause of two seconds.
pub(super) fn offered() -> impl Iterator<Item = Duration> {
    let burst = |at_ms| std::iter::repeat_n(Duration::from_millis(at_ms), 30);
    let steady = (0..75).map(|index| Duration::from_millis(1_000 + index * 40));
    burst(900).chain(steady).chain(burst(6_000))
}

/// The requests that one bucket admitted.
pub(super) struct Admitted {
    starts: Vec<Duration>,
}

impl Admitted {
    pub(super) fn of(quota: &Quota) -> Self {
        let mut bucket = Bucket { quota, state: None, in_flight: Vec::new() };
        Self { starts: offered().filter_map(|at| bucket.ask(at)).collect() }
    }

    /// Returns when they started, in order.
    pub(super) fn starts(&self) -> &[Duration] {
        &self.starts
    }

    /// Returns how many count from each instant on at which that changes, if each counts for so
    /// long.
    pub(super) fn counts(&self, counts_for: Duration) -> Vec<(Duration, usize)> {
        let starts = self.starts.iter().copied();
        let mut instants: Vec<_> = starts.flat_map(|start| [start, start + counts_for]).collect();
        instants.sort_unstable();
        instants.dedup();
        let count = |now: Duration| {
            let counting = |start: &&Duration| **start <= now && now < **start + counts_for;
            self.starts.iter().filter(counting).count()
        };
        instants.into_iter().map(|now| (now, count(now))).collect()
    }

    /// Returns the most that count at any instant.
    pub(super) fn peak(&self, counts_for: Duration) -> usize {
        self.counts(counts_for).into_iter().map(|(_, count)| count).max().unwrap_or_default()
    }
}

/// A bucket on a clock of its own.
struct Bucket<'a> {
    quota: &'a Quota,
    state: Option<State>,
    /// Who holds slots, and until when.
    in_flight: Vec<(Ticket, Duration)>,
}

impl Bucket<'_> {
    /// Asks for one unit and returns when the request starts, if it was admitted.
    fn ask(&mut self, at: Duration) -> Option<Duration> {
        let is_done = |(_, done): &mut (Ticket, Duration)| *done <= at;
        for (ticket, done) in self.in_flight.extract_if(.., is_done).collect::<Vec<_>>() {
            self.apply(Operation::Release, ticket, done);
        }
        let ticket = Ticket::new(at.as_micros() << 16 | self.in_flight.len() as u128);
        let delay = self.apply(Operation::Spend, ticket, at)?;
        if let Algorithm::Concurrency { .. } = self.quota.algorithm() {
            self.in_flight.push((ticket, at + SERVICE_TIME));
        }
        Some(at + delay)
    }

    /// Applies an operation and returns the delay, if it was allowed.
    fn apply(&mut self, operation: Operation, ticket: Ticket, at: Duration) -> Option<Duration> {
        let charge = Charge::new("plot", self.quota, Cost::ONE).with_ticket(ticket);
        let stored = Stored { state: self.state.as_ref(), record: None };
        let now = START.saturating_add(at);
        let effects = decide_together(operation, &[charge], &[stored], MAX_CLOCK_SKEW_DEFAULT, now);
        effects.changes[0].apply(&mut self.state);
        let decision = effects.decisions[0];
        decision.is_allow().then(|| decision.delay())
    }
}
