//! The heads of requests that are on their way to one listener.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What is not counted of each: nearly every head has fewer bytes, so nobody is kept out by others who
/// leave long ones unfinished.
const FREE_BYTES: usize = 8 << 10;

/// The most bytes of all of them.
const BYTES_MAX: usize = 32 << 20;

/// Counts the bytes of heads that have begun and not arrived, so that their memory is bounded however
/// many connections begin one.
#[derive(Debug, Default)]
pub(super) struct Heads(AtomicUsize);

impl Heads {
    /// Counts further bytes of a head that has `before`, and tells whether there is room for them.
    pub(super) fn grow(&self, before: usize, bytes: usize) -> bool {
        let added = counted(before + bytes) - counted(before);
        added == 0 || self.0.fetch_add(added, Ordering::Relaxed) + added <= BYTES_MAX
    }

    /// Counts a head of so many bytes no more.
    pub(super) fn end(&self, bytes: usize) {
        if counted(bytes) > 0 {
            self.0.fetch_sub(counted(bytes), Ordering::Relaxed);
        }
    }
}

const fn counted(bytes: usize) -> usize {
    bytes.saturating_sub(FREE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_heads_are_bounded_and_short_ones_have_room_beside_them() {
        let heads = Heads::default();
        let long = 60 << 10;
        let fitting = BYTES_MAX / (long - FREE_BYTES);
        assert!((0..fitting).all(|_| heads.grow(0, long)));
        assert!(!heads.grow(0, long));
        assert!(heads.grow(0, FREE_BYTES));
        assert!(!heads.grow(FREE_BYTES, 1));
        heads.end(FREE_BYTES + 1);
        heads.end(FREE_BYTES);
        heads.end(long);
        assert!(!heads.grow(0, long), "the refused one counts until its connection has ended");
        heads.end(long);
        heads.end(long);
        assert!(heads.grow(0, long));
    }
}
