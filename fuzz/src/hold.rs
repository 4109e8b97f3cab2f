//! The ids of what requests hold, which callers pass back.

use tollgate::Hold;
use tollgate_core::Ticket;

/// Checks that what is accepted keeps its meaning when it is written again.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(hold) = text.parse::<Hold>() {
        let written = hold.to_string();
        assert!(text.len() <= Hold::TEXT_LEN_MAX, "{} bytes were accepted", text.len());
        assert!(written.len() <= text.len(), "{text:?} grew to {written:?}");
        assert_eq!(written.parse(), Ok(hold), "{text:?}");
    }
    if let Ok(ticket) = text.parse::<Ticket>() {
        assert_eq!(ticket.to_string(), text.to_lowercase());
        assert_ne!(ticket, Ticket::of(&text));
    }
}
