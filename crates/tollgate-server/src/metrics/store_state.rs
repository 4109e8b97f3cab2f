//! How it stands with the store, and what this node grants on its own.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tollgate::{Limiter, Mode, Quota, RuleSet};

/// What a limiter tells of its store, read when it is asked for.
#[derive(Debug)]
pub(super) struct StoreState {
    limiter: Limiter,
}

/// The modes that a rule is in.
const MODES: [Mode; 4] = [Mode::Exact, Mode::Local, Mode::Open, Mode::Closed];

impl StoreState {
    pub(super) const fn new(limiter: Limiter) -> Self {
        Self { limiter }
    }

    fn rule_modes(&self, encoder: &mut DescriptorEncoder<'_>, rules: &RuleSet) -> fmt::Result {
        let help = "Whether the rule decides in that mode at present.";
        let mut family = encoder.encode_descriptor("rule_mode", help, None, MetricType::Gauge)?;
        for rule in rules.iter() {
            let present = self.limiter.mode_of(rule);
            for mode in MODES {
                let labels =
                    [("domain", rule.domain()), ("rule", rule.name()), ("mode", mode.as_str())];
                ConstGauge::new(i64::from(mode == present))
                    .encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    /// A value of the share of each rule whose policy is `local`.
    fn shares(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        rules: &RuleSet,
        (name, help): (&str, &str),
        value: impl Fn(&Quota) -> f64,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for rule in rules.iter() {
            if let Some(part) = self.limiter.local_part_of(rule) {
                let labels = [("domain", rule.domain()), ("rule", rule.name())];
                ConstGauge::new(value(&part)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

impl Collector for StoreState {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (status, rules) = (self.limiter.status(), self.limiter.rules());
        self.rule_modes(&mut encoder, &rules)?;
        let per_second = |part: &Quota| {
            let rate = part.rate();
            // Metrics are doubles.
            #[expect(clippy::cast_precision_loss, reason = "a metric is a double")]
            let units = rate.units() as f64;
            units / rate.period().as_secs_f64()
        };
        let rate = ("local_rate", "Units per second that this node grants without the store.");
        self.shares(&mut encoder, &rules, rate, per_second)?;
        let burst = ("local_burst", "Units that this node grants at once without the store.");
        self.shares(&mut encoder, &rules, burst, |part| f64::from(part.burst()))?;

        let gauge = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let gauges = [
            (
                "breaker_open",
                "Whether the store is not asked.",
                i64::from(status.open_for.is_some()),
            ),
            ("store_failing", "Whether the store fails.", i64::from(status.failure.is_some())),
            ("nodes", "Nodes that a quota is shared among.", i64::from(status.nodes.get())),
            (
                "leased_units",
                "Units of leased slices that are not spent.",
                i64::try_from(self.limiter.leased_units()).unwrap_or(i64::MAX),
            ),
            ("local_keys", "Buckets of this node's own.", gauge(self.limiter.local_keys())),
            ("local_debts", "Buckets that are to be charged to the store.", gauge(status.debts)),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        if let Some(since) = status.since_answer {
            let help = "Seconds since the store last answered.";
            let name = "store_answered_seconds_ago";
            let gauge = ConstGauge::new(since.as_secs_f64());
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        let mut counters = vec![
            (
                "denial_cache_hits",
                "Checks that were denied without asking the store, which had denied them just before.",
                status.denial_cache_hits,
            ),
            ("breaker_openings", "How often the store was given up.", status.openings),
            ("local_debts_charged", "Units charged to the store afterwards.", status.debts_charged),
            ("local_debts_forgotten", "Buckets too many to be charged.", status.debts_forgotten),
        ];
        if let Some(redis) = self.limiter.store().as_redis() {
            let redis = redis.status();
            for (name, help, value) in [
                ("redis_servers", "Servers that calls go to.", redis.servers),
                ("redis_connections", "Connections that are established.", redis.connections),
                ("redis_in_flight", "Calls that are under way.", redis.in_flight),
            ] {
                let gauge = ConstGauge::new(gauge(value));
                gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
            }
            counters.extend([
                (
                    "redis_reconnects",
                    "Connections in the place of one that ended.",
                    redis.reconnects,
                ),
                (
                    "redis_connections_replaced",
                    "Connections given up since they did not answer.",
                    redis.connections_replaced,
                ),
                ("redis_script_reloads", "Scripts that were sent again.", redis.script_reloads),
                ("redis_timeouts", "Calls without an answer in time.", redis.timeouts),
                ("redis_retries", "Calls that were sent once more.", redis.retries),
                ("redis_redirects", "Calls that a node sent on.", redis.redirects),
                ("redis_failovers", "Changes of the primary.", redis.failovers),
            ]);
        }
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        Ok(())
    }
}
