//! Several buckets charged by one request: all spend or none.

use std::time::Duration;

use smallvec::SmallVec;

use crate::cost::Cost;
use crate::decision::Decision;
use crate::quota::Quota;
use crate::store::StoreError;
use crate::time::Timestamp;
use crate::token_bucket::{Bucket, Change, Judgement, TokenBucket};

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
}

impl<'a> Charge<'a> {
    /// The most charges one request may make: 64.
    pub const COUNT_MAX: usize = 64;

    /// Makes an enforced charge of `cost` to the bucket at `key`.
    pub const fn new(key: &'a str, quota: &'a Quota, cost: Cost) -> Self {
        Self { key, quota, cost, shadow: false }
    }

    const fn bucket(&self, max_clock_skew: Duration) -> TokenBucket<'a> {
        TokenBucket::new(self.quota).with_max_clock_skew(max_clock_skew)
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
}

/// The decisions on the charges of one request, in their order.
pub type Decisions = SmallVec<[Decision; 2]>;

/// The changes to the buckets of one request, in the charges' order.
pub type Changes = SmallVec<[Change; 2]>;

/// Decides the charges of one request together (G7).
///
/// `buckets[i]` is the stored state of `charges[i]`, `None` for a full bucket. An enforced charge
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
    buckets: &[Option<Bucket>],
    max_clock_skew: Duration,
    now: Timestamp,
) -> (Decisions, Changes) {
    debug_assert_eq!(charges.len(), buckets.len(), "one state per charge");
    let charged = charges.iter().zip(buckets);
    if operation == Operation::Refund {
        return charged
            .map(|(charge, bucket)| {
                charge.bucket(max_clock_skew).refund(bucket.as_ref(), charge.cost, now)
            })
            .unzip();
    }
    let judgements: SmallVec<[(bool, Judgement<'_>); 2]> = charged
        .map(|(charge, bucket)| {
            (charge.shadow, charge.bucket(max_clock_skew).judge(bucket.as_ref(), charge.cost, now))
        })
        .collect();
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
        let absent = vec![None; charges.len()];
        decide_together(Operation::Spend, charges, &absent, MAX_CLOCK_SKEW_DEFAULT, NOW)
    }

    #[test]
    fn g7_all_spend_when_all_are_allowed() {
        let (a, b) = (quota(5), quota(9));
        let charges = [Charge::new("a", &a, Cost::new(2)), Charge::new("b", &b, Cost::new(3))];
        let (decisions, changes) = spend(&charges);
        assert_eq!((decisions[0].remaining(), decisions[1].remaining()), (3, 6));
        assert!(changes.iter().all(|change| matches!(change, Change::Store(_))));
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
        let mut shadow = Charge::new("b", &b, Cost::new(2));
        shadow.shadow = true;
        let (decisions, changes) = spend(&[Charge::new("a", &a, Cost::new(2)), shadow]);
        assert!(decisions[0].is_allow() && decisions[1].is_deny());
        assert!(matches!(changes[0], Change::Store(_)));
        assert_eq!(changes[1], Change::Keep);
    }

    #[test]
    fn a_shadow_charge_counts_even_when_an_enforced_one_denies() {
        let (a, b) = (quota(1), quota(5));
        let mut shadow = Charge::new("b", &b, Cost::new(2));
        shadow.shadow = true;
        let (decisions, changes) = spend(&[Charge::new("a", &a, Cost::new(2)), shadow]);
        assert!(decisions[0].is_deny());
        assert_eq!(decisions[1].remaining(), 3);
        assert_eq!(changes[0], Change::Keep);
        assert!(matches!(changes[1], Change::Store(_)));
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
