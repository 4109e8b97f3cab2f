//! Numbers that look random and are the same in every run.

/// SplitMix64: a seed gives one sequence, whatever the platform.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number of `0 ..= most`, which is below 2^64 - 1.
    pub(crate) fn up_to(&mut self, most: u64) -> u64 {
        self.next() % (most + 1)
    }

    /// Returns an index of `0 .. count`.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.up_to(count as u64 - 1)).unwrap()
    }

    /// Returns one of them.
    pub(crate) fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}
