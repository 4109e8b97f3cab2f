//! What is known of one key, and the slices that are held of it.

use std::collections::VecDeque;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::{Allow, Cost, LeaseTerms, Quota};

use super::Leftover;

/// Over which time it is counted what a key is asked for.
const WINDOW: Duration = Duration::from_millis(100);

/// How many checks in a window make a key a hot one.
const HOT_CHECKS: u64 = 8;

/// How long it may take until what is given back is in the bucket.
const REFUND_TIME: Duration = Duration::from_millis(50);

/// Near exhaustion a slice is at most this part of what is left, so that others get theirs.
const LEFT_PART: u64 = 4;

/// What is known of one key.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) terms: LeaseTerms,
    pub(super) slices: VecDeque<Slice>,
    pub(super) demand: Demand,
    pub(super) debit: Debit,
    /// Sets what is known since the last reset apart from what was known before.
    pub(super) beginning: u64,
    /// What the bucket held after the last debit.
    pub(super) left: u64,
    /// Until when no slice is debited, because the last one was denied.
    pub(super) strict_until: Instant,
}

/// Whether a slice is being debited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Debit {
    No,
    UnderWay,
    /// It is under way, but nothing may be spent from it: the bucket was reset meanwhile, or is
    /// leased on other terms.
    Void,
}

/// Units that were debited together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    pub(super) units: u64,
    /// Before its debit was sent.
    pub(super) since: Instant,
    /// What the bucket lacked after the debit.
    pub(super) missing: u64,
}

/// What a key is asked for.
#[derive(Debug)]
pub(super) struct Demand {
    since: Instant,
    checks: u64,
    units: u64,
    /// In the window before.
    units_before: u64,
    checks_before: u64,
}

/// The slices that a cost was taken from, each with the units that were.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(super) slices: SmallVec<[Slice; 1]>,
    pub(super) beginning: u64,
}

impl Debit {
    pub(super) const fn voided(self) -> Self {
        match self {
            Self::No => Self::No,
            Self::UnderWay | Self::Void => Self::Void,
        }
    }
}

impl Key {
    pub(super) fn new(terms: LeaseTerms, cost: Cost, now: Instant) -> Self {
        let mut demand =
            Demand { since: now, checks: 0, units: 0, units_before: 0, checks_before: 0 };
        demand.note(cost, now);
        let left = u64::from(terms.quota().burst());
        let slices = VecDeque::new();
        Self { terms, slices, demand, debit: Debit::No, beginning: 0, left, strict_until: now }
    }

    pub(super) fn held(&self) -> u64 {
        self.slices.iter().map(|slice| slice.units).sum()
    }

    pub(super) fn drop_ended(&mut self, now: Instant) {
        let ttl = self.terms.ttl();
        self.slices.retain(|slice| slice.units > 0 && now < slice.since + ttl);
    }

    /// Spends from the oldest first: it ends first.
    pub(super) fn spend(&mut self, cost: Cost) -> Option<(Allow, Parts)> {
        let held = self.held();
        let mut wanted = cost.units();
        if held < wanted {
            return None;
        }
        let mut slices = SmallVec::new();
        for slice in &mut self.slices {
            let units = wanted.min(slice.units);
            if units > 0 {
                slice.units -= units;
                wanted -= units;
                slices.push(Slice { units, ..*slice });
            }
        }
        let limit = self.terms.quota().burst();
        let there = (self.left + held - cost.units()).min(u64::from(limit));
        let remaining = u32::try_from(there).unwrap_or(limit);
        let reset_after = self.terms.quota().time_to_gain(u64::from(limit - remaining));
        let allow = Allow { limit, remaining, reset_after, delay: Duration::ZERO };
        Some((allow, Parts { slices, beginning: self.beginning }))
    }

    /// Puts back a part of a slice that may be used up by now.
    pub(super) fn put_back(&mut self, part: Slice) {
        let place = self.slices.partition_point(|slice| slice.since < part.since);
        match self.slices.get_mut(place) {
            Some(slice) if slice.since == part.since => slice.units += part.units,
            _ => self.slices.insert(place, part),
        }
    }

    /// Lets go of what is not worth keeping, and tells whether anything is left to watch.
    pub(super) fn let_go(
        &mut self,
        key: &str,
        ahead: Option<Duration>,
        now: Instant,
        leftovers: &mut Vec<Leftover>,
    ) -> bool {
        let is_idle = self.demand.is_idle(now);
        let (quota, ttl) = (*self.terms.quota(), self.terms.ttl());
        self.slices.retain(|slice| {
            let ends = slice.since + ttl;
            let is_kept = !is_idle && ahead.is_some_and(|ahead| now + ahead < ends);
            let back = slice.still_missed(&quota, now + REFUND_TIME);
            if !is_kept && now < ends && back > 0 {
                leftovers.push(Leftover { key: key.to_owned(), quota, cost: Cost::new(back) });
            }
            is_kept
        });
        !is_idle || self.debit != Debit::No
    }

    /// How large a slice is worth to be debited now.
    pub(super) fn wants(&mut self, cost: Cost, now: Instant) -> Option<u64> {
        if self.debit != Debit::No || now < self.strict_until || !self.demand.is_hot() {
            return None;
        }
        // What is asked for in half of the time for which a slice may be spent from.
        let half_ms = (self.terms.ttl() / 2).as_millis().min(1_000);
        let window_ms = WINDOW.as_millis();
        let asked = u128::from(self.demand.units_before.max(self.demand.units)) * half_ms;
        let asked = u64::try_from(asked / window_ms).unwrap_or(u64::MAX);
        let size = asked.min(self.terms.slice_max()).min(self.left / LEFT_PART);
        // A slice for two checks saves no call.
        let is_worth_it = size >= cost.units().saturating_mul(2) && self.held() < size / 2;
        if is_worth_it {
            self.debit = Debit::UnderWay;
        }
        is_worth_it.then_some(size)
    }
}

impl Demand {
    pub(super) fn note(&mut self, cost: Cost, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        if passed >= WINDOW {
            let is_next = passed < 2 * WINDOW;
            self.units_before = if is_next { self.units } else { 0 };
            self.checks_before = if is_next { self.checks } else { 0 };
            (self.since, self.checks, self.units) = (now, 0, 0);
        }
        self.checks += 1;
        self.units = self.units.saturating_add(cost.units());
    }

    fn is_hot(&self) -> bool {
        self.checks.max(self.checks_before) >= HOT_CHECKS
    }

    fn is_idle(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= 3 * WINDOW
    }
}

impl Slice {
    /// How many of its units would be in the bucket at `at`, had they never been debited: what
    /// refilled since may have had no place beside them.
    pub(super) fn still_missed(&self, quota: &Quota, at: Instant) -> u64 {
        // The bucket would have been full after so long. One unit less is on the safe side.
        let room = self.missing.saturating_sub(self.units).saturating_sub(1);
        let full_after = quota.time_to_gain(room);
        let beyond = at.saturating_duration_since(self.since).saturating_sub(full_after);
        let rate = quota.rate();
        let gained = beyond.as_micros().saturating_mul(u128::from(rate.units()));
        let gained = gained.div_ceil(rate.period().as_micros().max(1));
        self.units.saturating_sub(u64::try_from(gained).unwrap_or(u64::MAX))
    }
}
