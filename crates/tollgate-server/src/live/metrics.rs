//! `tollgate_rules_*`: which rules are in force, and how their source does.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tollgate_config::RulesId;

use crate::live::Live;
use crate::live::limits::Told;

/// What is in force, read when it is asked for.
#[derive(Debug)]
pub(crate) struct RulesInForce(pub(crate) Arc<Live>);

impl Collector for RulesInForce {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let live = &self.0;
        let state = live.state();
        let current = state.history.current();
        let id = current.map_or_else(RulesId::of_none, |version| version.id.clone());
        let since = current.map_or(0, |version| version.applied_at.as_micros() / 1_000_000);
        let (of_rules, of_limits) = (state.counts, live.limits.counts());
        let is_stale = state.refusal.is_some() || state.absence.is_some();
        drop(state);
        let limits = live.limits.told();
        let is_stale = i64::from(is_stale || limits.as_ref().is_some_and(Told::is_stale));

        let mut family = encoder.encode_descriptor(
            "rules_info",
            "The id of the rules in force, the kind of their source, and the id of the limits for \
             Envoy, if there are some.",
            None,
            MetricType::Gauge,
        )?;
        let limits_id = limits.as_ref().map_or("", |limits| limits.id.as_str());
        let labels =
            [("id", id.as_str()), ("source", live.source.kind()), ("envoy_limits", limits_id)];
        ConstGauge::new(1i64).encode(family.encode_family(&labels)?)?;

        let in_force = i64::try_from(live.limiter.rules().len()).unwrap_or(i64::MAX);
        let gauges = [
            ("rules_in_force", "Rules in force.", in_force),
            (
                "envoy_limits_in_force",
                "Limits for Envoy in force that come from a directory.",
                i64::try_from(live.limits.len()).unwrap_or(i64::MAX),
            ),
            (
                "rules_applied_timestamp_seconds",
                "When the rules in force were put in force.",
                i64::try_from(since).unwrap_or(i64::MAX),
            ),
            (
                "rules_stale",
                "Whether the newest rules or limits for Envoy are not in force: refused, or their \
                 source is away.",
                is_stale,
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let counters = [
            (
                "rules_changes",
                "Changes of the rules and of the limits for Envoy since the start.",
                of_rules.changes + of_limits.changes,
            ),
            (
                "rules_refusals",
                "New rules and limits for Envoy that were refused.",
                of_rules.refusals + of_limits.refusals,
            ),
            (
                "rules_source_errors",
                "Times that the source of the rules, or of the limits for Envoy, gave none.",
                of_rules.source_errors + of_limits.source_errors,
            ),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(
                name,
                help,
                None,
                counter.metric_type(),
            )?)?;
        }
        Ok(())
    }
}
