//! One bucket kept in several parts, each under a key of its own.

use std::num::NonZeroU8;
use std::time::Duration;

use crate::algorithm::Algorithm;
use crate::cost::Cost;
use crate::quota::{Quota, QuotaError};
use crate::rate::Rate;

/// How a bucket is kept in shards, so that one key's traffic is spread over the nodes of a cluster.
///
/// Each shard is a bucket under a key of its own; see [`key::shard`](crate::key::shard). The bursts
/// of all shards are together exactly the burst of the whole, as even as whole units allow: those
/// that are larger by one come first. The rates are together exactly its rate, in equal parts. So
/// whatever shards are asked, in any interval of length w they admit at most
///
/// ```text
/// sum of (burst of a shard + rate / count * w) = burst + rate * w
/// ```
///
/// which is the bound of the bucket without shards (G1). The price is that a check finds the units
/// of the shards that it asks, and not those of the others.
///
/// A token bucket has shards, and so have a fixed window, a sliding window and a sliding log. A leaky
/// bucket has none, since requests of several queues are not evenly spaced; nor has a concurrency
/// limit, whose slots come back where they were taken and nowhere else.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroU8;
/// use tollgate_core::{Cost, Quota, ShardTerms};
///
/// let count = NonZeroU8::new(4).ok_or("zero")?;
/// let terms = ShardTerms::of(&Quota::new("1000/s".parse()?, 50)?, count)?;
/// let bursts: Vec<_> = (0..4).map(|shard| terms.quota(shard).burst()).collect();
/// assert_eq!(bursts, [13, 13, 12, 12]);
/// assert_eq!(terms.quota(0).rate().units(), 1);
/// assert_eq!(terms.quota(0).rate().period().as_millis(), 4);
///
/// assert_eq!(terms.cost_max(), Cost::new(13));
/// assert_eq!(terms.holding(Cost::new(13)), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardTerms {
    count: u8,
    /// How many shards, from the first on, have the larger quota.
    larger_count: u8,
    larger: Quota,
    smaller: Quota,
}

impl ShardTerms {
    /// The most shards: 64.
    pub const COUNT_MAX: u8 = 64;

    /// Returns how a bucket under `quota` is kept in `count` shards.
    ///
    /// # Errors
    ///
    /// [`QuotaError`] if there are more than [`COUNT_MAX`](Self::COUNT_MAX), if a shard would hold
    /// less than one unit, if the algorithm has no shards, or if a shard's rate cannot be counted
    /// exactly.
    pub fn of(quota: &Quota, count: NonZeroU8) -> Result<Self, QuotaError> {
        let algorithm = quota.algorithm();
        match algorithm {
            Algorithm::LeakyBucket => {
                return Err(QuotaError::shards(format!(
                    "{algorithm} has no shards: requests of several queues would not be evenly \
                     spaced"
                )));
            }
            Algorithm::Concurrency { .. } => {
                return Err(QuotaError::shards(format!(
                    "{algorithm} has no shards: slots come back only where they were taken"
                )));
            }
            _ => {}
        }
        if count.get() > Self::COUNT_MAX {
            return Err(QuotaError::shards(format!(
                "{count} shards are too many: give at most {}",
                Self::COUNT_MAX
            )));
        }
        let (burst, parts) = (u64::from(quota.burst()), u64::from(count.get()));
        if burst < parts {
            return Err(QuotaError::shards(format!(
                "a burst of {burst} in {count} shards leaves some of them without a unit: give at \
                 most {burst} shards, or a larger burst"
            )));
        }
        let smaller = part(quota, burst / parts, count)?;
        let extra = burst % parts;
        let larger = if extra == 0 { smaller } else { part(quota, burst / parts + 1, count)? };
        // Fewer than there are shards.
        let extra = u8::try_from(extra).unwrap_or_default();
        let larger_count = if extra == 0 { count.get() } else { extra };
        Ok(Self { count: count.get(), larger_count, larger, smaller })
    }

    /// Returns the number of shards.
    pub const fn count(&self) -> usize {
        self.count as usize
    }

    /// Returns the quota of a shard, of which the first is 0.
    pub const fn quota(&self, shard: usize) -> &Quota {
        if shard < self.larger_count as usize { &self.larger } else { &self.smaller }
    }

    /// Returns the largest cost that any shard can hold: the burst divided by the number of shards,
    /// rounded up. A larger one can never succeed.
    pub const fn cost_max(&self) -> Cost {
        Cost::new(self.larger.burst() as u64)
    }

    /// Returns how many shards, from the first on, can hold `cost`.
    pub const fn holding(&self, cost: Cost) -> usize {
        match (self.larger.admits(cost), self.smaller.admits(cost)) {
            (_, true) => self.count as usize,
            (true, false) => self.larger_count as usize,
            (false, false) => 0,
        }
    }

    /// Picks the shard that is asked first, among those that can hold `cost`, by a number that
    /// the caller has drawn at random. `None` if there is no such shard.
    pub fn first(&self, cost: Cost, drawn: u32) -> Option<usize> {
        index_below(self.holding(cost), drawn)
    }

    /// Picks the one that is asked when `denied` has denied: another one that can hold `cost`, or
    /// `None` if there is no other.
    pub fn second(&self, denied: usize, cost: Cost, drawn: u32) -> Option<usize> {
        let others = self.holding(cost).checked_sub(1)?;
        index_below(others, drawn).map(|other| if other < denied { other } else { other + 1 })
    }
}

/// The number as an index below `end`, all equally likely up to `end` in 2^32.
fn index_below(end: usize, drawn: u32) -> Option<usize> {
    let index = (u64::from(drawn) * end as u64) >> 32;
    usize::try_from(index).ok().filter(|index| *index < end)
}

/// The quota of a shard that holds `burst` units.
fn part(quota: &Quota, burst: u64, count: NonZeroU8) -> Result<Quota, QuotaError> {
    let rate = quota.rate();
    match quota.algorithm() {
        Algorithm::FixedWindow => Quota::fixed_window(Rate::new(burst, rate.period())?),
        Algorithm::SlidingLog => Quota::sliding_log(Rate::new(burst, rate.period())?),
        Algorithm::SlidingWindow { cells } => {
            Quota::sliding_window(Rate::new(burst, rate.period())?, cells)
        }
        _ => {
            let inexact = |error| {
                QuotaError::shards(format!(
                    "rate {rate} cannot be divided among {count} shards exactly: {error}"
                ))
            };
            Quota::new(divided(rate, count).map_err(inexact)?, burst).map_err(inexact)
        }
    }
}

/// An equal part of a rate, in lowest terms.
fn divided(rate: Rate, count: NonZeroU8) -> Result<Rate, QuotaError> {
    let units = u128::from(rate.units());
    let period_us = rate.period().as_micros() * u128::from(count.get());
    let (mut divisor, mut rest) = (units, period_us);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    let limited = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    Rate::new(limited(units / divisor), Duration::from_micros(limited(period_us / divisor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(count: u8) -> NonZeroU8 {
        NonZeroU8::new(count).unwrap()
    }

    fn bucket(rate: &str, burst: u64) -> Quota {
        Quota::new(rate.parse().unwrap(), burst).unwrap()
    }

    #[test]
    fn g1_the_shards_are_together_exactly_the_whole() {
        let mut checked = 0;
        for rate in ["1/s", "3/s", "7/13s", "1000/hour", "999999937/s", "1000/day", "700/min"] {
            let cells = Algorithm::CELLS_DEFAULT;
            for burst in [1, 2, 5, 16, 17, 63, 64, 65, 1_000, 12_345, 1_000_003] {
                let window = Rate::new(burst, Duration::from_secs(60)).unwrap();
                let quotas = [
                    Quota::new(rate.parse().unwrap(), burst),
                    Quota::fixed_window(window),
                    Quota::sliding_window(window, cells),
                    Quota::sliding_log(window),
                ];
                for quota in quotas.into_iter().flatten() {
                    for shards in (1..=64).filter(|shards| u64::from(*shards) <= burst) {
                        let terms = ShardTerms::of(&quota, count(shards)).unwrap();
                        assert_sum(&quota, &terms);
                        checked += 1;
                    }
                }
            }
        }
        assert!(checked > 5_000, "{checked}");
    }

    fn assert_sum(whole: &Quota, terms: &ShardTerms) {
        let shards = || (0..terms.count()).map(|shard| terms.quota(shard));
        let bursts: Vec<u64> = shards().map(|shard| shard.burst().into()).collect();
        assert_eq!(bursts.iter().sum::<u64>(), u64::from(whole.burst()), "{whole} {terms:?}");
        assert!(
            bursts.windows(2).all(|two| two[0] >= two[1])
                && bursts[0] - bursts.last().unwrap() <= 1
        );
        for shard in shards() {
            assert_eq!(shard.algorithm(), whole.algorithm());
            let (of_whole, of_shard) = (whole.rate(), shard.rate());
            if whole.units_per_tick() > 0 {
                let parts = u128::from(of_shard.units()) * terms.count() as u128;
                assert_eq!(
                    parts * of_whole.period().as_micros(),
                    u128::from(of_whole.units()) * of_shard.period().as_micros()
                );
            } else {
                assert_eq!(of_shard.period(), of_whole.period());
            }
        }
    }

    #[test]
    fn what_cannot_be_kept_in_shards_says_why() {
        let told = |quota: Quota, shards| {
            let error = ShardTerms::of(&quota, count(shards)).unwrap_err();
            assert!(error.is_shards());
            error.to_string()
        };
        assert_eq!(
            told(bucket("10/s", 15), 16),
            "a burst of 15 in 16 shards leaves some of them without a unit: give at most 15 \
             shards, or a larger burst"
        );
        assert_eq!(told(bucket("10/s", 1_000), 65), "65 shards are too many: give at most 64");
        assert_eq!(
            told(Quota::leaky_bucket("10/s".parse().unwrap(), 100).unwrap(), 2),
            "leaky_bucket has no shards: requests of several queues would not be evenly spaced"
        );
        assert_eq!(
            told(Quota::concurrency(10, Duration::from_secs(30)).unwrap(), 2),
            "concurrency has no shards: slots come back only where they were taken"
        );
        assert_eq!(
            told(bucket("1/366day", 100), 2),
            "rate 1/366day cannot be divided among 2 shards exactly: period 63244800s is too \
             long: the longest is 366 days"
        );
        assert!(ShardTerms::of(&bucket("10/366day", 100), count(5)).is_ok());
    }

    #[test]
    fn a_cost_is_asked_of_shards_that_can_hold_it_and_again_of_another_one() {
        let terms = ShardTerms::of(&bucket("10/s", 10), count(4)).unwrap();
        let holding = [(2, 4), (3, 2), (4, 0)].map(|(cost, _)| terms.holding(Cost::new(cost)));
        assert_eq!((holding, terms.cost_max()), ([4, 2, 0], Cost::new(3)));
        let drawn = (0..64_u32).map(|step| step << 26);
        for (cost, end) in [(1, 4), (3, 2)] {
            let cost = Cost::new(cost);
            let mut asked = vec![0; end];
            for first in drawn.clone().map(|drawn| terms.first(cost, drawn).unwrap()) {
                asked[first] += 1;
                let seconds = drawn.clone().map(|drawn| terms.second(first, cost, drawn).unwrap());
                assert!(seconds.clone().all(|second| second != first && second < end));
                let mut seconds: Vec<_> = seconds.collect();
                seconds.dedup();
                assert_eq!(seconds.len(), end - 1, "every other one");
            }
            assert!(asked.iter().all(|times| *times == 64 / end), "{asked:?}");
        }
        assert_eq!(terms.first(Cost::new(4), 0), None);
        let one = ShardTerms::of(&bucket("10/s", 10), count(1)).unwrap();
        assert_eq!(one.first(Cost::ONE, u32::MAX), Some(0));
        assert_eq!(one.second(0, Cost::ONE, 7), None);
    }
}
