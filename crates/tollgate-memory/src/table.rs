//! A hash table that holds its items where they are found, close together.

use std::slice;

/// The tag of a slot that holds nothing.
const EMPTY: u8 = 0;

/// How many tags are looked at in one step.
const GROUP: usize = 8;

/// The homes of the smallest table.
const HOMES_MIN: usize = 4;

/// The most slots behind the last home, for those whose homes at the end are taken.
const TAIL_MAX: usize = 32;

/// A table with open addressing and linear probing, at least seven tenths full while it grows.
///
/// The hash of an item gives its home, and a tag of eight bits that tells apart nearly all who meet
/// there. So a look-up reads a few tags in a row, and then one item. Homes lie in the order of the
/// hashes, which makes growing a walk through memory and not a scatter.
///
/// # Invariants
///
/// Between the home of an item and its slot no slot is empty. `away` tells how far that is, so that
/// a removal needs no hash to close the gap. The last `GROUP` tags belong to no slot and stay empty.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Table<T> {
    tags: Box<[u8]>,
    slots: Box<[Option<T>]>,
    /// A home is told by 32 bits of a hash.
    homes: u32,
    len: u32,
    away: Box<[u8]>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { tags: Box::default(), slots: Box::default(), homes: 0, len: 0, away: Box::default() }
    }
}

/// The tag of a hash, by bits that choose neither home nor shard.
const fn tag_of(hash: u64) -> u8 {
    let tag = (hash >> 56) as u8;
    if tag == EMPTY { 1 } else { tag }
}

/// Marks the bytes of `group` that are `tag`, in their highest bits. Above a byte that is, it may mark
/// one that is not.
const fn marks(group: u64, tag: u8) -> u64 {
    const ONES: u64 = u64::MAX / 0xFF;
    let other = group ^ (ONES * tag as u64);
    other.wrapping_sub(ONES) & !other & (ONES << 7)
}

impl<T> Table<T> {
    fn with_homes(homes: usize) -> Self {
        let slots = homes + (homes / 4 + 2).min(TAIL_MAX);
        let homes = u32::try_from(homes).unwrap_or(u32::MAX);
        Self {
            tags: vec![EMPTY; slots + GROUP].into(),
            slots: (0..slots).map(|_| None).collect(),
            homes,
            len: 0,
            away: vec![0; slots].into(),
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    const fn homes(&self) -> usize {
        self.homes as usize
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        (((hash & 0xFFFF_FFFF) * u64::from(self.homes)) >> 32) as usize
    }

    #[inline]
    fn group(&self, at: usize) -> Option<u64> {
        let tags = self.tags.get(at..)?.first_chunk::<GROUP>()?;
        Some(u64::from_le_bytes(*tags))
    }

    /// Returns the slot of the item whose key has `hash` and that `is_it`.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(&T) -> bool) -> Option<usize> {
        let tag = tag_of(hash);
        let mut from = self.home(hash);
        loop {
            let group = self.group(from)?;
            let mut marks_left = marks(group, tag);
            while marks_left != 0 {
                let at = from + marks_left.trailing_zeros() as usize / 8;
                if let Some(Some(item)) = self.slots.get(at)
                    && is_it(item)
                {
                    return Some(at);
                }
                marks_left &= marks_left - 1;
            }
            if marks(group, EMPTY) != 0 {
                return None;
            }
            from += GROUP;
        }
    }

    /// Returns the item in a slot that [`find`](Self::find) has returned.
    #[inline]
    pub(crate) fn at(&self, slot: usize) -> Option<&T> {
        self.slots.get(slot)?.as_ref()
    }

    /// Returns the item in a slot that [`find`](Self::find) has returned.
    #[inline]
    pub(crate) fn at_mut(&mut self, slot: usize) -> Option<&mut T> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Adds an item that is not there yet. `hash_of` tells the hashes of those that are.
    pub(crate) fn insert(&mut self, hash: u64, item: T, hash_of: &impl Fn(&T) -> u64) {
        if (self.len() + 1) * 20 > self.homes() * 17 {
            self.grow(hash_of);
        }
        let mut item = item;
        while let Err(refused) = self.put(hash, item) {
            item = refused;
            self.grow(hash_of);
        }
    }

    fn grow(&mut self, hash_of: &impl Fn(&T) -> u64) {
        self.resize((self.homes() * 6 / 5).max(self.homes() + HOMES_MIN), hash_of);
    }

    /// Puts an item into the first empty slot from its home, unless there is none near enough.
    fn put(&mut self, hash: u64, item: T) -> Result<(), T> {
        let home = self.home(hash);
        let tags = self.tags.get(home..).unwrap_or_default();
        let Some(away) = tags.iter().position(|tag| *tag == EMPTY) else { return Err(item) };
        let at = home + away;
        match (self.slots.get_mut(at), u8::try_from(away)) {
            (Some(slot), Ok(away)) => {
                *slot = Some(item);
                self.tags[at] = tag_of(hash);
                self.away[at] = away;
                self.len += 1;
                Ok(())
            }
            _ => Err(item),
        }
    }

    /// Takes the item out of a slot, and moves those up that it kept from their homes.
    pub(crate) fn remove(&mut self, slot: usize) -> Option<T> {
        let item = self.slots.get_mut(slot)?.take()?;
        self.len -= 1;
        let mut hole = slot;
        let mut at = slot + 1;
        while self.tags[at] != EMPTY {
            let away = usize::from(self.away[at]);
            if away >= at - hole {
                self.slots[hole] = self.slots[at].take();
                self.tags[hole] = self.tags[at];
                self.away[hole] = u8::try_from(away - (at - hole)).unwrap_or(u8::MAX);
                hole = at;
            }
            at += 1;
        }
        self.tags[hole] = EMPTY;
        Some(item)
    }

    /// Gives memory back if most of the table is empty.
    pub(crate) fn tidy(&mut self, hash_of: &impl Fn(&T) -> u64) {
        if self.homes() > 6 * HOMES_MIN && self.len() < self.homes() / 6 {
            self.resize(self.len() * 2, hash_of);
        }
    }

    fn resize(&mut self, homes: usize, hash_of: &impl Fn(&T) -> u64) {
        let old = std::mem::replace(self, Self::with_homes(homes.max(HOMES_MIN)));
        let mut refused = Vec::new();
        for item in old.slots.into_iter().flatten() {
            if let Err(item) = self.put(hash_of(&item), item) {
                refused.push(item);
            }
        }
        for item in refused {
            self.insert(hash_of(&item), item, hash_of);
        }
    }

    pub(crate) fn iter(&self) -> std::iter::Flatten<slice::Iter<'_, Option<T>>> {
        self.slots.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> std::iter::Flatten<slice::IterMut<'_, Option<T>>> {
        self.slots.iter_mut().flatten()
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.tags) + size_of_val(&*self.slots) + size_of_val(&*self.away)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Hashes of which many share a home and a tag, and some are equal.
    fn poor_hash(number: &u32) -> u64 {
        let number = u64::from(*number);
        ((number % 3) << 56) | ((number % 50) * (0xFFFF_FFFF / 49))
    }

    fn good_hash(number: &u32) -> u64 {
        u64::from(*number).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn check(hash: fn(&u32) -> u64) {
        let (mut table, mut there) = (Table::default(), HashSet::new());
        let mut state = 1_u32;
        for step in 0..30_000_u32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = (state >> 16) % if step % 10_000 < 5_000 { 400 } else { 40 };
            let slot = table.find(hash(&number), |other| *other == number);
            assert_eq!(slot.is_some(), there.contains(&number));
            match slot {
                Some(slot) => {
                    assert_eq!(table.at(slot), Some(&number));
                    assert_eq!(table.remove(slot), Some(number));
                    there.remove(&number);
                }
                None => {
                    table.insert(hash(&number), number, &hash);
                    there.insert(number);
                }
            }
            table.tidy(&hash);
            assert_eq!(table.len(), there.len());
            if step % 500 == 0 {
                assert_eq!(table.iter().copied().collect::<HashSet<_>>(), there);
                for number in 0..400 {
                    let found = table.find(hash(&number), |other| *other == number);
                    assert_eq!(found.is_some(), there.contains(&number), "{number}");
                }
            }
        }
    }

    #[test]
    fn items_are_found_whatever_came_and_went() {
        check(good_hash);
    }

    #[test]
    fn items_that_meet_are_told_apart() {
        check(poor_hash);
    }

    #[test]
    fn an_empty_table_finds_nothing_and_takes_nothing() {
        let table = Table::<u32>::default();
        assert_eq!(table.find(0, |_| true), None);
        assert_eq!(table.bytes(), 0);
    }

    #[test]
    fn a_table_is_seven_tenths_full_or_more_and_gives_memory_back() {
        let mut table = Table::default();
        for number in 0..10_000_u32 {
            table.insert(good_hash(&number), number, &good_hash);
            let full = table.len() as f64 / table.slots.len() as f64;
            assert!(table.len() < 1_000 || full > 0.68, "{number} {full}");
        }
        for number in 0..9_990 {
            let slot = table.find(good_hash(&number), |other| *other == number).unwrap();
            assert_eq!(table.remove(slot), Some(number));
            table.tidy(&good_hash);
        }
        assert!(table.slots.len() < 100, "{}", table.slots.len());
        assert!(table.find(good_hash(&9_995), |other| *other == 9_995).is_some());
    }
}
