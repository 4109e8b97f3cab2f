//! Checks that go in one call.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use redis::{Cmd, Value};
use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::{
    Bucket, Charge, Decisions, Operation, Quota, State, StoreError, Stored, Timestamp,
    decide_together,
};

use super::seats::{Seated, Seats, Waiter, Waits};
use super::waiting::{Hashed, Kept, Told};
use crate::TimeSource;
use crate::key::write_bucket;
use crate::reply::{Words, whole};
use crate::script::Form;
use crate::store::Inner;

/// The most charges of one call, which bounds how long it keeps the server busy: to about 0.5 ms.
const CHARGES_MAX: usize = 128;

/// The most checks of one call.
const CHECKS_MAX: usize = 8_192;

/// An estimate of an argument's length that few exceed.
const ARG_BYTES: usize = 8;

/// Checks that go in one call, in the order in which they are decided.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) steps: Vec<Step>,
    pub(super) seats: Seated,
    charges: usize,
    checks: usize,
    now: Timestamp,
    last_steps: LastSteps,
}

/// Checks that are charged the same to the same buckets.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) charges: SmallVec<[Kept; 1]>,
    /// The numbers of their seats.
    pub(super) checks: Vec<usize>,
    /// Whether no other step charges its bucket, which is only one.
    is_alone: bool,
}

/// Where a check can join a batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Room {
    /// In a step, which is the last of all its buckets, so that it keeps its place in the order of
    /// each.
    Step(usize),
    StepOfItsOwn,
}

impl Batch {
    pub(super) fn new(now: Timestamp) -> Self {
        let (steps, seats, last_steps) = (Vec::new(), Seated::default(), LastSteps::default());
        Self { steps, seats, charges: 0, checks: 0, now, last_steps }
    }

    /// Where a check can join behind the others, if it can.
    pub(super) fn room(&self, check: Hashed<'_>, now: Timestamp) -> Option<Room> {
        if now != self.now || self.checks >= CHECKS_MAX {
            return None;
        }
        let last = self.last_steps.common(check.hashes);
        if let Some(number) = last
            && let Some(step) = self.steps.get(number)
            && step.is_charged(check.charges)
        {
            return Some(Room::Step(number));
        }
        let has_room = self.charges + check.charges.len() <= CHARGES_MAX;
        has_room.then_some(Room::StepOfItsOwn)
    }

    /// Takes a check in, where there is room for it.
    pub(super) fn join(&mut self, check: Hashed<'_>, room: Room, waits: Waits) -> Waiter {
        let (seat, waiter) = self.seats.sit_down(waits);
        self.checks += 1;
        match room {
            Room::Step(number) => self.steps[number].checks.push(seat),
            Room::StepOfItsOwn => self.push(check, seat),
        }
        waiter
    }

    fn push(&mut self, check: Hashed<'_>, seat: usize) {
        let number = self.steps.len();
        let mut is_alone = check.charges.len() == 1;
        for hash in check.hashes {
            if let Some(before) = self.last_steps.by_hash.insert(*hash, number) {
                is_alone = false;
                if let Some(before) = self.steps.get_mut(before) {
                    before.is_alone = false;
                }
            }
        }
        let charges = check.charges.iter().map(Kept::new).collect();
        self.steps.push(Step { charges, checks: vec![seat], is_alone });
        self.charges += check.charges.len();
    }

    /// The seats of those who wait.
    pub(super) const fn seats(&self) -> &Arc<Seats> {
        self.seats.seats()
    }

    /// Returns how many charges there are.
    pub(super) const fn charges(&self) -> usize {
        self.charges
    }

    /// Returns how many checks there are.
    pub(super) const fn checks(&self) -> usize {
        self.checks
    }

    /// Drops the checks that nobody waits for any more; they have spent nothing. The others are as
    /// good as sent.
    pub(super) fn drop_unwanted(&mut self, at: Instant) {
        let steps = &mut self.steps;
        self.seats.send(at, |seats| {
            steps.iter_mut().for_each(|step| step.checks.retain(|seat| seats.is_wanted(*seat)));
        });
        self.steps.retain(|step| !step.checks.is_empty());
        self.checks = self.steps.iter().map(|step| step.checks.len()).sum();
        self.charges = self.steps.iter().map(|step| step.charges.len()).sum();
    }

    /// Writes the call.
    pub(super) fn command(&self, inner: &Inner, form: Form) -> Cmd {
        let charges = || self.steps.iter().flat_map(|step| step.charges());
        let mut quotas: Vec<&Quota> = Vec::new();
        let numbers: Vec<usize> = charges()
            .map(|charge| {
                let known = quotas.iter().position(|quota| *quota == charge.quota);
                known.unwrap_or_else(|| {
                    quotas.push(charge.quota);
                    quotas.len() - 1
                })
            })
            .collect();
        let key_bytes: usize = charges().map(|one| inner.prefix.len() + 1 + one.key.len()).sum();
        let runs = self.runs(&numbers);
        let arg_count: usize = runs.iter().map(|run| 4 + 3 * run.step.charges.len()).sum();
        let arg_count = 4 + 4 * quotas.len() + arg_count;
        let mut command = inner.transport.script.call(
            form,
            1 + self.charges + arg_count,
            key_bytes + arg_count * ARG_BYTES,
        );
        command.arg(self.charges);
        charges().for_each(|charge| write_bucket(&mut command, &inner.prefix, charge.key));
        command.arg("batch");
        match inner.time_source {
            TimeSource::Server => command.arg(""),
            TimeSource::Client => command.arg(self.now.as_micros()),
        };
        let skew = Timestamp::EPOCH.saturating_add(inner.max_clock_skew).as_micros();
        command.arg(skew).arg(quotas.len());
        for quota in quotas {
            command.arg(quota.units_per_tick()).arg(quota.scale());
            command.arg(quota.tick_us()).arg(quota.burst());
        }
        for Run { steps, step, numbers } in runs {
            command.arg(steps).arg(step.checks.len()).arg(step.charges.len());
            command.arg(u8::from(step.is_alone));
            for (charge, number) in step.charges().zip(numbers) {
                command.arg(number + 1).arg(charge.cost.units()).arg(u8::from(charge.shadow));
            }
        }
        command
    }

    /// Puts steps that follow each other and are written alike into one run; `numbers` are those of
    /// the quotas of all charges.
    fn runs<'a>(&'a self, mut numbers: &'a [usize]) -> Vec<Run<'a>> {
        let mut runs: Vec<Run<'_>> = Vec::new();
        for step in &self.steps {
            let (own, rest) = numbers.split_at(step.charges.len());
            numbers = rest;
            match runs.last_mut() {
                Some(run) if run.numbers == own && run.step.is_written_as(step) => run.steps += 1,
                _ => runs.push(Run { steps: 1, step, numbers: own }),
            }
        }
        runs
    }

    /// Tells each what the reply means for it, or gives all back if the script cannot have replied
    /// that.
    pub(super) fn tell(self, reply: &Value, max_clock_skew: Duration) -> Result<(), Self> {
        let Some((now, mut before)) = self.read(reply) else { return Err(self) };
        let mut before = before.as_mut_slice();
        self.seats.tell(|telling| {
            telling.reserve(self.checks);
            for step in &self.steps {
                let (own, rest) = mem::take(&mut before).split_at_mut(step.charges.len());
                before = rest;
                for seat in &step.checks {
                    let told = match decide(&step.charges, own, max_clock_skew, now) {
                        Some(decisions) => Told::Decided(decisions),
                        None => Told::GoesAlone,
                    };
                    telling.tell(*seat, told);
                }
            }
        });
        Ok(())
    }

    /// Reads the instant, and for each charge what was there before.
    fn read(&self, reply: &Value) -> Option<(Timestamp, Vec<Before>)> {
        let mut reply = Words::new(reply)?;
        let now = Timestamp::from_micros(whole(reply.next()?)?);
        let mut before = Vec::with_capacity(self.charges);
        for charge in self.steps.iter().flat_map(|step| step.charges()) {
            before.push(match (reply.next()?, reply.next()?) {
                (b"?", _) => Before::Unknown,
                (b"f", _) => Before::Known(None),
                (level, ts) => {
                    let (level, ts) = (whole(level)?, Timestamp::from_micros(whole(ts)?));
                    let scale = charge.quota.scale();
                    Before::Known(Some(State::Bucket(Bucket { level, scale, ts })))
                }
            });
        }
        reply.next().is_none().then_some((now, before))
    }

    /// Tells all that their call failed.
    pub(super) fn fail(self, error: &StoreError) {
        self.seats.tell(|telling| {
            for seat in self.steps.iter().flat_map(|step| &step.checks) {
                let error = StoreError::new(error.kind(), error.to_string());
                telling.tell(*seat, Told::Failed(error));
            }
        });
    }
}

/// What a step found in the bucket of a charge.
#[derive(Debug)]
enum Before {
    /// The script does not decide on what is there.
    Unknown,
    /// A full bucket is absent.
    Known(Option<State>),
}

/// Steps that follow each other and are written alike.
struct Run<'a> {
    steps: usize,
    step: &'a Step,
    numbers: &'a [usize],
}

/// The last step that charges each bucket, by the hash of its key. Two keys of one hash are taken
/// for one bucket, which only keeps checks apart.
#[derive(Debug, Default)]
struct LastSteps {
    by_hash: HashMap<u64, usize, RandomState>,
}

impl LastSteps {
    /// The step that is the last for all buckets of a check.
    fn common(&self, hashes: &[u64]) -> Option<usize> {
        let mut steps = hashes.iter().map(|hash| self.by_hash.get(hash));
        let first = steps.next()??;
        steps.all(|step| step == Some(first)).then_some(*first)
    }
}

impl Step {
    fn charges(&self) -> impl Iterator<Item = Charge<'_>> {
        self.charges.iter().map(Kept::charge)
    }

    fn is_charged(&self, charges: &[Charge<'_>]) -> bool {
        self.charges.len() == charges.len()
            && self.charges.iter().zip(charges).all(|(kept, charge)| kept.is(charge))
    }

    /// Whether the arguments are the same but for the quotas.
    fn is_written_as(&self, other: &Self) -> bool {
        self.checks.len() == other.checks.len()
            && self.is_alone == other.is_alone
            && self
                .charges()
                .map(|charge| (charge.cost, charge.shadow))
                .eq(other.charges().map(|charge| (charge.cost, charge.shadow)))
    }
}

/// Decides one check on what its buckets hold, and spends there what the script has spent.
fn decide(
    charges: &[Kept],
    before: &mut [Before],
    max_clock_skew: Duration,
    now: Timestamp,
) -> Option<Decisions> {
    if let ([kept], [before]) = (charges, &mut *before) {
        let Before::Known(state) = before else { return None };
        let (decision, change) = kept.charge().decide(state.as_ref(), max_clock_skew, now);
        change.apply(state);
        return Some(Decisions::from_iter([decision]));
    }
    let states = before.iter_mut().map(|one| match one {
        Before::Known(state) => Some(state),
        Before::Unknown => None,
    });
    let mut states: Vec<_> = states.collect::<Option<_>>()?;
    let charges: Vec<_> = charges.iter().map(Kept::charge).collect();
    let stored: Vec<_> =
        states.iter().map(|state| Stored { state: state.as_ref(), record: None }).collect();
    let effects = decide_together(Operation::Spend, &charges, &stored, max_clock_skew, now);
    for (state, change) in states.iter_mut().zip(effects.changes) {
        change.apply(state);
    }
    Some(effects.decisions)
}
