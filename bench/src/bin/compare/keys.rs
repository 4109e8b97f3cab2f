//! The keys that are asked for.

pub(crate) use tollgate_bench::Random;

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
