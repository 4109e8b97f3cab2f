//! One bucket that a request is charged to.

use std::time::Duration;

use crate::cost::Cost;
use crate::decision::Decision;
use crate::judgement::{AnyView, Judgement};
use crate::quota::Quota;
use crate::state::{Change, State};
use crate::store::StoreError;
use crate::ticket::Ticket;
use crate::time::Timestamp;
use crate::token_bucket::{Bucket, BucketView, Decided, JudgedBucket};
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
    /// Under which id slots are held, a reservation is kept, or a refund is made once. Without one
    /// a charge to a concurrency quota is judged and takes nothing.
    pub ticket: Option<Ticket>,
}

impl<'a> Charge<'a> {
    /// The most charges one request may make: 64.
    pub const COUNT_MAX: usize = 64;

    /// Makes an enforced charge of `cost` to the bucket at `key`.
    pub const fn new(key: &'a str, quota: &'a Quota, cost: Cost) -> Self {
        Self { key, quota, cost, shadow: false, ticket: None }
    }

    /// Makes the charge a shadow charge, or an enforced one again.
    #[must_use]
    pub const fn with_shadow(mut self, shadow: bool) -> Self {
        self.shadow = shadow;
        self
    }

    /// Sets the id under which something is held or done.
    #[must_use]
    pub const fn with_ticket(mut self, ticket: Ticket) -> Self {
        self.ticket = Some(ticket);
        self
    }

    /// Decides whether the cost fits at `now`, and spends it if it does.
    ///
    /// A cost of 0 is a peek. A cost above the burst is denied like any that does not fit, but it
    /// can never succeed: callers sort it out first by [`Quota::admits`].
    #[inline]
    pub fn decide(
        &self,
        state: Option<&State>,
        max_clock_skew: Duration,
        now: Timestamp,
    ) -> (Decision, Change) {
        // What is asked most is kept apart from the views of the other algorithms, which are larger.
        if self.quota.is_bucket() {
            let bucket = state.and_then(State::as_bucket);
            return self.decide_by_level(bucket, max_clock_skew, now);
        }
        self.decide_by_any(state, max_clock_skew, now)
    }

    /// Decides as [`decide`](Self::decide) does on the state of a token bucket or a leaky bucket,
    /// carries the change out on it, and tells whether there was one. `None` if the quota is counted
    /// by another algorithm.
    ///
    /// For a store that holds the state as it is: no change is handed over and no state is copied, and
    /// the times that a decision tells can be worked out when its lock is gone.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tollgate_core::{Bucket, Charge, Cost, Quota, Timestamp};
    ///
    /// let quota = Quota::new("1/s".parse()?, 5)?;
    /// let now = Timestamp::from_micros(1_700_000_000_000_000);
    /// let mut bucket = Bucket { level: 3 * quota.scale(), scale: quota.scale(), ts: now };
    ///
    /// let charge = Charge::new("a", &quota, Cost::new(2));
    /// let (decided, is_changed) =
    ///     charge.decide_bucket(&mut bucket, Duration::from_secs(1), now).ok_or("a token bucket")?;
    /// assert!(is_changed);
    /// assert_eq!(bucket.level, quota.scale());
    /// assert_eq!(decided.decision().remaining(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn decide_bucket(
        &self,
        bucket: &mut Bucket,
        max_clock_skew: Duration,
        now: Timestamp,
    ) -> Option<(Decided<'a>, bool)> {
        Some(self.judge_bucket(bucket, max_clock_skew, now)?.decide(bucket))
    }

    /// Judges as [`judge`](Self::judge) does whether the cost fits in a token bucket or a leaky
    /// bucket. `None` if the quota is counted by another algorithm.
    ///
    /// For a store that holds the states of several buckets as they are, of which all spend or none
    /// (G7).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tollgate_core::{Bucket, Charge, Cost, Quota, Timestamp};
    ///
    /// let quota = Quota::new("1/s".parse()?, 5)?;
    /// let now = Timestamp::from_micros(1_700_000_000_000_000);
    /// let mut bucket = Bucket { level: 3 * quota.scale(), scale: quota.scale(), ts: now };
    ///
    /// let charge = Charge::new("a", &quota, Cost::new(2));
    /// let judged =
    ///     charge.judge_bucket(&bucket, Duration::from_secs(1), now).ok_or("a token bucket")?;
    /// assert!(judged.is_fit());
    /// let (decided, is_changed) = judged.keep(&mut bucket);
    /// assert_eq!((decided.decision().remaining(), is_changed), (3, false));
    /// let (decided, is_changed) = judged.decide(&mut bucket);
    /// assert_eq!((decided.decision().remaining(), is_changed), (1, true));
    /// assert_eq!(bucket.level, quota.scale());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub fn judge_bucket(
        &self,
        bucket: &Bucket,
        max_clock_skew: Duration,
        now: Timestamp,
    ) -> Option<JudgedBucket<'a>> {
        if !self.quota.is_bucket() {
            return None;
        }
        let view = BucketView::new(self.quota, Some(bucket), max_clock_skew, now);
        Some(view.judged(self.cost))
    }

    #[inline(always)]
    fn decide_by_level(
        &self,
        bucket: Option<&Bucket>,
        max_clock_skew: Duration,
        now: Timestamp,
    ) -> (Decision, Change) {
        let view = BucketView::new(self.quota, bucket, max_clock_skew, now);
        if !view.fits(self.cost) {
            view.deny(self.cost)
        } else if self.cost.is_zero() {
            view.keep(self.cost)
        } else {
            view.spend(self.cost)
        }
    }

    #[inline(never)]
    fn decide_by_any(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_charges_of_one_key_are_refused() {
        let a = Quota::new("1/s".parse().unwrap(), 5).unwrap();
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
