//! What is told of one descriptor.

use std::time::Duration;

use super::wire::{Wire, delimited, varint};
use crate::proto::rate_limit_response::Code;
use crate::unit::Reported;

/// A `RateLimitResponse.DescriptorStatus`, but for its code.
#[derive(Default)]
pub(super) struct Status<'a> {
    pub(super) limit: Option<Reported<'a>>,
    pub(super) remaining: u32,
    pub(super) until: Option<Duration>,
}

/// The tags of the fields of a status.
const CODE: u8 = varint(1);
const LIMIT: u8 = delimited(2);
const REMAINING: u8 = varint(3);
const UNTIL: u8 = delimited(4);

/// Those of a limit, and of a duration.
const REQUESTS: u8 = varint(1);
const UNIT: u8 = varint(2);
const NAME: u8 = delimited(3);
const SECONDS: u8 = varint(1);

impl Status<'_> {
    pub(super) fn write(&self, wire: &mut Wire, code: Code) {
        wire.varint(CODE, code as u64);
        if let Some(limit) = &self.limit {
            wire.nested(LIMIT, |wire| {
                wire.varint(REQUESTS, limit.requests_per_unit.into());
                wire.varint(UNIT, limit.unit as u64);
                wire.some_bytes(NAME, limit.name.as_bytes());
            });
        }
        wire.varint(REMAINING, self.remaining.into());
        if let Some(until) = self.until {
            wire.nested(UNTIL, |wire| wire.varint(SECONDS, whole_seconds(until)));
        }
    }
}

/// Rounds up: Envoy cuts fractions off, and a client that obeys would come too early.
fn whole_seconds(duration: Duration) -> u64 {
    let seconds = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    seconds.min(i64::MAX.unsigned_abs())
}
