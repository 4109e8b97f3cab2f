//! The connections of a listener that give way to others.

use std::sync::{Arc, Weak};

use super::pulse::Pulse;

/// The connections of a listener, among which one can be found that gives way.
#[derive(Debug, Default)]
pub(super) struct Guests(Vec<Weak<Pulse>>);

impl Guests {
    /// Adds a connection, which leaves by the drop of its pulse.
    pub(super) fn add(&mut self, pulse: &Arc<Pulse>) {
        if self.0.len() == self.0.capacity() {
            self.forget_gone();
        }
        self.0.push(Arc::downgrade(pulse));
    }

    /// Tells the connection that has asked nothing for the longest to end, if there is one.
    pub(super) fn make_way(&mut self) {
        self.forget_gone();
        let all = self.0.iter().filter_map(Weak::upgrade);
        let idle = all.filter_map(|pulse| Some((pulse.idle_since()?, pulse)));
        if let Some((_, pulse)) = idle.min_by_key(|(since, _)| *since) {
            pulse.make_way();
        }
    }

    fn forget_gone(&mut self) {
        self.0.retain(|pulse| pulse.strong_count() > 0);
    }
}
