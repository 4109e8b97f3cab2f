//! The heaviest of any number of buckets, in bounded memory.

use std::fmt;

/// A space-saving sketch: it counts the buckets that it holds, and a bucket that it does not hold
/// takes the place, and the count, of the lightest. Whatever has more than 1 in
/// [`HELD_MAX`](Self::HELD_MAX) of all denials is held.
#[derive(Debug, Default)]
pub(super) struct Heaviest {
    held: Vec<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    hash: u64,
    /// As it is to be shown, or `None` if that is by its hash.
    key: Option<Box<str>>,
    count: u64,
    /// How much of `count` may be of the buckets that were in this place before.
    taken_over: u64,
}

impl Heaviest {
    /// How many buckets are held at most.
    const HELD_MAX: usize = 32;

    /// How many are shown at most.
    const SHOWN_MAX: usize = 3;

    /// Counts the bucket with this hash; `key` is asked for if it was not held.
    pub(super) fn add(&mut self, hash: u64, key: impl FnOnce() -> Option<Box<str>>) {
        if let Some(bucket) = self.held.iter_mut().find(|bucket| bucket.hash == hash) {
            bucket.count += 1;
            return;
        }
        if self.held.len() < Self::HELD_MAX {
            self.held.push(Bucket { hash, key: key(), count: 1, taken_over: 0 });
        } else if let Some(lightest) = self.held.iter_mut().min_by_key(|bucket| bucket.count) {
            let taken_over = lightest.count;
            *lightest = Bucket { hash, key: key(), count: taken_over + 1, taken_over };
        }
    }
}

/// Shows the heaviest, each with how many of the denials are certainly its own.
impl fmt::Display for Heaviest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut buckets: Vec<_> =
            self.held.iter().map(|bucket| (bucket.count - bucket.taken_over, bucket)).collect();
        buckets.sort_by_key(|(own, _)| std::cmp::Reverse(*own));
        for (index, (own, bucket)) in buckets.iter().take(Self::SHOWN_MAX).enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            match bucket.key.as_deref() {
                None => write!(f, "#{:016x} ({own})", bucket.hash)?,
                // The rule has one bucket for all.
                Some("") => write!(f, "all ({own})")?,
                Some(key) => write!(f, "{key} ({own})")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(heaviest: &mut Heaviest, hash: u64) {
        heaviest.add(hash, || Some(hash.to_string().into()));
    }

    #[test]
    fn few_buckets_are_counted_exactly_and_the_three_heaviest_shown() {
        let mut heaviest = Heaviest::default();
        for (hash, count) in [(1, 5), (2, 7), (3, 1), (4, 6)] {
            (0..count).for_each(|_| add(&mut heaviest, hash));
        }
        assert_eq!(heaviest.to_string(), "2 (7), 4 (6), 1 (5)");
    }

    #[test]
    fn g9_a_million_light_buckets_neither_take_memory_nor_hide_the_heavy_ones() {
        let mut heaviest = Heaviest::default();
        for light in 0..1_000_000 {
            add(&mut heaviest, 1_000 + light);
            if light % 10 == 0 {
                add(&mut heaviest, 1);
            }
            if light % 20 == 0 {
                add(&mut heaviest, 2);
            }
        }
        assert_eq!(heaviest.held.len(), 32);
        let mut counts: Vec<_> = heaviest
            .held
            .iter()
            .map(|bucket| (bucket.count - bucket.taken_over, bucket.hash))
            .collect();
        counts.sort_unstable();
        let heavy: Vec<_> = counts.iter().rev().take(2).map(|(_, hash)| *hash).collect();
        assert_eq!(heavy, [1, 2]);
        let own = counts[31].0;
        assert!((90_000..=100_000).contains(&own), "never more than there were: {own}");
    }
}
