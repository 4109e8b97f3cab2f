//! What the handlers of both listeners share.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tollgate::{Acquisition, Attributes, CheckError, Cost, Limiter, Reservation, Verdict};
use tollgate_config::Config;
use tollgate_tower::{ClientIp, IpNet};

use crate::arriving::Arriving;
use crate::backend::Backend;
use crate::denials::{Denials, Kind, too_late};
use crate::edge::Edge;
use crate::live::{Live, RulesInForce};
use crate::metrics::{Certificates, Metrics};
use crate::spans::Tracer;
use crate::token_warnings::TokenWarnings;
use crate::tokens::Tokens;
use crate::unknown_domains::UnknownDomains;

/// The state of one service.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) limiter: Limiter,
    pub(crate) live: Arc<Live>,
    pub(crate) tokens: Tokens,
    pub(crate) token_warnings: TokenWarnings,
    /// Whether only this machine, or those with a certificate, can reach the admin listener.
    pub(crate) admin_is_private: bool,
    /// Whether those who reach the admin listener have a certificate.
    pub(crate) admin_has_mtls: bool,
    pub(crate) backend: Backend,
    pub(crate) client_ip: ClientIp,
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) edge: Edge,
    /// The most bytes of the body of a call.
    pub(crate) body_bytes_max: usize,
    /// What is on its way to the listeners for requests.
    pub(crate) arriving: Arc<Arriving>,
    /// What is on its way to the admin listener, which others cannot crowd out.
    pub(crate) arriving_at_admin: Arc<Arriving>,
    pub(crate) metrics: Metrics,
    pub(crate) hints: Hints,
    pub(crate) denials: Denials,
    /// Where traces are sent.
    pub(crate) tracer: Option<Tracer>,
    stopping: watch::Sender<bool>,
}

/// Hints to the operator, each logged once; that of an unknown domain once for each.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    untrusted_peer: Once,
    no_original_uri: Once,
    unknown_domains: UnknownDomains,
    bad_envoy_request: Once,
}

#[derive(Debug, Default)]
struct Once(AtomicBool);

impl App {
    pub(crate) fn new(
        config: &Config,
        limiter: Limiter,
        backend: Backend,
        live: Live,
        tokens: Tokens,
        tracer: Option<Tracer>,
        certificates: Certificates,
    ) -> Self {
        let live = Arc::new(live);
        let mut metrics = Metrics::new(&limiter, backend.memory());
        metrics.add(RulesInForce(Arc::clone(&live)));
        if let Some(tracer) = &tracer {
            metrics.add(tracer.metrics());
        }
        if !certificates.0.is_empty() {
            metrics.add(certificates);
        }
        let trusted_proxies = config.trusted_proxies.clone();
        let admin_has_mtls =
            config.tls.admin.as_ref().is_some_and(|files| files.client_ca.is_some());
        Self {
            limiter,
            live,
            tokens,
            token_warnings: TokenWarnings::default(),
            admin_is_private: admin_has_mtls || config.listen.admin.ip().is_loopback(),
            admin_has_mtls,
            backend,
            client_ip: ClientIp::new().trust(trusted_proxies.iter().copied()),
            trusted_proxies,
            edge: Edge::new(config),
            body_bytes_max: config.listen.limits.body_bytes_max,
            arriving: Arc::default(),
            arriving_at_admin: Arc::default(),
            metrics,
            hints: Hints::default(),
            denials: Denials::new(config.log.keys),
            tracer,
            stopping: watch::Sender::new(false),
        }
    }

    /// Checks and counts.
    pub(crate) async fn check(
        &self,
        attributes: &Attributes,
        cost: Cost,
    ) -> Result<Verdict, CheckError> {
        self.hint(attributes);
        let start = Instant::now();
        let check = || self.limiter.check_n(attributes, cost);
        let checked = match self.at_once(check) {
            Some(checked) => checked,
            // Boxed, since it has some kilobytes and what holds it is moved several times.
            None => Box::pin(check()).await,
        };
        self.metrics.observe(checked.as_ref(), start.elapsed());
        self.count_decisions(checked.as_ref());
        self.note_denials(attributes, checked.as_ref());
        checked
    }

    /// Asks a store in this process, which answers at once: what is asked then needs no place of its own
    /// to be kept in. `None` without having asked if there is a way to the store.
    pub(crate) fn at_once<F: Future>(&self, ask: impl FnOnce() -> F) -> Option<F::Output> {
        self.backend.memory()?;
        let polled = pin!(ask()).poll(&mut Context::from_waker(Waker::noop()));
        debug_assert!(polled.is_ready(), "memory answers at once");
        match polled {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }

    /// Acquires and counts.
    pub(crate) async fn acquire(
        &self,
        attributes: &Attributes,
        cost: Cost,
        max_wait: Duration,
    ) -> Result<Acquisition, CheckError> {
        self.hint(attributes);
        let acquired = self.limiter.acquire(attributes, cost, max_wait).await;
        self.metrics.count_acquisition(acquired.as_ref());
        self.trace(acquired.as_ref().map(Acquisition::verdict));
        if let (Some(tracer), Ok(acquired)) = (&self.tracer, &acquired) {
            tracer.note_denied(!acquired.is_granted());
        }
        self.note_denials(attributes, acquired.as_ref().map(Acquisition::verdict));
        let refused = acquired.as_ref().ok().filter(|acquisition| !acquisition.is_granted());
        if let Some(refusing) = refused.and_then(|acquisition| too_late(acquisition.verdict())) {
            self.denials.note_request(Kind::Wait, refusing, attributes);
        }
        acquired
    }

    /// Reserves and counts.
    pub(crate) async fn reserve(
        &self,
        attributes: &Attributes,
        estimate: Cost,
        ttl: Duration,
    ) -> Result<Reservation, CheckError> {
        self.hint(attributes);
        let start = Instant::now();
        let reserved = self.limiter.reserve(attributes, estimate, ttl).await;
        let verdict = reserved.as_ref().map(Reservation::verdict);
        self.metrics.observe(verdict, start.elapsed());
        self.count_decisions(verdict);
        self.note_denials(attributes, verdict);
        reserved
    }

    /// Counts what the rules decided, and notes it where the request is traced.
    pub(crate) fn count_decisions(&self, decided: Result<&Verdict, &CheckError>) {
        self.metrics.count_decisions(decided);
        self.trace(decided);
    }

    fn trace(&self, decided: Result<&Verdict, &CheckError>) {
        if let Some(tracer) = &self.tracer {
            tracer.note(decided);
        }
    }

    /// Notes which buckets denied, for the next summary in the log.
    fn note_denials(&self, attributes: &Attributes, decided: Result<&Verdict, &CheckError>) {
        match decided {
            Ok(verdict) => {
                for decided in verdict.rules() {
                    if let Some(kind) = Kind::of(decided) {
                        self.denials.note_request(kind, decided, attributes);
                    }
                }
            }
            Err(error) => {
                if let Some(rule) = error.rule().filter(|_| error.is_store_failure()) {
                    let key = rule.bucket_key(attributes, rule.quota());
                    self.denials.note(Kind::Unavailable, rule, &key);
                }
            }
        }
    }

    fn hint(&self, attributes: &Attributes) {
        if !self.limiter.rules().has_domain(attributes.domain()) {
            self.unknown_domain(attributes.domain());
        }
    }

    /// Counts a request whose domain has neither rules nor limits, and tells of the domain.
    pub(crate) fn unknown_domain(&self, domain: &str) {
        self.metrics.count_unknown_domain();
        // Where there are no rules at all, that has been told, and no domain is wrong.
        if !self.limiter.rules().is_empty() || self.live.limits.len() > 0 {
            self.hints.unknown_domains.tell(domain, Instant::now());
        }
    }

    /// Counts what came of a call that decides nothing.
    pub(crate) fn answered(
        &self,
        answered: Result<Verdict, CheckError>,
    ) -> Result<Verdict, CheckError> {
        self.metrics.count_store_error(answered.as_ref());
        self.trace(answered.as_ref());
        answered
    }

    /// Counts an error of a call that decides nothing.
    pub(crate) fn failed(&self, error: CheckError) -> CheckError {
        self.metrics.count_store_error(Err(&error));
        error
    }

    /// Ends all waits, and takes the service out of readiness.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Waits until the service stops.
    pub(crate) async fn stopping(&self) {
        // The sender is alive, so this cannot fail.
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
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

    pub(crate) fn bad_envoy_request(&self, message: &str) {
        if self.bad_envoy_request.is_first() {
            tracing::warn!(
                message,
                "a request of Envoy cannot be judged and gets an error, so Envoy does as its \
                 failure_mode_deny says"
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
