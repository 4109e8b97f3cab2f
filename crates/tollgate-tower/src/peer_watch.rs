//! A word on rules that silently limit nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate::{Attributes, Limiter, Missing, Rule};

#[cfg(feature = "axum")]
const ADVICE: &str = "serve with into_make_service_with_connect_info::<SocketAddr>(), or put a \
                      tollgate_tower::PeerAddr into the extensions of every request";

#[cfg(not(feature = "axum"))]
const ADVICE: &str = "with axum enable the feature `axum` of tollgate-tower and serve with \
                      into_make_service_with_connect_info::<SocketAddr>(), otherwise put a \
                      tollgate_tower::PeerAddr into the extensions of every request";

/// Warns once if requests come without their peer's address and a rule does not apply for that.
///
/// A rule that keys on `ip` skips requests that have none, so a service that was forgotten to tell
/// it would run without its limits, and nobody would see it.
#[derive(Clone, Default)]
pub(crate) struct PeerWatch {
    /// Whether peers are known, or the lack of them was told.
    settled: Arc<AtomicBool>,
}

impl PeerWatch {
    /// Looks at what was found of a request whose `ip` is made from its peer's address.
    pub(crate) fn look(&self, attributes: &Attributes, limiter: &Limiter) {
        if self.settled.load(Ordering::Relaxed) {
            return;
        }
        if attributes.value("ip").is_some() {
            self.settled.store(true, Ordering::Relaxed);
            return;
        }
        let skips = |rule: &&Rule| {
            let wants = rule.key().iter().any(|name| name == "ip");
            wants && rule.domain() == attributes.domain() && rule.missing() == Missing::Skip
        };
        let rules = limiter.rules();
        if let Some(rule) = rules.iter().map(AsRef::as_ref).find(skips)
            && !self.settled.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                rule = rule.name(),
                "requests have no peer address, so rules that key on ip limit nothing: {ADVICE}"
            );
        }
    }
}
