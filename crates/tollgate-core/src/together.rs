//! Several buckets charged by one request: all spend or none.

use std::time::Duration;

use smallvec::SmallVec;

use crate::algorithm::Algorithm;
use crate::charge::Charge;
use crate::cost::Cost;
use crate::decision::Decision;
use crate::judgement::{AnyView, Judgement};
use crate::operation::Operation;
use crate::record::{Record, RecordChange};
use crate::state::{Change, State};
use crate::time::Timestamp;
use crate::view::View;

/// The decisions on the charges of one request, in their order.
pub type Decisions = SmallVec<[Decision; 2]>;

/// What follows from deciding the charges of one request, each in the charges' order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a change that is not stored admits the same units twice"]
pub struct Effects {
    /// The decisions.
    pub decisions: Decisions,
    /// What becomes of each bucket.
    pub changes: SmallVec<[Change; 2]>,
    /// What becomes of the record of each charge's ticket.
    pub records: SmallVec<[RecordChange; 2]>,
}

impl Effects {
    fn push(&mut self, (decision, change): (Decision, Change), record: RecordChange) {
        self.decisions.push(decision);
        self.changes.push(change);
        self.records.push(record);
    }
}

/// What is stored for one charge.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stored<'a> {
    /// The state of the bucket, `None` for a full one.
    pub state: Option<&'a State>,
    /// The record of the charge's ticket, `None` unless the operation
    /// [has records](Operation::has_records) and there is one.
    pub record: Option<Record>,
}

/// Decides the charges of one request together (G7).
///
/// `stored[i]` is what is stored for `charges[i]`. An enforced charge spends only if every
/// enforced charge is allowed; a shadow charge spends whenever it is itself allowed, so that its
/// own count does not depend on the other rules. An enforced charge that is allowed but not spent
/// is reported with what is there now.
///
/// # Examples
///
/// ```
/// use tollgate_core::{
///     Change, Charge, Cost, MAX_CLOCK_SKEW_DEFAULT, Operation, Quota, Stored, Timestamp,
///     decide_together,
/// };
///
/// let (wide, narrow) = (Quota::new("10/s".parse()?, 10)?, Quota::new("1/s".parse()?, 1)?);
/// let charges = [
///     Charge::new("all", &wide, Cost::new(2)),
///     Charge::new("alice", &narrow, Cost::new(2)),
/// ];
/// let effects = decide_together(
///     Operation::Spend,
///     &charges,
///     &[Stored::default(), Stored::default()],
///     MAX_CLOCK_SKEW_DEFAULT,
///     Timestamp::EPOCH,
/// );
/// assert!(effects.decisions[0].is_allow() && effects.decisions[1].is_deny());
/// assert_eq!(effects.decisions[0].remaining(), 10);
/// assert_eq!(effects.changes[..], [Change::Keep, Change::Keep]);
/// # Ok::<(), tollgate_core::QuotaError>(())
/// ```
pub fn decide_together(
    operation: Operation,
    charges: &[Charge<'_>],
    stored: &[Stored<'_>],
    max_clock_skew: Duration,
    now: Timestamp,
) -> Effects {
    debug_assert_eq!(charges.len(), stored.len(), "what is stored for each charge");
    let mut effects = Effects::default();
    let charged = charges.iter().zip(stored).map(|(charge, stored)| {
        let record = stored.record.filter(|record| record.stands(now));
        (charge, AnyView::new(charge, stored.state, max_clock_skew, now), record)
    });
    match operation {
        Operation::Spend => spend_together(charged, None, now, &mut effects),
        Operation::Reserve { ttl } => {
            spend_together(charged, Some(now.saturating_add(ttl)), now, &mut effects);
        }
        Operation::Look => charged.for_each(|(charge, view, _)| {
            effects.push(view.judge(charge.cost).keep(), RecordChange::Keep);
        }),
        Operation::Refund => charged.for_each(|(charge, view, record)| {
            let (decided, record) = refund(charge, view, record, now);
            effects.push(decided, record);
        }),
        Operation::Renew => renew_together(charged, &mut effects),
        Operation::Release => charged.for_each(|(charge, view, _)| {
            effects.push(view.release(charge.cost), RecordChange::Keep);
        }),
        Operation::Take => charged.for_each(|(charge, view, _)| {
            effects.push(view.take(charge.cost), RecordChange::Keep);
        }),
        Operation::Settle => charged.for_each(|(charge, view, record)| match record {
            Some(record) if record.units > 0 => {
                effects.push(view.settle(record, charge.cost), RecordChange::Remove);
            }
            _ => effects.push(view.nothing_to_settle(charge.cost), RecordChange::Keep),
        }),
    }
    effects
}

/// Spends in all enforced charges or in none, and records what is spent until `reserved_until`.
fn spend_together<'c, 'a: 'c>(
    charged: impl Iterator<Item = (&'c Charge<'a>, AnyView<'c>, Option<Record>)>,
    reserved_until: Option<Timestamp>,
    now: Timestamp,
    effects: &mut Effects,
) {
    let judged: SmallVec<[_; 2]> = charged
        .map(|(charge, view, record)| {
            let reserved_before = record.is_some() && reserved_until.is_some();
            let cost = if reserved_before { Cost::ZERO } else { charge.cost };
            (charge, view.judge(cost), reserved_before)
        })
        .collect();
    let admitted = judged.iter().all(|(charge, judgement, _)| charge.shadow || judgement.is_fit());
    for (charge, judgement, reserved_before) in judged {
        match judgement {
            Judgement::Fit(fit) if admitted || charge.shadow => {
                let spent = fit.spend();
                let record = match (reserved_until, charge.ticket) {
                    (Some(ends), Some(_)) if !reserved_before && !charge.cost.is_zero() => {
                        let queue_end = match charge.quota.algorithm() {
                            Algorithm::LeakyBucket => now.saturating_add(spent.0.reset_after()),
                            _ => Timestamp::EPOCH,
                        };
                        let units = charge.cost.units();
                        RecordChange::Store(Record { units, since: now, queue_end, ends })
                    }
                    _ => RecordChange::Keep,
                };
                effects.push(spent, record);
            }
            judgement => effects.push(judgement.keep(), RecordChange::Keep),
        }
    }
}

/// Extends the leases of all enforced charges or none.
fn renew_together<'c, 'a: 'c>(
    charged: impl Iterator<Item = (&'c Charge<'a>, AnyView<'c>, Option<Record>)>,
    effects: &mut Effects,
) {
    let viewed: SmallVec<[_; 2]> = charged.map(|(charge, view, _)| (charge, view)).collect();
    let renewed = viewed.iter().all(|(charge, view)| charge.shadow || !view.lacks_lease());
    for (charge, view) in viewed {
        let decided = match view.lacks_lease() {
            false if !renewed => view.keep(charge.cost),
            _ => view.renew(charge.cost),
        };
        effects.push(decided, RecordChange::Keep);
    }
}

/// Refunds once under a ticket, and always without one.
fn refund(
    charge: &Charge<'_>,
    view: AnyView<'_>,
    record: Option<Record>,
    now: Timestamp,
) -> ((Decision, Change), RecordChange) {
    match (charge.ticket, record) {
        (None, _) => (view.refund(charge.cost), RecordChange::Keep),
        (Some(_), Some(_)) => (view.keep(charge.cost), RecordChange::Keep),
        // What gives nothing back may be repeated.
        (Some(_), None) if charge.cost.is_zero() => (view.refund(charge.cost), RecordChange::Keep),
        (Some(_), None) => {
            let ends = now.saturating_add(Record::refund_ttl(charge.quota));
            let made = Record { units: 0, since: now, queue_end: Timestamp::EPOCH, ends };
            (view.refund(charge.cost), RecordChange::Store(made))
        }
    }
}

#[cfg(test)]
mod tests;
