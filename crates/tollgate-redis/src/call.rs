//! One call of the script: its arguments and its reply.

use std::time::Duration;

use redis::{Cmd, RedisWrite, Value};
use tollgate_core::token_bucket::Judgement;
use tollgate_core::{Bucket, Charge, Cost, Decision, Decisions, Operation, Timestamp, TokenBucket};

use crate::script::{Form, Script};

/// Whether it fits, the level and its time.
const REPLY_PER_CHARGE: usize = 3;

const ARGS_PER_CHARGE: usize = 6;

/// An upper estimate of the digits of a charge's arguments.
const ARG_BYTES_PER_CHARGE: usize = 64;

/// One operation on the charges of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) operation: Operation,
    pub(crate) charges: &'a [Charge<'a>],
    pub(crate) prefix: &'a str,
    pub(crate) max_clock_skew: Duration,
    /// The time to decide at, or `None` for the server's.
    pub(crate) now: Option<Timestamp>,
}

impl Call<'_> {
    /// Writes the call as a command.
    pub(crate) fn command(&self, script: &Script, form: Form) -> Cmd {
        let count = self.charges.len();
        let key_bytes: usize =
            self.charges.iter().map(|charge| self.prefix.len() + 1 + charge.key.len()).sum();
        let mut command = script.call(
            form,
            4 + count * (1 + ARGS_PER_CHARGE),
            key_bytes + (1 + count) * ARG_BYTES_PER_CHARGE,
        );
        command.arg(count);
        for charge in self.charges {
            write_key(&mut command, self.prefix, charge.key);
        }
        command.arg(match self.operation {
            Operation::Spend => "spend",
            Operation::Look => "look",
            Operation::Refund => "refund",
        });
        match self.now {
            Some(now) => command.arg(now.as_micros()),
            None => command.arg(""),
        };
        command.arg(whole_micros(self.max_clock_skew));
        for Charge { quota, cost, shadow, .. } in self.charges {
            // More than the burst is as impossible as the burst and one, which stays exact.
            let cost = cost.units().min(u64::from(quota.burst()) + 1);
            command
                .arg(quota.units_per_tick())
                .arg(quota.scale())
                .arg(quota.tick_us())
                .arg(quota.burst())
                .arg(cost)
                .arg(u8::from(*shadow));
        }
        command
    }

    /// Turns the reply into the decisions that core makes on the same state, or gives `None` if the
    /// reply is not one of the script's.
    pub(crate) fn decisions(&self, reply: &Value) -> Option<Decisions> {
        let Value::Array(items) = reply else { return None };
        let (now, states) = items.split_first()?;
        let now = timestamp(now)?;
        let states = states.chunks_exact(REPLY_PER_CHARGE);
        if states.len() != self.charges.len() || !states.remainder().is_empty() {
            return None;
        }
        self.charges
            .iter()
            .zip(states)
            .map(|(charge, state)| self.decide(charge, state, now))
            .collect()
    }

    /// Decides on the state that the script left. It is brought up to `now`, so judging it there
    /// gives back its level and its time; what was spent is already gone, so an allowed charge is
    /// looked at with cost 0.
    fn decide(&self, charge: &Charge<'_>, state: &[Value], now: Timestamp) -> Option<Decision> {
        let [fits, level, ts] = state else { return None };
        let bucket =
            Bucket { level: whole(level)?, scale: charge.quota.scale(), ts: timestamp(ts)? };
        let quota = TokenBucket::new(charge.quota).with_max_clock_skew(self.max_clock_skew);
        match whole(fits)? {
            1 => Some(quota.judge(Some(&bucket), Cost::ZERO, now).keep().0),
            0 => match quota.judge(Some(&bucket), charge.cost, now) {
                Judgement::Fit(_) => None,
                Judgement::Shortfall(shortfall) => Some(shortfall.deny().0),
            },
            _ => None,
        }
    }
}

/// Appends `<prefix>:<key>` as one argument.
pub(crate) fn write_key(command: &mut Cmd, prefix: &str, key: &str) {
    command.write_arg_fmt(format_args!("{prefix}:{key}"));
}

/// Rounds down to what the script can count, which compares with whole microseconds as the
/// duration itself does.
fn whole_micros(duration: Duration) -> u64 {
    Timestamp::EPOCH.saturating_add(duration).as_micros()
}

fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn timestamp(value: &Value) -> Option<Timestamp> {
    whole(value).map(Timestamp::from_micros)
}

#[cfg(test)]
mod tests;
