//! Checks that go in one call.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::Instant;
use tollgate_core::{
    Bucket, Charge, Decisions, Operation, Quota, State, StoreError, Stored, Timestamp,
    decide_together,
};

use super::Told;
use super::waiting::Waiting;
use crate::TimeSource;
use crate::key::write_bucket;
use crate::reply::Numbers;
use crate::script::Form;
use crate::store::Inner;

/// The most charges of one call, which bounds how long it keeps the server busy: to about 0.5 ms.
const CHARGES_MAX: usize = 128;

/// The most checks of one call.
const CHECKS_MAX: usize = 8_192;

/// An upper estimate of the digits of a charge's arguments.
const ARG_BYTES_PER_CHARGE: usize = 24;

/// Checks that go in one call, in the order in which they are decided.
#[derive(Debug)]
pub(super) struct Batch {
    steps: Vec<Step>,
    charges: usize,
    now: Timestamp,
}

/// Checks that are charged the same to the same buckets; never empty.
#[derive(Debug)]
struct Step {
    checks: Vec<Waiting>,
}

impl Batch {
    /// Takes the first that wait, or `None` if nobody does. Those that nobody waits for any more
    /// are dropped, and have spent nothing.
    pub(super) fn take(waiting: &mut VecDeque<Waiting>, at: Instant) -> Option<Self> {
        while waiting.front().is_some_and(|one| !one.is_wanted(at)) {
            waiting.pop_front();
        }
        let now = waiting.front()?.now;
        let mut batch = Self { steps: Vec::new(), charges: 0, now };
        // The last step that charges a bucket, by the hash of its key. A check joins the step that
        // is the last of all its buckets, so it keeps its place in the order of each.
        let mut last_steps = LastSteps::default();
        let mut checks = 0;
        while let Some(one) = waiting.front()
            && one.now == now
            && checks < CHECKS_MAX
        {
            let joins = last_steps.common(one).filter(|step| {
                batch.steps[*step].checks.first().is_some_and(|two| two.charges == one.charges)
            });
            let is_full = batch.charges + one.charges.len() > CHARGES_MAX;
            if joins.is_none() && is_full && !batch.steps.is_empty() {
                break;
            }
            let Some(one) = waiting.pop_front() else { break };
            if !one.is_wanted(at) {
                continue;
            }
            checks += 1;
            match joins {
                Some(step) => batch.steps[step].checks.push(one),
                None => {
                    last_steps.note(&one, batch.steps.len());
                    batch.charges += one.charges.len();
                    batch.steps.push(Step { checks: vec![one] });
                }
            }
        }
        Some(batch)
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
        let mut command = inner.transport.script.call(
            form,
            5 + 4 * quotas.len() + 2 * self.steps.len() + 4 * self.charges,
            key_bytes + (2 + quotas.len() + self.charges) * ARG_BYTES_PER_CHARGE,
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
        let mut numbers = numbers.into_iter();
        for step in &self.steps {
            command.arg(step.checks.len()).arg(step.charges().count());
            for (charge, number) in step.charges().zip(&mut numbers) {
                command.arg(number + 1).arg(charge.cost.units()).arg(u8::from(charge.shadow));
            }
        }
        command
    }

    /// Tells each what the reply means for it, or gives all back if the script cannot have replied
    /// that.
    pub(super) fn tell(self, reply: &Value, max_clock_skew: Duration) -> Result<(), Self> {
        let Some((now, before)) = self.read(reply) else { return Err(self) };
        let mut before = before.into_iter();
        for step in self.steps {
            let mut states: Vec<_> = before.by_ref().take(step.charges().count()).collect();
            for one in step.checks {
                let told = match decide(&one, &mut states, max_clock_skew, now) {
                    Some(decisions) => Told::Decided(decisions),
                    None => Told::GoesAlone,
                };
                one.tell(told);
            }
        }
        Ok(())
    }

    /// Reads the instant, and for each charge what was there before; `None` where the batch could
    /// not decide.
    fn read(&self, reply: &Value) -> Option<(Timestamp, Vec<Option<State>>)> {
        let mut reply = Numbers::new(reply)?;
        let now = Timestamp::from_micros(u64::try_from(reply.next()?).ok()?);
        let mut states = Vec::with_capacity(self.charges);
        for charge in self.steps.iter().flat_map(|step| step.charges()) {
            let (level, ts) = (u64::try_from(reply.next()?), u64::try_from(reply.next()?));
            states.push(level.ok().zip(ts.ok()).map(|(level, ts)| {
                let ts = Timestamp::from_micros(ts);
                State::Bucket(Bucket { level, scale: charge.quota.scale(), ts })
            }));
        }
        reply.next().is_none().then_some((now, states))
    }

    /// Tells all that their call failed.
    pub(super) fn fail(self, error: &StoreError) {
        for one in self.steps.into_iter().flat_map(|step| step.checks) {
            one.tell(Told::Failed(StoreError::new(error.kind(), error.to_string())));
        }
    }
}

/// The last step that charges each bucket. Two keys of one hash are taken for one bucket, which
/// only keeps checks apart.
#[derive(Default)]
struct LastSteps {
    hasher: RandomState,
    by_hash: HashMap<u64, usize>,
}

impl LastSteps {
    /// The step that is the last for all buckets of a check.
    fn common(&self, one: &Waiting) -> Option<usize> {
        let mut steps = one.charges.iter().map(|charge| self.by_hash.get(&self.hash(&charge.key)));
        let first = steps.next()??;
        steps.all(|step| step == Some(first)).then_some(*first)
    }

    fn note(&mut self, one: &Waiting, step: usize) {
        for charge in &one.charges {
            let hash = self.hash(&charge.key);
            self.by_hash.insert(hash, step);
        }
    }

    fn hash(&self, key: &str) -> u64 {
        self.hasher.hash_one(key)
    }
}

impl Step {
    fn charges(&self) -> impl Iterator<Item = Charge<'_>> {
        self.checks.first().into_iter().flat_map(|one| one.charges.iter().map(|kept| kept.charge()))
    }
}

/// Decides one check on what its buckets hold, and spends there what the script has spent.
fn decide(
    one: &Waiting,
    states: &mut [Option<State>],
    max_clock_skew: Duration,
    now: Timestamp,
) -> Option<Decisions> {
    if states.iter().any(Option::is_none) {
        return None;
    }
    if let ([kept], [state]) = (one.charges.as_slice(), &mut *states) {
        let (decision, change) = kept.charge().decide(state.as_ref(), max_clock_skew, now);
        change.apply(state);
        return Some(Decisions::from_iter([decision]));
    }
    let charges: Vec<_> = one.charges.iter().map(|kept| kept.charge()).collect();
    let stored: Vec<_> =
        states.iter().map(|state| Stored { state: state.as_ref(), record: None }).collect();
    let effects = decide_together(Operation::Spend, &charges, &stored, max_clock_skew, now);
    for (state, change) in states.iter_mut().zip(effects.changes) {
        change.apply(state);
    }
    Some(effects.decisions)
}
