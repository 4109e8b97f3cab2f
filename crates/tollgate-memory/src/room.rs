//! The one count of what is stored that all shards share.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// A number of buckets, and one of the records beside them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) buckets: usize,
    pub(crate) records: usize,
}

impl Count {
    pub(crate) const NONE: Self = Self { buckets: 0, records: 0 };

    pub(crate) const fn of_buckets(buckets: usize) -> Self {
        Self { buckets, records: 0 }
    }

    pub(crate) const fn sum(self) -> usize {
        self.buckets + self.records
    }

    fn min(self, other: Self) -> Self {
        Self { buckets: self.buckets.min(other.buckets), records: self.records.min(other.records) }
    }

    pub(crate) const fn saturating_sub(self, other: Self) -> Self {
        Self {
            buckets: self.buckets.saturating_sub(other.buckets),
            records: self.records.saturating_sub(other.records),
        }
    }
}

impl Add for Count {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { buckets: self.buckets + other.buckets, records: self.records + other.records }
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Count {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { buckets: self.buckets - other.buckets, records: self.records - other.records }
    }
}

/// How many buckets may be stored, and how many records, and how many are stored or promised (G9).
///
/// Records have room of their own, so that reservations of one caller leave no other without a
/// bucket. The counts alone are kept here; what is stored is ordered by the locks of the shards, so
/// relaxed atomics suffice: each read-modify-write sees the latest count. They have cache lines of
/// their own, because every check reads the fields around them.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Room {
    /// The most buckets, and the most records.
    keys_max: usize,
    buckets: AtomicUsize,
    records: AtomicUsize,
    evicted: AtomicU64,
}

impl Room {
    pub(crate) fn new(keys_max: usize) -> Self {
        Self {
            keys_max,
            buckets: AtomicUsize::new(0),
            records: AtomicUsize::new(0),
            evicted: AtomicU64::new(0),
        }
    }

    pub(crate) const fn keys_max(&self) -> usize {
        self.keys_max
    }

    pub(crate) fn taken(&self) -> Count {
        Count {
            buckets: self.buckets.load(Ordering::Relaxed),
            records: self.records.load(Ordering::Relaxed),
        }
    }

    /// Returns how many buckets and records were evicted since the start.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Counts `freed` evicted keys. Their room stays taken until it is given back or taken over.
    pub(crate) fn count_evicted(&self, freed: Count) {
        if freed != Count::NONE {
            self.evicted.fetch_add(freed.sum() as u64, Ordering::Relaxed);
        }
    }

    /// Takes all of this room at once, or nothing.
    fn take(&self, count: Count) -> bool {
        if !self.take_from(&self.buckets, count.buckets) {
            return false;
        }
        if !self.take_from(&self.records, count.records) {
            self.give_back(Count::of_buckets(count.buckets));
            return false;
        }
        true
    }

    fn take_from(&self, taken: &AtomicUsize, count: usize) -> bool {
        count == 0
            || taken
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                    taken.checked_add(count).filter(|taken| *taken <= self.keys_max)
                })
                .is_ok()
    }

    /// Gives back the room of what is not stored any more.
    pub(crate) fn give_back(&self, count: Count) {
        for (taken, count) in [(&self.buckets, count.buckets), (&self.records, count.records)] {
            if count > 0 {
                let taken = taken.fetch_sub(count, Ordering::Relaxed);
                debug_assert!(taken >= count, "G9: more room given back than was taken");
            }
        }
    }

    pub(crate) const fn reserve_nothing(&self) -> Reservation<'_> {
        Reservation { room: self, count: Count::NONE }
    }
}

/// What one request stores that was not stored, and what it removes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Balance {
    pub(crate) added: Count,
    pub(crate) removed: Count,
}

impl Balance {
    /// Returns for what the request needs room beside that of what it removes.
    pub(crate) const fn need(self) -> Count {
        self.added.saturating_sub(self.removed)
    }
}

impl Add for Balance {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { added: self.added + other.added, removed: self.removed + other.removed }
    }
}

impl Sum for Balance {
    fn sum<I: Iterator<Item = Self>>(balances: I) -> Self {
        balances.fold(Self::default(), Add::add)
    }
}

/// Room that one request holds for what it is about to store. What is not used by then goes back
/// when it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    room: &'a Room,
    count: Count,
}

impl Reservation<'_> {
    /// Takes what is missing to `need`, all of it or nothing.
    pub(crate) fn cover(&mut self, need: Count) -> bool {
        let missing = self.missing(need);
        if missing != Count::NONE && !self.room.take(missing) {
            return false;
        }
        self.count += missing;
        true
    }

    /// Returns what is missing to `need`.
    pub(crate) const fn missing(&self, need: Count) -> Count {
        need.saturating_sub(self.count)
    }

    /// Takes over the room of what was evicted up to `need`, and gives the rest to everybody.
    pub(crate) fn take_over(&mut self, freed: Count, need: Count) {
        let kept = freed.min(self.missing(need));
        self.count += kept;
        self.room.give_back(freed - kept);
    }

    /// Hands room over to what the request has stored, and takes over that of what it has removed.
    pub(crate) fn settle(&mut self, balance: Balance) {
        debug_assert!(
            balance.need().saturating_sub(self.count) == Count::NONE,
            "G9: a key was stored without room for it"
        );
        self.count = (self.count + balance.removed).saturating_sub(balance.added);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.room.give_back(self.count);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn buckets(buckets: usize) -> Count {
        Count::of_buckets(buckets)
    }

    fn records(records: usize) -> Count {
        Count { buckets: 0, records }
    }

    fn balance(added: usize, removed: usize) -> Balance {
        Balance { added: buckets(added), removed: buckets(removed) }
    }

    #[test]
    fn g9_room_is_taken_for_all_keys_or_for_none() {
        let room = Room::new(3);
        let mut first = room.reserve_nothing();
        assert!(first.cover(buckets(2)));
        assert!(!room.reserve_nothing().cover(buckets(2)));
        assert_eq!(room.taken(), buckets(2));
        assert!(first.cover(buckets(3)));
        assert!(!first.cover(buckets(4)));
        assert_eq!((first.count, room.taken()), (buckets(3), buckets(3)));
    }

    #[test]
    fn g9_buckets_and_records_have_room_of_their_own_and_both_or_none_is_taken() {
        let room = Room::new(3);
        let mut first = room.reserve_nothing();
        assert!(first.cover(records(3)));
        let mut both = room.reserve_nothing();
        assert!(!both.cover(Count { buckets: 1, records: 1 }));
        assert_eq!(room.taken(), records(3));
        assert!(both.cover(buckets(3)));
        assert_eq!(room.taken(), Count { buckets: 3, records: 3 });
        drop(first);
        assert!(both.cover(Count { buckets: 3, records: 1 }));
    }

    #[test]
    fn what_was_reserved_and_not_used_goes_back() {
        let room = Room::new(5);
        let mut reservation = room.reserve_nothing();
        assert!(reservation.cover(buckets(4)));
        reservation.settle(balance(1, 0));
        drop(reservation);
        assert_eq!(room.taken(), buckets(1));
    }

    #[test]
    fn the_room_of_removed_keys_is_used_for_added_ones() {
        let room = Room::new(5);
        let mut stored = room.reserve_nothing();
        assert!(stored.cover(buckets(5)));
        stored.settle(balance(5, 0));
        for ((added, removed), taken) in [((2, 2), 5), ((1, 3), 3), ((0, 2), 1)] {
            let balance = balance(added, removed);
            let mut reservation = room.reserve_nothing();
            assert!(reservation.cover(balance.need()));
            reservation.settle(balance);
            drop(reservation);
            assert_eq!(room.taken(), buckets(taken));
        }
    }

    #[test]
    fn the_room_of_evicted_keys_is_kept_as_far_as_it_is_needed() {
        let room = Room::new(5);
        let mut stored = room.reserve_nothing();
        assert!(stored.cover(buckets(5)));
        stored.settle(balance(5, 0));
        let mut reservation = room.reserve_nothing();
        reservation.take_over(buckets(4), buckets(1));
        assert_eq!((reservation.count, room.taken()), (buckets(1), buckets(2)));
    }
}
