//! One call of the script: its arguments.

use std::time::Duration;

use redis::Cmd;
use tollgate_core::{Algorithm, Charge, Operation, Record, Timestamp};

use crate::key::{write_bucket, write_record};
use crate::script::{Form, Script};

/// The most arguments of a charge, its keys included.
const ARGS_PER_CHARGE: usize = 11;

/// An upper estimate of the digits and names of a charge's arguments.
const ARG_BYTES_PER_CHARGE: usize = 96;

/// One step on the charges of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) step: Step,
    pub(crate) charges: &'a [Charge<'a>],
    pub(crate) prefix: &'a str,
    pub(crate) max_clock_skew: Duration,
    /// The time to decide at, or `None` for the server's.
    pub(crate) now: Option<Timestamp>,
}

/// What is done with the charges.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// What the caller asked for.
    Apply(Operation),
    /// Gives back what [`Operation::Spend`] or [`Operation::Reserve`] took at an instant, as far as
    /// it still counts.
    Undo { since: Timestamp, reserved: bool },
}

impl Step {
    const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Apply(Operation::Spend) => "spend",
            Self::Apply(Operation::Look) => "look",
            Self::Apply(Operation::Refund) => "refund",
            Self::Apply(Operation::Renew) => "renew",
            Self::Apply(Operation::Release) => "release",
            Self::Apply(Operation::Reserve { .. }) => "reserve",
            Self::Apply(Operation::Settle) => "settle",
            Self::Apply(Operation::Take) => "take",
            Self::Undo { .. } => "undo",
            Self::Apply(_) => return None,
        })
    }

    const fn keeps_records(self) -> bool {
        match self {
            Self::Apply(operation) => operation.has_records(),
            Self::Undo { .. } => true,
        }
    }

    /// How long the record of a charge stands that this step writes; `None` if it has no record.
    fn record_duration(self, charge: &Charge<'_>) -> Option<Duration> {
        charge.ticket?;
        match self {
            Self::Apply(Operation::Reserve { ttl }) => Some(ttl),
            Self::Apply(Operation::Refund) => Some(Record::refund_ttl(charge.quota)),
            Self::Apply(_) | Self::Undo { reserved: true, .. } => Some(Duration::ZERO),
            Self::Undo { reserved: false, .. } => None,
        }
    }
}

impl Call<'_> {
    /// Tells whether the script knows the step and the algorithms, which newer versions of
    /// `tollgate_core` may add to.
    pub(crate) fn is_supported(&self) -> bool {
        let known = |charge: &Charge<'_>| {
            matches!(
                charge.quota.algorithm(),
                Algorithm::TokenBucket
                    | Algorithm::LeakyBucket
                    | Algorithm::FixedWindow
                    | Algorithm::SlidingWindow { .. }
                    | Algorithm::SlidingLog
                    | Algorithm::Concurrency { .. }
            )
        };
        self.step.name().is_some() && self.charges.iter().all(known)
    }

    /// Writes the call as a command.
    pub(crate) fn command(&self, script: &Script, form: Form) -> Cmd {
        let count = self.charges.len();
        let keeps_records = self.step.keeps_records();
        let key_bytes: usize =
            self.charges.iter().map(|charge| self.prefix.len() + 1 + charge.key.len()).sum();
        let mut command = script.call(
            form,
            4 + count * ARGS_PER_CHARGE,
            key_bytes * (1 + usize::from(keeps_records)) + (1 + count) * ARG_BYTES_PER_CHARGE,
        );
        let record_of =
            |charge: &Charge<'_>| self.step.record_duration(charge).filter(|_| keeps_records);
        let records = self.charges.iter().filter(|charge| record_of(charge).is_some()).count();
        command.arg(count + records);
        for charge in self.charges {
            write_bucket(&mut command, self.prefix, charge.key);
            if let (Some(_), Some(ticket)) = (record_of(charge), charge.ticket) {
                write_record(&mut command, self.prefix, charge.key, ticket);
            }
        }
        command.arg(self.step.name().unwrap_or_default());
        match self.now {
            Some(now) => command.arg(now.as_micros()),
            None => command.arg(""),
        };
        command.arg(whole_micros(self.max_clock_skew));
        for charge in self.charges {
            write_charge(&mut command, charge);
            if keeps_records {
                match record_of(charge) {
                    Some(duration) => command.arg(whole_micros(duration)),
                    None => command.arg(""),
                };
            }
            if let Step::Undo { since, .. } = self.step {
                command.arg(since.as_micros());
            }
        }
        command
    }
}

fn write_charge(command: &mut Cmd, charge: &Charge<'_>) {
    let quota = charge.quota;
    let algorithm = quota.algorithm();
    // No bucket has more units, so beyond that a cost means the same.
    let cost = charge.cost.units().min(Timestamp::MAX.as_micros());
    command.arg(algorithm.as_str()).arg(u8::from(charge.shadow)).arg(cost);
    let burst = quota.burst();
    let period_us = whole_micros(quota.rate().period());
    match algorithm {
        Algorithm::FixedWindow => command.arg(burst).arg(period_us),
        Algorithm::SlidingWindow { cells } => {
            let cells = u64::from(cells.get());
            command.arg(burst).arg(period_us.div_ceil(cells)).arg(cells + 1)
        }
        Algorithm::SlidingLog => command.arg(burst).arg(1).arg(period_us),
        Algorithm::Concurrency { .. } => {
            command.arg(burst).arg(period_us);
            match charge.ticket {
                Some(ticket) => command.arg(ticket.to_string()),
                None => command.arg(""),
            }
        }
        _ => command.arg(quota.units_per_tick()).arg(quota.scale()).arg(quota.tick_us()).arg(burst),
    };
}

/// Rounds down to what the script can count, which compares with whole microseconds as the
/// duration itself does.
fn whole_micros(duration: Duration) -> u64 {
    Timestamp::EPOCH.saturating_add(duration).as_micros()
}

#[cfg(test)]
mod tests;
