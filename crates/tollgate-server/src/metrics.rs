//! What the service counts, in a registry of its own.
//!
//! Labels hold names from the rules and words of this crate, never anything a caller sends (G9).

mod admin_refusals;
mod certificates;
mod decisions;
mod durations;
mod in_flight;
mod memory;
mod refused_requests;
mod requests;
mod script_time;
mod store_state;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{EncodeLabelSet, prometheus_text, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tollgate::{
    Acquisition, CheckError, Limiter, MemoryStore, Rule, RuleSet, StoreErrorKind, Verdict,
};

use self::admin_refusals::AdminRefusals;
use self::decisions::{Decisions, Renewal};
use self::durations::Durations;
use self::in_flight::Listeners;
use self::memory::MemoryUse;
use self::refused_requests::RefusedRequests;
use self::requests::Requests;
use self::script_time::ScriptTimes;
use self::store_state::StoreState;

pub(crate) use self::admin_refusals::AdminRefusal;
pub(crate) use self::certificates::Certificates;
pub(crate) use self::in_flight::{InFlight, Listener};

/// All metrics of one service.
pub(crate) struct Metrics {
    registry: Registry,
    decisions: Arc<Decisions>,
    renewal: Renewal,
    durations: Arc<Durations>,
    requests: Requests,
    in_flight: Listeners,
    store_errors: Family<StoreErrorLabels, Counter>,
    script_times: Option<ScriptTimes>,
    unknown_domains: Counter,
    pub(crate) refused_requests: RefusedRequests,
    admin_refusals: AdminRefusals,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StoreErrorLabels {
    kind: &'static str,
}

/// How a store can fail; what is invalid is the caller's mistake.
const STORE_ERRORS: [StoreErrorKind; 5] = [
    StoreErrorKind::Timeout,
    StoreErrorKind::Unavailable,
    StoreErrorKind::Corrupt,
    StoreErrorKind::Full,
    StoreErrorKind::Refused,
];

/// A format of the metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Prometheus,
    OpenMetrics,
}

impl Format {
    /// Selects OpenMetrics for those who ask for it by name, as Prometheus does.
    pub(crate) fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl Metrics {
    /// Makes the metrics of a service that decides by `limiter`. The counters of each rule stand at 0 from the start, so that the first denial shows as a rise.
    pub(crate) fn new(limiter: &Limiter, memory: Option<Arc<MemoryStore>>) -> Self {
        let mut registry = Registry::with_prefix("tollgate");
        registry.register(
            "build",
            "Version of this process",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        let decisions = Arc::new(Decisions::new(&limiter.rules()));
        registry.register_collector(Box::new(Arc::clone(&decisions)));
        let durations = Arc::new(Durations::new(limiter.store().kind()));
        registry.register_collector(Box::new(Arc::clone(&durations)));
        let requests = Requests::new(&mut registry);
        let in_flight = Listeners::new(&mut registry);
        let refused_requests = RefusedRequests::new(&mut registry);
        let store_errors = Family::<StoreErrorLabels, Counter>::default();
        for kind in STORE_ERRORS {
            store_errors.get_or_create(&StoreErrorLabels { kind: kind.as_str() }).inc_by(0);
        }
        registry.register(
            "store_errors",
            "Operations that the store could not answer",
            store_errors.clone(),
        );
        let unknown_domains = Counter::default();
        registry.register(
            "unknown_domain_requests",
            "Requests whose domain has neither rules nor limits, which are allowed",
            unknown_domains.clone(),
        );
        registry.register_collector(Box::new(StoreState::new(limiter.clone())));
        if let Some(memory) = memory {
            registry.register_collector(Box::new(MemoryUse::new(memory)));
        }
        let script_times =
            limiter.store().as_redis().map(|store| ScriptTimes::new(Arc::clone(store)));
        if let Some(script_times) = &script_times {
            registry.register_collector(Box::new(script_times.clone()));
        }
        let admin_refusals = AdminRefusals::new(&mut registry);
        let renewal = Renewal::default();
        Self {
            registry,
            decisions,
            renewal,
            durations,
            requests,
            in_flight,
            store_errors,
            script_times,
            unknown_domains,
            refused_requests,
            admin_refusals,
        }
    }

    /// Asks the servers of the store what they count themselves, unless that was done just now.
    pub(crate) async fn refresh(&self) {
        if let Some(script_times) = &self.script_times {
            script_times.refresh().await;
        }
    }

    /// Adds what another part of the service tells of itself.
    pub(crate) fn add(&mut self, collector: impl Collector) {
        self.registry.register_collector(Box::new(collector));
    }

    /// Lets the counters of rules that have come stand at 0, and forgets rules that have long gone.
    /// `limits` are the rules that limits for Envoy are counted as.
    pub(crate) fn follow(&self, rules: &Arc<RuleSet>, limits: &Arc<[Arc<Rule>]>) {
        self.renewal.follow(rules, limits, &self.decisions, Instant::now());
    }

    /// Counts how long one decision took. A request that no rule can be charged for asks no store.
    pub(crate) fn observe(&self, decided: Result<&Verdict, &CheckError>, took: Duration) {
        let asked_store = match decided {
            Ok(verdict) => verdict.asked_store(),
            Err(error) => error.is_store_failure(),
        };
        self.durations.observe(asked_store, took);
    }

    /// Counts what each rule decided, and how the store failed.
    pub(crate) fn count_decisions(&self, decided: Result<&Verdict, &CheckError>) {
        match decided {
            Ok(verdict) => self.decisions.count(verdict),
            Err(error) => self.decisions.count_error(error),
        }
        self.count_store_error(decided);
    }

    /// Counts what each rule decided in the end. How long that took depends on what was waited
    /// for, so it is not counted.
    pub(crate) fn count_acquisition(&self, acquired: Result<&Acquisition, &CheckError>) {
        match acquired {
            Ok(acquisition) if !acquisition.is_granted() => {
                self.decisions.count_refusal(acquisition.verdict());
                self.count_store_error(Ok(acquisition.verdict()));
            }
            acquired => self.count_decisions(acquired.map(Acquisition::verdict)),
        }
    }

    /// Counts how the store failed, if it did.
    pub(crate) fn count_store_error(&self, answered: Result<&Verdict, &CheckError>) {
        let failure = match answered {
            Ok(verdict) => verdict.store_failure(),
            Err(error) => error.store_failure(),
        };
        if let Some(kind) = failure.map(StoreErrorKind::as_str) {
            self.store_errors.get_or_create(&StoreErrorLabels { kind }).inc();
        }
    }

    /// Counts a request as in flight until what is returned is dropped.
    pub(crate) fn begin(&self, listener: Listener) -> InFlight {
        self.in_flight.begin(listener)
    }

    /// Counts a request that was answered.
    pub(crate) fn count_request(&self, endpoint: &'static str, status: http::StatusCode) {
        self.requests.count(endpoint, status.as_u16());
    }

    /// Counts a request whose domain nobody knows.
    pub(crate) fn count_unknown_domain(&self) {
        self.unknown_domains.inc();
    }

    /// Counts a request that the admin listener refused for its token.
    pub(crate) fn count_refused_admin(&self, reason: AdminRefusal) {
        self.admin_refusals.count(reason);
    }

    /// Writes all metrics.
    pub(crate) fn write(&self, format: Format) -> Result<String, fmt::Error> {
        let mut page = String::new();
        match format {
            Format::Prometheus => prometheus_text::encode(&mut page, &self.registry)?,
            Format::OpenMetrics => text::encode(&mut page, &self.registry)?,
        }
        Ok(page)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
