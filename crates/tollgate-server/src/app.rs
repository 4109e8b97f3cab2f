//! What the handlers of both listeners share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tollgate::{Attributes, CheckError, Cost, Limiter, Verdict};
use tollgate_tower::{ClientIp, IpNet};

use crate::backend::Backend;
use crate::metrics::Metrics;

/// The state of one service.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) limiter: Limiter,
    pub(crate) backend: Backend,
    pub(crate) client_ip: ClientIp,
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) metrics: Metrics,
    pub(crate) hints: Hints,
    pub(crate) is_stopping: AtomicBool,
}

/// Hints to the operator, each logged once.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    untrusted_peer: Once,
    no_original_uri: Once,
}

#[derive(Debug, Default)]
struct Once(AtomicBool);

impl App {
    pub(crate) fn new(limiter: Limiter, backend: Backend, trusted_proxies: Vec<IpNet>) -> Self {
        let metrics = Metrics::new(limiter.store().kind(), backend.memory(), &limiter.rules());
        Self {
            limiter,
            backend,
            client_ip: ClientIp::new().trust(trusted_proxies.iter().copied()),
            trusted_proxies,
            metrics,
            hints: Hints::default(),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// Checks and counts.
    pub(crate) async fn check(
        &self,
        attributes: &Attributes,
        cost: Cost,
    ) -> Result<Verdict, CheckError> {
        let start = Instant::now();
        let checked = self.limiter.check_n(attributes, cost).await;
        self.metrics.count_check(&checked, start.elapsed());
        checked
    }

    /// Counts what came of a call that is not a check.
    pub(crate) fn answered(
        &self,
        answered: Result<Verdict, CheckError>,
    ) -> Result<Verdict, CheckError> {
        self.metrics.count_store_error(&answered);
        answered
    }
}

impl Hints {
    pub(crate) fn untrusted_peer(&self, peer: std::net::IpAddr) {
        if self.untrusted_peer.is_first() {
            tracing::warn!(
                %peer,
                "forward auth ignores the forwarded address from a peer that is not trusted, so \
                 all its clients have one ip: add it to trusted_proxies if it is your gateway"
            );
        }
    }

    pub(crate) fn no_original_uri(&self, peer: std::net::IpAddr) {
        if self.no_original_uri.is_first() {
            tracing::warn!(
                %peer,
                "forward auth request names no original uri, so rules that match on path do not \
                 apply: have the gateway set x-forwarded-uri"
            );
        }
    }
}

impl Once {
    fn is_first(&self) -> bool {
        !self.0.load(Ordering::Relaxed) && !self.0.swap(true, Ordering::Relaxed)
    }
}
