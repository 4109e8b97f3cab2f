//! Time as a thread sees it.

use rustix::time::{ClockId, clock_gettime};

/// The time that this thread has had of a processor, to which other programs do not add.
pub(crate) fn thread_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or_default()
}
