//! Several buckets charged by one request: all spend or none.

use std::time::Duration;

use smallvec::SmallVec;

use crate::concurrency::LeaseId;
use crate::cost::Cost;
use crate::decision::Decision;
use crate::judgement::{AnyView, Judgement};
use crate::quota::Quota;
use crate::state::{Change, State};
use crate::store::StoreError;
use crate::time::Timestamp;
use crate::view::View;

/// One bucket that a request is charged to.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// The bucket's key, as [`RuleSet::charges`](crate::RuleSet::charges) writes it.
    pub key: &'a str,
    /// The quota of the bucket.
    pub quota: &'a Quota,
    /// What the request spends in it.
    pub cost: Cost,
    /// Whether the bucket is judged and counted but never denies.
    pub shadow: bool,
    /// Under which id slots are held, for a concurrency quota. Without an id such a charge is
    /// judged and takes nothing.
    pub lease: Option<LeaseId>,
}

impl<'a> Charge<'a> {
    /// The most charges one request may make: 64.
    pub const COUNT_MAX: usize = 64;

    /// Makes an enforced charge of `cost` to the bucket at `key`.
    pub const fn new(key: &'a str, quota: &'a Quota, cost: Cost) -> Self {
        Self { key, quota, cost, shadow: false, lease: None }
    }

    /// Makes the charge a shadow charge, or an enforced one again.
    #[must_use]
    pub const fn with_shadow(mut self, shadow: bool) -> Self {
        self.shadow = shadow;
        self
    }

    /// Sets the id under which slots are held.
    #[must_use]
    pub const fn with_lease(mut self, id: LeaseId) -> Self {
        self.lease = Some(id);
        self
    }

    /// Decides whether the cost fits at `now`, and spends it if it does.
    ///
    /// A cost of 0 is a peek. A cost above the burst is denied like any that does not fit, but it
    /// can never succeed: callers sort it out first by [`Quota::admits`].
    pub fn decide(
        &self,
        state: Option<&State>,
        max_clock_skew: Duration,
        now: Timestamp,
    ) -> (Decision, Change) {
        match self.judge(state, max_clock_skew, now) {
            Judgement::Fit(fit) => fit.spend(),
            Judgement::Shortfall(shortfall) => shortfall.deny(),
        }
    }

    /// Judges whether the cost fits at `now`, and leaves it to the caller whether it is spent.
    pub fn judge<'s>(
        &self,
        state: Option<&'s State>,
        max_clock_skew: Duration,
        now: Timestamp,
    ) -> Judgement<'s>
    where
        'a: 's,
    {
        AnyView::new(self, state, max_clock_skew, now).judge(self.cost)
    }

    /// Gives the cost back, never beyond the burst. A bucket that becomes full is removed.
    ///
    /// The decision is an allowance that tells the state after the refund.
    pub fn refund(
        &self,
        state: Option<&State>,
        max_clock_skew: Duration,
        now: Timestamp,
    ) -> (Decision, Change) {
        AnyView::new(self, state, max_clock_skew, now).refund(self.cost)
    }

    /// Checks what every store requires of the charges of one request.
    ///
    /// # Errors
    ///
    /// [`StoreError`] with [`is_invalid`](StoreError::is_invalid) if there are more than
    /// [`COUNT_MAX`](Self::COUNT_MAX) charges or two of the same key, whose units would be judged
    /// twice against the same state.
    pub fn validate(charges: &[Self]) -> Result<(), StoreError> {
        if charges.len() > Self::COUNT_MAX {
            return Err(StoreError::invalid(format!(
                "{} charges in one request: the most is {}",
                charges.len(),
                Self::COUNT_MAX
            )));
        }
        for (index, charge) in charges.iter().enumerate() {
            if charges[..index].iter().any(|other| other.key == charge.key) {
                return Err(StoreError::invalid(format!(
                    "two charges of one request name the bucket {:?}: add up their costs",
                    charge.key
                )));
            }
        }
        Ok(())
    }
}

/// What a store does with the charges of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Spends every cost if every enforced charge is allowed, and nothing otherwise.
    Spend,
    /// Judges every cost and spends nothing.
    Look,
    /// Gives every cost back, never beyond a burst.
    Refund,
    /// Extends the leases under each charge's id, and denies where nothing is held.
    Renew,
    /// Ends the leases under each charge's id. It is not an error if nothing is held.
    Release,
}

/// The decisions on the charges of one request, in their order.
pub type Decisions = SmallVec<[Decision; 2]>;

/// The changes to the buckets of one request, in the charges' order.
pub type Changes = SmallVec<[Change; 2]>;

/// Decides the charges of one request together (G7).
///
/// `states[i]` is the stored state of `charges[i]`, `None` for a full bucket. An enforced charge
/// spends only if every enforced charge is allowed; a shadow charge spends whenever it is itself
/// allowed, so that its own count does not depend on the other rules. An enforced charge that is
/// allowed but not spent is reported with what is there now.
///
/// # Examples
///
/// ```
/// use tollgate_core::{Change, Charge, Cost, Operation, Quota, Timestamp, decide_together};
///
/// let (wide, narrow) = (Quota::new("10/s".parse()?, 10)?, Quota::new("1/s".parse()?, 1)?);
/// let charges = [
///     Charge::new("all", &wide, Cost::new(2)),
///     Charge::new("alice", &narrow, Cost::new(2)),
/// ];
/// let skew = tollgate_core::MAX_CLOCK_SKEW_DEFAULT;
/// let (decisions, changes) =
///     decide_together(Operation::Spend, &charges, &[None, None], skew, Timestamp::EPOCH);
/// assert!(decisions[0].is_allow() && decisions[1].is_deny());
/// assert_eq!(decisions[0].remaining(), 10);
/// assert_eq!(changes[..], [Change::Keep, Change::Keep]);
/// # Ok::<(), tollgate_core::QuotaError>(())
/// ```
pub fn decide_together(
    operation: Operation,
    charges: &[Charge<'_>],
    states: &[Option<&State>],
    max_clock_skew: Duration,
    now: Timestamp,
) -> (Decisions, Changes) {
    debug_assert_eq!(charges.len(), states.len(), "one state per charge");
    let views = charges
        .iter()
        .zip(states)
        .map(|(charge, state)| (charge, AnyView::new(charge, *state, max_clock_skew, now)));
    match operation {
        Operation::Refund => return views.map(|(charge, view)| view.refund(charge.cost)).unzip(),
        Operation::Renew => return views.map(|(charge, view)| view.renew(charge.cost)).unzip(),
        Operation::Release => return views.map(|(charge, view)| view.release(charge.cost)).unzip(),
        Operation::Spend | Operation::Look => {}
    }
    let judgements: SmallVec<[(bool, Judgement<'_>); 2]> =
        views.map(|(charge, view)| (charge.shadow, view.judge(charge.cost))).collect();
    let admitted = judgements.iter().all(|(shadow, judgement)| *shadow || judgement.is_fit());
    judgements
        .into_iter()
        .map(|(shadow, judgement)| match judgement {
            Judgement::Fit(fit) if operation == Operation::Spend && (admitted || shadow) => {
                fit.spend()
            }
            judgement => judgement.keep(),
        })
        .unzip()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token_bucket::MAX_CLOCK_SKEW_DEFAULT;

    const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

    fn quota(burst: u64) -> Quota {
        Quota::new("1/s".parse().unwrap(), burst).unwrap()
    }

    fn spend(charges: &[Charge<'_>]) -> (Decisions, Changes) {
        let absent: Vec<Option<&State>> = vec![None; charges.len()];
        decide_together(Operation::Spend, charges, &absent, MAX_CLOCK_SKEW_DEFAULT, NOW)
    }

    #[test]
    fn g7_all_spend_when_all_are_allowed() {
        let (a, b) = (quota(5), quota(9));
        let charges = [Charge::new("a", &a, Cost::new(2)), Charge::new("b", &b, Cost::new(3))];
        let (decisions, changes) = spend(&charges);
        assert_eq!((decisions[0].remaining(), decisions[1].remaining()), (3, 6));
        assert!(changes.iter().all(|change| matches!(change, Change::Edit(_))));
    }

    #[test]
    fn g7_none_spends_when_one_denies() {
        let (a, b) = (quota(5), quota(9));
        let charges = [Charge::new("a", &a, Cost::new(2)), Charge::new("b", &b, Cost::new(10))];
        let (decisions, changes) = spend(&charges);
        assert!(decisions[0].is_allow() && decisions[1].is_deny());
        assert_eq!((decisions[0].remaining(), decisions[1].remaining()), (5, 9));
        assert_eq!(changes[..], [Change::Keep, Change::Keep]);
    }

    #[test]
    fn a_shadow_charge_never_denies_the_others() {
        let (a, b) = (quota(5), quota(1));
        let shadow = Charge::new("b", &b, Cost::new(2)).with_shadow(true);
        let (decisions, changes) = spend(&[Charge::new("a", &a, Cost::new(2)), shadow]);
        assert!(decisions[0].is_allow() && decisions[1].is_deny());
        assert!(matches!(changes[0], Change::Edit(_)));
        assert_eq!(changes[1], Change::Keep);
    }

    #[test]
    fn a_shadow_charge_counts_even_when_an_enforced_one_denies() {
        let (a, b) = (quota(1), quota(5));
        let shadow = Charge::new("b", &b, Cost::new(2)).with_shadow(true);
        let (decisions, changes) = spend(&[Charge::new("a", &a, Cost::new(2)), shadow]);
        assert!(decisions[0].is_deny());
        assert_eq!(decisions[1].remaining(), 3);
        assert_eq!(changes[0], Change::Keep);
        assert!(matches!(changes[1], Change::Edit(_)));
    }

    #[test]
    fn g3_a_look_spends_nothing() {
        let a = quota(5);
        let charges = [Charge::new("a", &a, Cost::new(5))];
        let (decisions, changes) =
            decide_together(Operation::Look, &charges, &[None], MAX_CLOCK_SKEW_DEFAULT, NOW);
        assert_eq!(decisions[0].remaining(), 5);
        assert_eq!(changes[..], [Change::Keep]);
    }

    #[test]
    fn two_charges_of_one_key_are_refused() {
        let a = quota(5);
        let twice = [Charge::new("a", &a, Cost::ONE), Charge::new("a", &a, Cost::ONE)];
        let error = Charge::validate(&twice).unwrap_err();
        assert!(error.is_invalid());
        assert_eq!(
            error.to_string(),
            "two charges of one request name the bucket \"a\": add up their costs"
        );
        assert!(Charge::validate(&twice[..1]).is_ok());
    }
}
