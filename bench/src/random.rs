//! Numbers that are as good as random.

/// A generator of numbers that are the same in every run.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Makes a generator whose numbers depend on the seed only.
    pub const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Returns a number below `end`.
    pub const fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}
