//! Who watches what is decided.

use std::time::Duration;

use tollgate::{CheckError, Part, Verdict};
use tonic::Code;

/// Watches what is decided, to count it. Every method does nothing unless implemented.
pub trait Observer: Send + Sync + 'static {
    /// A request was checked, and its hits were spent if it may pass.
    fn decided(&self, decided: Result<&Verdict, &CheckError>, took: Duration) {
        let _ = (decided, took);
    }

    /// A check of `parts`, of which the verdict speaks in the same order, was denied by one of them,
    /// be it that it is in shadow.
    fn denied(&self, parts: &[Part], verdict: &Verdict) {
        let _ = (parts, verdict);
    }

    /// A request was refused by the rule of this part, since the store does not answer.
    fn refused(&self, part: &Part) {
        let _ = part;
    }

    /// The store was asked for something that decides nothing: a look, or a refund.
    fn told(&self, told: Result<&Verdict, &CheckError>) {
        let _ = told;
    }

    /// All parts of a request were judged, and it is answered so.
    fn judged(&self, is_denied: bool) {
        let _ = is_denied;
    }

    /// A request named a domain that has neither rules nor limits.
    fn unknown_domain(&self, domain: &str) {
        let _ = domain;
    }

    /// A request could not be judged, for the reason in the message.
    fn mistaken(&self, message: &str) {
        let _ = message;
    }

    /// A request was answered.
    fn answered(&self, code: Code) {
        let _ = code;
    }
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Nobody;

impl Observer for Nobody {}
