//! Things that end, and the order in which they do.

use std::collections::binary_heap::PeekMut;
use std::time::Duration;

use tollgate_core::Timestamp;

use crate::queue::{Node, Queue};
use crate::shard::KeyHasher;
use crate::table::Table;

/// A queue of this capacity is kept when it empties, so that a key that comes and goes does not
/// make it grow and shrink each time.
const CAPACITY_MIN: usize = 28;

/// What a shelf holds.
pub(crate) trait Item {
    /// Returns the hash of the item's key.
    fn hash(&self, hasher: &KeyHasher) -> u64;

    /// Returns when the item may be dropped, in microseconds since the epoch. Unlike a `Timestamp`
    /// it is not clamped: what ends only after the last timestamp never ends.
    fn ends(&self) -> u64;

    /// Returns the heap memory of the item, in a constant number of steps.
    fn heap_bytes(&self) -> usize;

    /// Moves what a clock step has left in the future back (G4).
    fn wind_back(&mut self, back: &WindBack);
}

/// A step of the clock back to `now`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindBack {
    pub(crate) now: Timestamp,
    pub(crate) max_clock_skew: Duration,
    /// The latest end that a clock within the skew could have written, in microseconds since the
    /// epoch, for an item that does not tell when it was written.
    pub(crate) ends_max: u64,
}

/// What [`Shelf::settle`] did with the item that may end first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It had ended and is evicted.
    Evicted,
    /// It had been put off or removed since, and its place in the order is put right.
    Moved,
}

/// A table of items, and the order in which they end.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shelf<T> {
    table: Table<T>,
    queue: Queue,
    heap_bytes: usize,
    /// The longest time for which an item was stored that does not tell when it was written.
    stay_max_us: u64,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { table: Table::default(), queue: Queue::default(), heap_bytes: 0, stay_max_us: 0 }
    }
}

impl<T: Item> Shelf<T> {
    pub(crate) const fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the slot of an item. It holds until an item is added or removed.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<usize> {
        self.table.find(hash, is_it)
    }

    #[inline]
    pub(crate) fn at(&self, slot: usize) -> Option<&T> {
        self.table.at(slot)
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, slot: usize) -> Option<&mut T> {
        self.table.at_mut(slot)
    }

    /// Changes the item in a slot, and tells whether the order has changed.
    #[inline]
    pub(crate) fn edit(
        &mut self,
        (hash, slot): (u64, usize),
        edit: impl FnOnce(&mut T),
        hasher: &KeyHasher,
    ) -> bool {
        let Some(item) = self.table.at_mut(slot) else { return false };
        let (ended, held) = (item.ends(), item.heap_bytes());
        edit(item);
        let ends = item.ends();
        self.heap_bytes = self.heap_bytes + item.heap_bytes() - held;
        if ends >= ended {
            return false;
        }
        self.put_forward(hash, ends, hasher);
        true
    }

    /// Tells that the item whose key has `hash` ends earlier than it did.
    #[inline(never)]
    pub(crate) fn put_forward(&mut self, hash: u64, ends: u64, hasher: &KeyHasher) {
        self.queue.push(Node { ends, hash });
        self.tidy(hasher);
    }

    pub(crate) fn insert(&mut self, hash: u64, item: T, hasher: &KeyHasher) {
        self.heap_bytes += item.heap_bytes();
        self.queue.push(Node { ends: item.ends(), hash });
        self.table.insert(hash, item, &|item: &T| item.hash(hasher));
        self.tidy(hasher);
    }

    /// Removes an item, if there is one.
    pub(crate) fn remove(&mut self, hash: u64, is_it: impl FnMut(&T) -> bool, hasher: &KeyHasher) {
        let Some(slot) = self.find(hash, is_it) else { return };
        self.take_out(slot);
        self.tidy(hasher);
    }

    fn take_out(&mut self, slot: usize) {
        if let Some(item) = self.table.remove(slot) {
            self.heap_bytes -= item.heap_bytes();
        }
    }

    /// Tells that an item was stored for `stay_us` which does not tell when it was written.
    pub(crate) fn note_stay(&mut self, stay_us: u64) {
        self.stay_max_us = self.stay_max_us.max(stay_us);
    }

    /// Returns the time before which no item ends.
    pub(crate) fn first_end(&self) -> u64 {
        self.queue.first()
    }

    /// Settles the item that may end first: evicts it if it had ended by `ended_by`.
    ///
    /// Returns `None` if no item had ended by then. Whoever calls this ends with
    /// [`tidy`](Self::tidy).
    pub(crate) fn settle(&mut self, ended_by: u64, hasher: &KeyHasher) -> Option<Settled> {
        let mut top = self.queue.peek_mut()?;
        let Node { ends, hash } = top.0;
        if ends > ended_by {
            return None;
        }
        // The hash is all that the order knows of an item. Should two items share one, either may
        // be settled, for either is evicted only if it has ended.
        let found = self.table.find(hash, |item| item.hash(hasher) == hash);
        match found.and_then(|slot| Some((slot, self.table.at(slot)?.ends()))) {
            Some((slot, ends)) if ends <= ended_by => {
                PeekMut::pop(top);
                self.take_out(slot);
                Some(Settled::Evicted)
            }
            Some((_, ends)) => {
                top.0.ends = ends;
                Some(Settled::Moved)
            }
            None => {
                PeekMut::pop(top);
                Some(Settled::Moved)
            }
        }
    }

    /// Gives memory back after items have gone. The work is paid for by what was removed or pushed
    /// since the last time.
    pub(crate) fn tidy(&mut self, hasher: &KeyHasher) {
        let count = self.table.len();
        if self.queue.len() > 2 * count + CAPACITY_MIN {
            self.queue.rebuild(nodes(&self.table, hasher));
        }
        if self.queue.capacity() > CAPACITY_MIN && count < self.queue.capacity() / 8 {
            self.queue.shrink_to(2 * count);
        }
        self.table.tidy(&|item: &T| item.hash(hasher));
    }

    /// Moves every item that a clock step has left in the future back (G4).
    pub(crate) fn wind_back(
        &mut self,
        now: Timestamp,
        max_clock_skew: Duration,
        hasher: &KeyHasher,
    ) {
        let skew_us = micros(max_clock_skew);
        let ends_max = now.as_micros().saturating_add(self.stay_max_us).saturating_add(skew_us);
        let back = WindBack { now, max_clock_skew, ends_max };
        self.table.iter_mut().for_each(|item| item.wind_back(&back));
        self.queue.rebuild(nodes(&self.table, hasher));
    }

    /// Returns the heap memory of the shelf, without what the allocator adds to each item.
    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes() + self.queue.bytes() + self.heap_bytes
    }
}

fn nodes<T: Item>(table: &Table<T>, hasher: &KeyHasher) -> impl Iterator<Item = Node> {
    table.iter().map(|item| Node { ends: item.ends(), hash: item.hash(hasher) })
}

/// Returns a duration in whole microseconds, at most `u64::MAX`.
#[inline]
pub(crate) fn micros(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000).saturating_add(duration.subsec_micros().into())
}
