//! Division by what stays the same.

/// A divisor of integers below 2^63, with the factor that turns a division by it into a multiplication.
///
/// Divisions are most of what a decision costs, and a quota divides by the same two numbers for as
/// long as it lives.
///
/// With `c` the least number for which the divisor `d <= 2^c`, the factor is `2^(63 + c) / d`, rounded
/// up by `e / d` with `e < d <= 2^c`. For `n < 2^63` the product `n * factor` is above
/// `2^(63 + c) * n / d` by `n * e / d < 2^(63 + c) / d`, which is too little to reach the next integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Divisor {
    /// 0 for the divisor 1, whose factor would need 65 bits.
    factor: u64,
    shift: u32,
}

impl Divisor {
    /// Makes the divisor `by`. A divisor of 0 counts as 1: nobody divides by it.
    pub(crate) fn new(by: u64) -> Self {
        if by <= 1 {
            return Self { factor: 0, shift: 0 };
        }
        let bits = u64::BITS - (by - 1).leading_zeros();
        let factor = (1_u128 << (63 + bits)).div_ceil(u128::from(by));
        Self { factor: u64::try_from(factor).unwrap_or(u64::MAX), shift: bits - 1 }
    }

    /// Returns `number / self`, rounded down. `number` is below 2^63.
    #[inline(always)]
    pub(crate) const fn divide(self, number: u64) -> u64 {
        debug_assert!(number < 1 << 63, "a number that the factor is not exact for");
        if self.factor == 0 {
            return number;
        }
        let product = number as u128 * self.factor as u128;
        ((product >> 64) as u64) >> self.shift
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LARGEST: u64 = (1 << 63) - 1;

    fn check(number: u64, by: u64) {
        assert_eq!(Divisor::new(by).divide(number), number / by, "{number} / {by}");
    }

    #[test]
    fn the_corners_are_exact() {
        let near = |power: u32| {
            let middle = 1_u64 << power;
            [middle.saturating_sub(1).max(1), middle, middle + 1]
        };
        for by in (0..63).flat_map(near).chain([3, 5, 7, 10, 641, 999_999_937, LARGEST]) {
            for number in (0..63).flat_map(near).chain([0, LARGEST]) {
                check(number.min(LARGEST), by.min(LARGEST));
            }
            for times in [1, 2, 3, 1_000_003] {
                let product = by.saturating_mul(times).min(LARGEST - 1);
                (product - 1..=product + 1).for_each(|number| check(number, by.min(LARGEST)));
            }
        }
    }

    proptest! {
        #[test]
        fn every_quotient_is_exact(
            number in 0..=LARGEST,
            by in 1..=LARGEST,
            (down, less) in (0..63_u32, 0..63_u32),
        ) {
            check(number >> down, (by >> less).max(1));
        }
    }
}
