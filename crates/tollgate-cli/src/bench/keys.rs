//! Which keys are asked for.

use std::sync::Arc;

use super::options::Bench;

/// How requests spread over the keys.
#[derive(Clone, Debug)]
pub(super) enum Spread {
    Even,
    /// This share of them asks for the first key.
    Hot(f64),
    /// The sums of the weights of all keys up to each.
    Weighted(Arc<[f64]>),
}

/// Draws keys, as good as random and the same for the same seed.
#[derive(Debug)]
pub(super) struct Keys {
    count: u32,
    spread: Spread,
    state: u64,
}

impl Spread {
    pub(super) fn new(args: &Bench) -> Self {
        match (args.hot, args.zipf) {
            (Some(share), _) => Self::Hot(share),
            (None, Some(exponent)) => {
                let sums = (1..=args.keys).scan(0.0, |sum, rank| {
                    *sum += f64::from(rank).powf(-exponent);
                    Some(*sum)
                });
                Self::Weighted(sums.collect())
            }
            (None, None) => Self::Even,
        }
    }
}

impl Keys {
    pub(super) fn new(count: u32, spread: Spread, seed: u64) -> Self {
        Self { count, spread, state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 }
    }

    /// Returns the number of the next key, below their count.
    pub(super) fn draw(&mut self) -> u32 {
        match &self.spread {
            Spread::Even => self.even(),
            Spread::Hot(share) => {
                let share = *share;
                if self.fraction() < share { 0 } else { self.even() }
            }
            Spread::Weighted(sums) => {
                let (sums, whole) = (Arc::clone(sums), sums.last().copied().unwrap_or_default());
                let at = self.fraction() * whole;
                let rank = sums.partition_point(|sum| *sum <= at);
                u32::try_from(rank).unwrap_or(u32::MAX).min(self.count - 1)
            }
        }
    }

    fn even(&mut self) -> u32 {
        let drawn = self.fraction() * f64::from(self.count);
        (drawn as u32).min(self.count - 1)
    }

    /// Returns a number from 0 to below 1.
    fn fraction(&mut self) -> f64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(count: u32, spread: &Spread) -> Vec<u32> {
        let mut keys = Keys::new(count, spread.clone(), 7);
        let mut drawn = vec![0; count as usize];
        (0..100_000).for_each(|_| drawn[keys.draw() as usize] += 1);
        drawn
    }

    #[test]
    fn all_keys_are_asked_for_alike() {
        let drawn = drawn(10, &Spread::Even);
        assert!(drawn.iter().all(|count| (9_500..10_500).contains(count)), "{drawn:?}");
    }

    #[test]
    fn a_hot_key_gets_its_share() {
        let drawn = drawn(1_000, &Spread::Hot(0.5));
        assert!((49_000..51_500).contains(&drawn[0]), "{}", drawn[0]);
    }

    #[test]
    fn the_second_key_of_a_zipf_law_gets_half_of_the_first() {
        let sums = Spread::Weighted([1.0, 1.5, 1.5 + 1.0 / 3.0].into());
        let drawn = drawn(3, &sums);
        let ratio = f64::from(drawn[0]) / f64::from(drawn[1]);
        assert!((1.9..2.1).contains(&ratio), "{drawn:?}");
    }
}
