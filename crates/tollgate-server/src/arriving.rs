//! How much there may be of requests that have begun and not arrived.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::http::Version;

/// What a request that has not arrived is counted as, beside what it has sent: its future, its
/// stream and its timer.
const REQUEST_BYTES: usize = 12 << 10;

/// What is not counted of a request on a connection that can have no other, so that those who write the
/// head and a short body apart are not kept out by others.
const ALONE_BYTES: usize = REQUEST_BYTES + (4 << 10);

/// The most bytes of all of them: 5,461 requests of which nothing but the head has come. A client that
/// falls behind, with a hundred requests on each of a hundred connections, has begun thousands.
const BYTES_MAX: usize = 64 << 20;

/// Counts the bytes of requests whose bodies are still on their way, so that their memory is bounded
/// however many connections and streams begin one. A body that comes with its head is not counted.
#[derive(Debug)]
pub(crate) struct Arriving {
    bytes: AtomicUsize,
    bytes_max: usize,
}

/// The part of one request, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    of: Arc<Arriving>,
    bytes: usize,
    /// Further bytes that are not counted.
    free: usize,
}

impl Default for Arriving {
    fn default() -> Self {
        Self::new(BYTES_MAX)
    }
}

impl Arriving {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self { bytes: AtomicUsize::new(0), bytes_max }
    }

    /// Counts a request of a version of HTTP with so many bytes, unless there is no room for it.
    pub(crate) fn begin(self: &Arc<Self>, version: Version, bytes: usize) -> Option<Share> {
        let free = if version < Version::HTTP_2 { ALONE_BYTES } else { 0 };
        let mut share = Share { of: Arc::clone(self), bytes: 0, free };
        share.grow(REQUEST_BYTES.saturating_add(bytes)).then_some(share)
    }
}

impl Share {
    /// Counts further bytes, unless there is no room for them.
    #[must_use]
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let free = self.free.min(bytes);
        self.free -= free;
        let bytes = bytes - free;
        let grown = self.of.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |all| {
            all.checked_add(bytes).filter(|all| *all <= self.of.bytes_max)
        });
        if grown.is_ok() {
            self.bytes += bytes;
        }
        grown.is_ok()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_refused_and_what_ends_makes_room() {
        let arriving = Arc::new(Arriving::new(3 * REQUEST_BYTES));
        let first = arriving.begin(Version::HTTP_2, REQUEST_BYTES).unwrap();
        let mut second = arriving.begin(Version::HTTP_2, 0).unwrap();
        assert!(!second.grow(1));
        assert!(arriving.begin(Version::HTTP_2, 0).is_none());
        drop(first);
        assert!(second.grow(2 * REQUEST_BYTES));
        assert!(arriving.begin(Version::HTTP_2, usize::MAX).is_none());
        drop(second);
        assert_eq!(arriving.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_short_body_on_a_connection_of_http_1_always_has_room() {
        let full = Arc::new(Arriving::new(0));
        assert!(full.begin(Version::HTTP_2, 0).is_none());
        let mut alone = full.begin(Version::HTTP_11, 1_024).unwrap();
        assert!(alone.grow(3_072));
        assert!(!alone.grow(1));
    }
}
