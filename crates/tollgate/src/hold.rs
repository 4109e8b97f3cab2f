//! What a request holds and can give back later.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::Ticket;

use crate::charged::{AllCharged, Charged};

/// What a request holds: the slots of [`Limiter::acquire`](crate::Limiter::acquire), or the units
/// of [`Limiter::reserve`](crate::Limiter::reserve).
///
/// Its text form is opaque and can be handed to another process, which parses it back to renew,
/// release, commit or cancel. It is short when few rules apply, and never above 16 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub(crate) ticket: Ticket,
    pub(crate) buckets: Vec<HeldBucket>,
}

/// One bucket in which something is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldBucket {
    pub(crate) key: String,
    pub(crate) exception: Option<usize>,
    pub(crate) factor: u64,
}

impl Hold {
    /// The longest text form that is parsed, in bytes.
    pub const TEXT_LEN_MAX: usize = 16 * 1024;

    pub(crate) fn new(ticket: Ticket, charged: &AllCharged) -> Self {
        let bucket = |one: &Charged| HeldBucket {
            key: one.key.clone(),
            exception: one.exception,
            factor: one.factor,
        };
        Self { ticket, buckets: charged.iter().map(bucket).collect() }
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

/// `<ticket>` and, for each bucket, `.<factor>-<exception + 1>-<hex of the key>`.
impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ticket)?;
        for bucket in &self.buckets {
            let exception = bucket.exception.map_or(0, |index| index + 1);
            write!(f, ".{}-{exception}-", bucket.factor)?;
            for byte in bucket.key.bytes() {
                write!(f, "{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// A text that is not a [`Hold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldError(());

impl fmt::Display for HoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an id that was handed out: pass it back as it was received")
    }
}

impl std::error::Error for HoldError {}

impl FromStr for Hold {
    type Err = HoldError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or(HoldError(()))
    }
}

fn parse(text: &str) -> Option<Hold> {
    if text.len() > Hold::TEXT_LEN_MAX {
        return None;
    }
    let mut parts = text.split('.');
    let ticket = parts.next()?.parse().ok()?;
    let buckets = parts.map(parse_bucket).collect::<Option<Vec<_>>>()?;
    (!buckets.is_empty()).then_some(Hold { ticket, buckets })
}

fn parse_bucket(text: &str) -> Option<HeldBucket> {
    let mut parts = text.splitn(3, '-');
    let factor = parts.next()?.parse().ok()?;
    let exception = parts.next()?.parse::<usize>().ok()?.checked_sub(1);
    let hex = parts.next()?;
    let digits = |index| hex.get(index..index + 2).filter(|two| !two.starts_with('+'));
    let bytes = (0..hex.len())
        .step_by(2)
        .map(|index| u8::from_str_radix(digits(index)?, 16).ok())
        .collect::<Option<Vec<u8>>>()?;
    Some(HeldBucket { key: String::from_utf8(bytes).ok()?, exception, factor })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold() -> Hold {
        let bucket =
            |key: &str, exception| HeldBucket { key: key.to_owned(), exception, factor: 3 };
        let buckets = vec![bucket("default:a", None), bucket("default:b:ip=\u{fc}", Some(2))];
        Hold { ticket: Ticket::new(7), buckets }
    }

    #[test]
    fn the_text_form_parses_back() {
        assert_eq!(hold().to_string().parse(), Ok(hold()));
    }

    #[test]
    fn texts_that_were_not_handed_out_are_refused() {
        let good = hold().to_string();
        let ticket = Ticket::new(7).to_string();
        for text in [
            "",
            "x",
            &ticket,
            &format!("{ticket}."),
            &format!("{ticket}.1-0-f"),
            &format!("{ticket}.1-0-+f"),
            &format!("{ticket}.1-0-ff"),
            &format!("{ticket}.-1-0-61"),
            &format!("{ticket}.1--61"),
            &good[1..],
            &format!("{good}.1-0-{}", "61".repeat(9_000)),
        ] {
            assert!(text.parse::<Hold>().is_err(), "{text}");
        }
    }

    #[test]
    fn tickets_are_never_drawn_twice() {
        let mut drawn: Vec<_> = (0..10_000).map(|_| draw_ticket()).collect();
        drawn.sort();
        drawn.dedup();
        assert_eq!(drawn.len(), 10_000);
    }
}
