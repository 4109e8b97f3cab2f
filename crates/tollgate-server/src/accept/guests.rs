//! The connections of a listener that give way to others.

use std::sync::{Arc, Weak};

use super::pulse::Pulse;

/// One in so many connections gives way at a time, so that who fills all places again and again does
/// not keep others waiting.
const WAY_SHARE: usize = 32;

/// The connections of a listener, among which some can be found that give way.
#[derive(Debug)]
pub(super) struct Guests {
    pulses: Vec<Weak<Pulse>>,
    /// How many give way at a time.
    way: usize,
}

impl Guests {
    pub(super) const fn new(connections_max: usize) -> Self {
        Self { pulses: Vec::new(), way: connections_max.div_ceil(WAY_SHARE) }
    }

    /// Adds a connection, which leaves by the drop of its pulse.
    pub(super) fn add(&mut self, pulse: &Arc<Pulse>) {
        if self.pulses.len() == self.pulses.capacity() {
            self.forget_gone();
        }
        self.pulses.push(Arc::downgrade(pulse));
    }

    /// Tells the connections that have asked nothing for the longest to end.
    pub(super) fn make_way(&mut self) {
        self.forget_gone();
        let all = self.pulses.iter().filter_map(Weak::upgrade);
        let idle = all.filter_map(|pulse| Some((pulse.idle_since()?, pulse)));
        let mut idle: Vec<_> = idle.collect();
        idle.sort_by_key(|(since, _)| *since);
        for (_, pulse) in idle.iter().take(self.way) {
            pulse.make_way();
        }
    }

    fn forget_gone(&mut self) {
        self.pulses.retain(|pulse| pulse.strong_count() > 0);
    }
}
