//! Which requests are traced.

use opentelemetry::trace::TraceId;
use tollgate_config::Sampler;

/// Decides from the trace's id, by the arithmetic of OpenTelemetry's other libraries, so that the
/// services of one trace decide alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampling {
    follows_parent: bool,
    /// Traces whose low 63 bits are below this are taken: 2^63 for all of them.
    below: u64,
}

impl Sampling {
    pub(super) fn new(sampler: Sampler) -> Self {
        let (follows_parent, ratio) = match sampler {
            Sampler::Ratio(ratio) => (false, ratio),
            Sampler::ParentBased(ratio) => (true, ratio),
            _ => (true, 0.0),
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "the ratio is from 0 to 1, and 2^63 is a double"
        )]
        let below = (ratio.clamp(0.0, 1.0) * (1_u64 << 63) as f64) as u64;
        Self { follows_parent, below }
    }

    /// Tells whether a request is traced that belongs to no trace yet.
    pub(super) fn takes_root(&self, trace_id: TraceId) -> bool {
        let [.., a, b, c, d, e, f, g, h] = trace_id.to_bytes();
        u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1 < self.below
    }

    /// Tells whether a request is traced whose caller has a trace, and records it or does not.
    pub(super) fn takes_child(&self, is_sampled: bool, trace_id: TraceId) -> bool {
        if self.follows_parent { is_sampled } else { self.takes_root(trace_id) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOWEST: TraceId = TraceId::from_bytes([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    const HIGHEST: TraceId = TraceId::from_bytes([0xff; 16]);
    /// A quarter of the way up.
    const QUARTER: TraceId =
        TraceId::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0]);

    #[test]
    fn a_part_of_the_roots_is_traced_by_their_id() {
        let takes = |ratio| {
            let sampling = Sampling::new(Sampler::ParentBased(ratio));
            [LOWEST, QUARTER, HIGHEST].map(|id| sampling.takes_root(id))
        };
        assert_eq!(takes(0.0), [false, false, false]);
        assert_eq!(takes(0.25), [true, false, false]);
        assert_eq!(takes(0.26), [true, true, false]);
        assert_eq!(takes(1.0), [true, true, true]);
    }

    #[test]
    fn a_caller_with_a_trace_decides_unless_it_is_not_asked() {
        for ratio in [0.0, 1.0] {
            let parent_based = Sampling::new(Sampler::ParentBased(ratio));
            assert!(parent_based.takes_child(true, HIGHEST));
            assert!(!parent_based.takes_child(false, LOWEST));
        }
        for is_sampled in [false, true] {
            assert!(Sampling::new(Sampler::Ratio(1.0)).takes_child(is_sampled, HIGHEST));
            assert!(!Sampling::new(Sampler::Ratio(0.0)).takes_child(is_sampled, LOWEST));
        }
    }
}
