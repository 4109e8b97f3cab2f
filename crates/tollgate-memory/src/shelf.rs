//! Things that end, and the order in which they do.

use std::collections::binary_heap::PeekMut;
use std::mem;
use std::time::Duration;

use tollgate_core::Timestamp;

use crate::queue::{Node, Queue};
use crate::table::Table;

/// A queue of this capacity is kept when it empties, so that a key that comes and goes does not
/// make it grow and shrink each time.
const CAPACITY_MIN: usize = 28;

/// What a shelf holds.
pub(crate) trait Item {
    /// What items of this kind keep together.
    type Shared: Shared;

    /// Returns the hash of the item's key.
    fn hash(&self) -> u64;

    /// Returns when the item may be dropped, in microseconds since the epoch. Unlike a `Timestamp`
    /// it is not clamped: what ends only after the last timestamp never ends.
    fn ends(&self, shared: &Self::Shared) -> u64;

    /// Returns the heap memory of the item, in a constant number of steps.
    fn heap_bytes(&self) -> usize;

    /// Moves what a clock step has left in the future back (G4).
    fn wind_back(&mut self, back: &WindBack);

    /// Takes an item that goes out of what is kept together.
    fn leave(&self, _shared: &mut Self::Shared) {}
}

/// What the items of a shelf keep together.
pub(crate) trait Shared: Default {
    /// Returns its heap memory.
    fn bytes(&self) -> usize;
}

impl Shared for () {
    fn bytes(&self) -> usize {
        0
    }
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

impl WindBack {
    /// Returns how far what was written at `ts` must be moved.
    pub(crate) fn ahead(&self, ts: Timestamp) -> Duration {
        let ahead = ts.saturating_since(self.now);
        if ahead > self.max_clock_skew { ahead } else { Duration::ZERO }
    }
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
///
/// What every check reads comes first, so that it lies in two cache lines with the lock of the shard.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shelf<T: Item> {
    shared: T::Shared,
    table: Table<T>,
    queue: Queue,
    heap_bytes: usize,
    /// The longest time for which an item was stored that does not tell when it was written.
    stay_max_us: u64,
}

impl<T: Item> Default for Shelf<T> {
    fn default() -> Self {
        Self {
            shared: T::Shared::default(),
            table: Table::default(),
            queue: Queue::default(),
            heap_bytes: 0,
            stay_max_us: 0,
        }
    }
}

impl<T: Item> Shelf<T> {
    pub(crate) const fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) const fn shared(&self) -> &T::Shared {
        &self.shared
    }

    pub(crate) const fn shared_mut(&mut self) -> &mut T::Shared {
        &mut self.shared
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

    /// Returns the item in a slot, to be changed without a change of the order.
    #[inline]
    pub(crate) fn at_mut(&mut self, slot: usize) -> Option<(&mut T, &T::Shared)> {
        Some((self.table.at_mut(slot)?, &self.shared))
    }

    /// Changes the item in a slot, and tells whether the order has changed.
    pub(crate) fn edit(&mut self, slot: usize, edit: impl FnOnce(&mut T)) -> bool {
        let Some(item) = self.table.at_mut(slot) else { return false };
        let (ended, held) = (item.ends(&self.shared), item.heap_bytes());
        edit(item);
        let is_earlier = item.ends(&self.shared) < ended;
        self.heap_bytes = self.heap_bytes + item.heap_bytes() - held;
        if is_earlier {
            self.put_forward(slot);
        }
        is_earlier
    }

    /// Replaces the item in a slot by one of the same key, and tells whether the order has changed.
    pub(crate) fn replace(&mut self, slot: usize, mut item: T) -> bool {
        let is_earlier = self.edit(slot, |kept| mem::swap(kept, &mut item));
        item.leave(&mut self.shared);
        is_earlier
    }

    /// Tells that the item in a slot ends earlier than it did.
    #[inline(never)]
    pub(crate) fn put_forward(&mut self, slot: usize) {
        let Some(item) = self.table.at(slot) else { return };
        self.queue.push(Node { ends: item.ends(&self.shared), hash: item.hash() });
        self.tidy();
    }

    pub(crate) fn insert(&mut self, item: T) {
        self.heap_bytes += item.heap_bytes();
        self.queue.push(Node { ends: item.ends(&self.shared), hash: item.hash() });
        self.table.insert(item.hash(), item, &T::hash);
        self.tidy();
    }

    /// Removes the item in a slot.
    pub(crate) fn remove(&mut self, slot: usize) {
        self.take_out(slot);
        self.tidy();
    }

    fn take_out(&mut self, slot: usize) {
        if let Some(item) = self.table.remove(slot) {
            self.heap_bytes -= item.heap_bytes();
            item.leave(&mut self.shared);
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
    pub(crate) fn settle(&mut self, ended_by: u64) -> Option<Settled> {
        let mut top = self.queue.peek_mut()?;
        let Node { ends, hash } = top.0;
        if ends > ended_by {
            return None;
        }
        // The hash is all that the order knows of an item. Should two items share one, either may
        // be settled, for either is evicted only if it has ended.
        let found = self.table.find(hash, |item| item.hash() == hash);
        match found.and_then(|slot| Some((slot, self.table.at(slot)?.ends(&self.shared)))) {
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
    pub(crate) fn tidy(&mut self) {
        let count = self.table.len();
        if self.queue.len() > 2 * count + CAPACITY_MIN {
            self.rebuild_queue();
        }
        if self.queue.capacity() > CAPACITY_MIN && count < self.queue.capacity() / 8 {
            self.queue.shrink_to(2 * count);
        }
        self.table.tidy(&T::hash);
    }

    /// Moves every item that a clock step has left in the future back (G4).
    pub(crate) fn wind_back(&mut self, now: Timestamp, max_clock_skew: Duration) {
        let skew_us = micros(max_clock_skew);
        let ends_max = now.as_micros().saturating_add(self.stay_max_us).saturating_add(skew_us);
        let back = WindBack { now, max_clock_skew, ends_max };
        self.table.iter_mut().for_each(|item| item.wind_back(&back));
        self.rebuild_queue();
    }

    fn rebuild_queue(&mut self) {
        let node = |item: &T| Node { ends: item.ends(&self.shared), hash: item.hash() };
        self.queue.rebuild(self.table.iter().map(node));
    }

    /// Returns the heap memory of the shelf, without what the allocator adds to each item.
    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes() + self.queue.bytes() + self.heap_bytes + self.shared.bytes()
    }
}

/// Returns a duration in whole microseconds, at most `u64::MAX`.
#[inline]
pub(crate) fn micros(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000).saturating_add(duration.subsec_micros().into())
}
