//! The id under which something is held or was done.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use crate::record;

/// The id under which something is held or was done: the slots of a concurrency limit, a
/// reservation, a refund.
///
/// It has 128 bits, unique among all callers, and its text form is 32 lower-case hex digits.
///
/// # Examples
///
/// ```
/// use tollgate_core::Ticket;
///
/// let ticket = Ticket::new(0x2a);
/// assert_eq!(ticket.to_string(), "0000000000000000000000000000002a");
/// assert_eq!(ticket.to_string().parse(), Ok(ticket));
/// assert!("2a".parse::<Ticket>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u128);

impl Ticket {
    /// Makes a ticket of 128 bits, which the caller has drawn at random.
    pub const fn new(bits: u128) -> Self {
        Self(bits)
    }

    /// Returns the 128 bits.
    pub const fn bits(self) -> u128 {
        self.0
    }

    /// Makes the ticket of a text that the caller has chosen, such as the id of an order. Equal
    /// texts make equal tickets, on every node.
    pub fn of(text: &str) -> Self {
        Self(record::digest(text))
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Ticket {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The integer parser would also take a sign and fewer digits.
        let exact = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u128::from_str_radix(if exact { text } else { "" }, 16).map(Self)
    }
}
