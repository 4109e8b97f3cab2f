//! How a key with much traffic is served.

use std::num::NonZeroU8;
use std::time::Duration;

use crate::algorithm::Algorithm;
use crate::quota::Quota;

/// How a rule serves a key with much traffic.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroU8;
/// use tollgate_core::{HotKeys, Quota, Rule, RuleSet};
///
/// let quota = Quota::new("100000/s".parse()?, 20_000)?;
/// let shards = NonZeroU8::new(16).ok_or("zero")?;
/// let rule = Rule::new("everyone", quota).with_hot_keys(HotKeys::Shards(shards));
/// assert_eq!(rule.shard_terms(&quota).map(|terms| terms.quota(0).burst()), Some(1_250));
/// assert_eq!(RuleSet::new([rule])?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HotKeys {
    /// The store judges every check.
    #[default]
    Exact,
    /// A node that asks much of a key spends from slices that it has debited ahead of time; see
    /// [`LeaseTerms`].
    Lease,
    /// Each bucket is kept in so many shards; see [`ShardTerms`](crate::ShardTerms).
    Shards(NonZeroU8),
}

/// How a token bucket is kept when nodes spend from slices of it.
///
/// A slice is debited from the bucket before anything is spent from it, and may be spent from for
/// [`ttl`](Self::ttl). In the store the bucket has a smaller burst: by what refills within that
/// time. So whatever is admitted in an interval of length w was debited in one that is longer by
/// the ttl, and that admits at most
///
/// ```text
/// (burst - rate * ttl) + rate * (w + ttl) = burst + rate * w
/// ```
///
/// which is the bound of the bucket without slices (G1), however many nodes hold some and whatever
/// becomes of them. The price is a burst that is smaller by a tenth.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::{LeaseTerms, Quota};
///
/// let quota = Quota::new("1000/s".parse()?, 500)?;
/// let terms = LeaseTerms::of(&quota).ok_or("too small")?;
/// assert_eq!((terms.quota().burst(), terms.slice_max()), (450, 50));
/// assert_eq!(terms.ttl(), Duration::from_millis(50));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    quota: Quota,
    slice_max: u64,
    ttl: Duration,
}

impl LeaseTerms {
    /// The smallest burst of which slices can be taken: 10.
    pub const BURST_MIN: u64 = 10;

    /// The shortest [`ttl`](Self::ttl) with which slices are debited: 10 ms. One that ends sooner is
    /// not worth its call, so that a bucket with a shorter ttl is judged by the store alone, and its
    /// burst is smaller all the same.
    pub const TTL_MIN: Duration = Duration::from_millis(10);

    /// Returns the terms of a quota, or `None` if it is not a token bucket with a burst of at least
    /// [`BURST_MIN`](Self::BURST_MIN).
    pub fn of(quota: &Quota) -> Option<Self> {
        let burst = u64::from(quota.burst());
        if quota.algorithm() != Algorithm::TokenBucket || burst < Self::BURST_MIN {
            return None;
        }
        let slice_max = burst / Self::BURST_MIN;
        let smaller = Quota::new(quota.rate(), burst - slice_max).ok()?;
        // Rounded down, so that no more than the slice refills within it.
        let rate = quota.rate();
        let ttl_us = u128::from(slice_max) * rate.period().as_micros() / u128::from(rate.units());
        let ttl = Duration::from_micros(u64::try_from(ttl_us).unwrap_or(u64::MAX));
        Some(Self { quota: smaller, slice_max, ttl })
    }

    /// Tells whether these are the terms of a quota, without working those out.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_core::{LeaseTerms, Quota};
    ///
    /// let quota = Quota::new("1000/s".parse()?, 500)?;
    /// let terms = LeaseTerms::of(&quota).ok_or("too small")?;
    /// assert!(terms.are_of(&quota));
    /// assert!(!terms.are_of(&Quota::new("1000/s".parse()?, 501)?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn are_of(&self, quota: &Quota) -> bool {
        u64::from(self.quota.burst()) + self.slice_max == u64::from(quota.burst())
            && self.quota.rate() == quota.rate()
            && quota.algorithm() == Algorithm::TokenBucket
    }

    /// Returns the quota of the bucket in the store.
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Returns the most units of a slice: a tenth of the burst.
    pub const fn slice_max(&self) -> u64 {
        self.slice_max
    }

    /// Returns how long a slice may be spent from: the time in which the largest one refills.
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g1_no_more_refills_within_a_ttl_than_the_burst_is_smaller_by() {
        for rate in ["1/s", "3/s", "1000/s", "7/13s", "999999937/s", "1/366day", "1000/hour"] {
            for burst in [10, 11, 19, 99, 100, 12_345, 1_000_000] {
                let Ok(quota) = Quota::new(rate.parse().unwrap(), burst) else { continue };
                let terms = LeaseTerms::of(&quota).unwrap();
                let refills = terms.ttl.as_micros() * u128::from(quota.rate().units());
                let less = burst - u64::from(terms.quota.burst());
                assert!(refills <= u128::from(less) * quota.rate().period().as_micros());
                assert_eq!(less, terms.slice_max);
            }
        }
    }

    #[test]
    fn terms_are_of_one_quota() {
        let quotas: Vec<Quota> = [("1/s", 10), ("1/s", 19), ("1/s", 20), ("1/s", 21), ("2/s", 20)]
            .map(|(rate, burst)| Quota::new(rate.parse().unwrap(), burst).unwrap())
            .to_vec();
        for one in &quotas {
            let terms = LeaseTerms::of(one).unwrap();
            assert!(quotas.iter().all(|other| terms.are_of(other) == (one == other)), "{one:?}");
            let queue = Quota::leaky_bucket(one.rate(), one.burst().into()).unwrap();
            assert!(!terms.are_of(&queue));
        }
    }

    #[test]
    fn only_token_buckets_of_some_size_have_slices() {
        let rate = || "10/s".parse().unwrap();
        assert_eq!(LeaseTerms::of(&Quota::new(rate(), 9).unwrap()), None);
        assert_eq!(LeaseTerms::of(&Quota::leaky_bucket(rate(), 100).unwrap()), None);
        assert_eq!(LeaseTerms::of(&Quota::fixed_window(rate()).unwrap()), None);
    }
}
