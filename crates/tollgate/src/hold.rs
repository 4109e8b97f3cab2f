//! What a request holds and can give back later.

mod text;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{Attributes, Ticket};

use crate::charged::{AllCharged, Charged};

pub use self::text::HoldError;

/// What a request holds: the slots of [`Limiter::acquire`](crate::Limiter::acquire), or the units
/// of [`Limiter::reserve`](crate::Limiter::reserve).
///
/// It is settled, renewed or released under the rules that are then in force, as the same request
/// would be charged by them. Where a rule is gone, frees the request, or counts by another
/// algorithm, nothing is held any more.
///
/// # Text form
///
/// `Display` and `FromStr` turn it into an opaque text that can be handed to another process. The
/// text carries the attributes that the rules look at, and a check sum, so that a text that was
/// changed on its way is refused. One above [`TEXT_LEN_MAX`](Self::TEXT_LEN_MAX), which takes some
/// 10,000 bytes of attributes, is not parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub(crate) kind: HoldKind,
    pub(crate) ticket: Ticket,
    /// The domain of the request, and what the rules look at to find the bucket and the quota.
    pub(crate) request: Attributes,
    pub(crate) rules: Vec<HeldRule>,
}

/// What is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldKind {
    Slots,
    Units,
}

/// A rule in whose bucket something is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldRule {
    pub(crate) name: String,
    /// How many units the rule spends for each unit of the caller's cost.
    pub(crate) factor: u64,
    /// In which shard of the bucket, if it is kept in such.
    pub(crate) shard: Option<u8>,
}

impl Hold {
    /// The longest text form that is parsed, in bytes: 24 KiB.
    pub const TEXT_LEN_MAX: usize = 24 * 1024;

    pub(crate) fn new(
        kind: HoldKind,
        ticket: Ticket,
        request: &Attributes,
        charged: &AllCharged,
    ) -> Self {
        let names: BTreeSet<&str> = charged.iter().flat_map(Charged::attributes).collect();
        let seen = Attributes::new().with_domain(request.domain().to_owned());
        let seen = names.into_iter().fold(seen, |seen, name| match request.value(name) {
            Some(value) => seen.with(name.to_owned(), value),
            None => seen,
        });
        let rule = |one: &Charged| HeldRule {
            name: one.rule.name().to_owned(),
            factor: one.factor,
            shard: one.sharded.as_ref().and_then(|sharded| sharded.number()),
        };
        Self { kind, ticket, request: seen, rules: charged.iter().map(rule).collect() }
    }

    /// Tells whether it holds slots, which are renewed and released, and not units, which are
    /// committed or cancelled.
    pub fn is_slots(&self) -> bool {
        self.kind == HoldKind::Slots
    }
}

/// Draws a ticket that no other process or call has.
pub(crate) fn draw_ticket() -> Ticket {
    // The standard library seeds each of these from the operating system's random source.
    static KEYS: LazyLock<(RandomState, RandomState)> = LazyLock::new(Default::default);
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let count = DRAWN.fetch_add(1, Ordering::Relaxed);
    let half = |keys: &RandomState| u128::from(keys.hash_one((count, std::process::id())));
    Ticket::new(half(&KEYS.0) << 64 | half(&KEYS.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_never_drawn_twice() {
        let mut drawn: Vec<_> = (0..10_000).map(|_| draw_ticket()).collect();
        drawn.sort();
        drawn.dedup();
        assert_eq!(drawn.len(), 10_000);
    }
}
