//! The hashes by which keys are found and told apart.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

/// The key of a bucket with its hashes, which have no seed in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    /// Chooses the shard, and the place in it.
    pub(crate) hash: u64,
    /// Tells apart, beside the hash, keys that are not stored themselves. The lowest 16 bits say
    /// nothing.
    pub(crate) check: u64,
    pub(crate) text: &'a str,
}

/// The bits of a check that are kept beside a hash. The number of a quota takes the place of the
/// others.
pub(crate) const CHECK: u64 = !0xFFFF;

impl Key<'_> {
    /// Returns the bits of the check that are kept.
    #[inline(always)]
    pub(crate) const fn kept_check(&self) -> u64 {
        self.check & CHECK
    }
}

/// Hashes keys by two seeds of each store, which nobody outside knows: nobody can aim keys at one
/// shard, or find two that are taken for one.
#[derive(Clone, Debug)]
pub(crate) struct KeyHasher {
    hash: SeedableRandomState,
    check: SeedableRandomState,
}

impl KeyHasher {
    pub(crate) fn new() -> Self {
        static SHARED: OnceLock<[SharedSeed; 2]> = OnceLock::new();
        let [hash, check] = SHARED.get_or_init(|| random().map(SharedSeed::from_u64));
        let [hash_seed, check_seed] = random();
        Self {
            hash: SeedableRandomState::with_seed(hash_seed, hash),
            check: SeedableRandomState::with_seed(check_seed, check),
        }
    }

    #[inline(always)]
    pub(crate) fn key<'a>(&self, text: &'a str) -> Key<'a> {
        let hash_by = |seeded: &SeedableRandomState| {
            let mut hasher = seeded.build_hasher();
            hasher.write(text.as_bytes());
            hasher.finish()
        };
        Key { hash: hash_by(&self.hash), check: hash_by(&self.check), text }
    }

    /// Returns the hash of what is no key.
    pub(crate) fn hash_one(&self, value: impl Hash) -> u64 {
        self.hash.hash_one(value)
    }
}

/// Returns numbers that follow from the randomness of the operating system.
#[cfg(not(loom))]
fn random() -> [u64; 2] {
    let keyed = std::collections::hash_map::RandomState::new();
    [0_u8, 1].map(|index| keyed.hash_one(index))
}

/// The model checker replays a run, which random seeds would change.
#[cfg(loom)]
const fn random() -> [u64; 2] {
    [1, 2]
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn both_hashes_have_random_bits_that_do_not_depend_on_each_other() {
        let [one, other] = [KeyHasher::new(), KeyHasher::new()];
        let mut counts = [[0; 64]; 5];
        for number in 0..10_000 {
            let text = format!("default:api:ip={number:09}");
            let (key, others) = (one.key(&text), other.key(&text));
            let words = [
                key.hash,
                key.check,
                key.hash ^ key.check,
                key.hash ^ others.hash,
                key.check ^ others.check,
            ];
            for (counts, word) in counts.iter_mut().zip(words) {
                (0..64).for_each(|bit| counts[bit] += word >> bit & 1);
            }
        }
        // Half of 10,000; seven standard deviations are 350.
        let even = 4_650..5_350;
        assert!(counts.as_flattened().iter().all(|count| even.contains(count)), "{counts:?}");
    }
}
