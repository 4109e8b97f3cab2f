//! The one count of keys that all shards share.

use std::iter::Sum;
use std::ops::Add;

use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// How many keys may be stored, and how many are stored or promised (G9).
///
/// The counts alone are kept here; what is stored is ordered by the locks of the shards, so relaxed
/// atomics suffice: each read-modify-write sees the latest count. They have cache lines of their
/// own, because every check reads the fields around them.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Room {
    keys_max: usize,
    taken: AtomicUsize,
    evicted: AtomicU64,
}

impl Room {
    pub(crate) fn new(keys_max: usize) -> Self {
        Self { keys_max, taken: AtomicUsize::new(0), evicted: AtomicU64::new(0) }
    }

    pub(crate) const fn keys_max(&self) -> usize {
        self.keys_max
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Returns how many keys were evicted since the start.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Counts `freed` evicted keys. Their room stays taken until it is given back or taken over.
    pub(crate) fn count_evicted(&self, freed: usize) {
        if freed > 0 {
            self.evicted.fetch_add(freed as u64, Ordering::Relaxed);
        }
    }

    /// Takes room for `count` keys at once, or for none.
    fn take(&self, count: usize) -> bool {
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                taken.checked_add(count).filter(|taken| *taken <= self.keys_max)
            })
            .is_ok()
    }

    /// Gives back the room of `count` keys that are not stored any more.
    pub(crate) fn give_back(&self, count: usize) {
        if count > 0 {
            let taken = self.taken.fetch_sub(count, Ordering::Relaxed);
            debug_assert!(taken >= count, "G9: more room given back than was taken");
        }
    }

    pub(crate) const fn reserve_nothing(&self) -> Reservation<'_> {
        Reservation { room: self, count: 0 }
    }
}

/// How many keys one request stores that were not stored, and how many it removes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Balance {
    added: usize,
    removed: usize,
}

impl Balance {
    pub(crate) const fn added(is_added: bool) -> Self {
        Self { added: is_added as usize, removed: 0 }
    }

    pub(crate) const fn removed(is_removed: bool) -> Self {
        Self { added: 0, removed: is_removed as usize }
    }

    /// Returns for how many keys the request needs room beside that of the keys that it removes.
    pub(crate) const fn need(self) -> usize {
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

/// Room that one request holds for the keys it is about to store. What is not used by then goes
/// back when it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    room: &'a Room,
    count: usize,
}

impl Reservation<'_> {
    /// Takes what is missing to `need` keys, all of it or nothing.
    pub(crate) fn cover(&mut self, need: usize) -> bool {
        let missing = need.saturating_sub(self.count);
        if missing > 0 && !self.room.take(missing) {
            return false;
        }
        self.count += missing;
        true
    }

    /// Takes over the room of `freed` evicted keys up to `need`, and gives the rest to everybody.
    pub(crate) fn take_over(&mut self, freed: usize, need: usize) {
        let kept = freed.min(need.saturating_sub(self.count));
        self.count += kept;
        self.room.give_back(freed - kept);
    }

    /// Hands room over to what the request has stored, and takes over that of what it has removed.
    pub(crate) fn settle(&mut self, balance: Balance) {
        debug_assert!(balance.need() <= self.count, "G9: a key was stored without room for it");
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

    #[test]
    fn g9_room_is_taken_for_all_keys_or_for_none() {
        let room = Room::new(3);
        let mut first = room.reserve_nothing();
        assert!(first.cover(2));
        assert!(!room.reserve_nothing().cover(2));
        assert_eq!(room.taken(), 2);
        assert!(first.cover(3));
        assert!(!first.cover(4));
        assert_eq!((first.count, room.taken()), (3, 3));
    }

    #[test]
    fn what_was_reserved_and_not_used_goes_back() {
        let room = Room::new(5);
        let mut reservation = room.reserve_nothing();
        assert!(reservation.cover(4));
        reservation.settle(Balance { added: 1, removed: 0 });
        drop(reservation);
        assert_eq!(room.taken(), 1);
    }

    #[test]
    fn the_room_of_removed_keys_is_used_for_added_ones() {
        let room = Room::new(5);
        let mut stored = room.reserve_nothing();
        assert!(stored.cover(5));
        stored.settle(Balance { added: 5, removed: 0 });
        for (balance, taken) in [((2, 2), 5), ((1, 3), 3), ((0, 2), 1)] {
            let balance = Balance { added: balance.0, removed: balance.1 };
            let mut reservation = room.reserve_nothing();
            assert!(reservation.cover(balance.need()));
            reservation.settle(balance);
            drop(reservation);
            assert_eq!(room.taken(), taken);
        }
    }

    #[test]
    fn the_room_of_evicted_keys_is_kept_as_far_as_it_is_needed() {
        let room = Room::new(5);
        let mut stored = room.reserve_nothing();
        assert!(stored.cover(5));
        stored.settle(Balance { added: 5, removed: 0 });
        let mut reservation = room.reserve_nothing();
        reservation.take_over(4, 1);
        assert_eq!((reservation.count, room.taken()), (1, 2));
    }
}
