//! The keys that are asked for.

/// A generator of numbers that are as good as random, and the same in every run.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Returns a number below `end`.
    pub(crate) const fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// The key with a number: 24 bytes, as those of a rule per address are.
pub(crate) fn key(number: usize) -> String {
    format!("default:api:ip={number:09}")
}

/// Makes `count` keys in a random order of their own. They lie in memory in this order, as if each had just
/// been put together by its request.
pub(crate) fn shuffled(count: usize, seed: u64) -> Vec<String> {
    let mut numbers: Vec<usize> = (0..count).collect();
    let mut random = Random::new(seed);
    for index in (1..count).rev() {
        numbers.swap(index, random.below(index + 1));
    }
    numbers.into_iter().map(key).collect()
}
