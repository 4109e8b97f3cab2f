//! The parts of a store that fail apart from each other.

use std::ops::{BitAnd, BitOr, Sub};

/// A set of parts: one for most stores, 64 for a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreParts(pub(crate) u64);

impl StoreParts {
    pub(crate) const fn one(index: usize) -> Self {
        Self(1 << (index % 64))
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The parts that are in the set, by their index.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let index = left.trailing_zeros() as usize;
            // Takes the lowest part out.
            left &= left.checked_sub(1)?;
            Some(index)
        })
    }
}

impl FromIterator<Self> for StoreParts {
    fn from_iter<I: IntoIterator<Item = Self>>(parts: I) -> Self {
        parts.into_iter().fold(Self(0), BitOr::bitor)
    }
}

impl BitOr for StoreParts {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for StoreParts {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Sub for StoreParts {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_set_are_told_once_each_and_in_order() {
        let parts: StoreParts = [63, 0, 5, 5].map(StoreParts::one).into_iter().collect();
        assert_eq!(parts.iter().collect::<Vec<_>>(), [0, 5, 63]);
        assert_eq!(StoreParts::default().iter().next(), None);
        assert_eq!(StoreParts(u64::MAX).iter().count(), 64);
    }
}
