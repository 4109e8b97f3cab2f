//! What a limit is, in Envoy's terms.

use tollgate_config::EnvoyUnit;
use tollgate_core::{Quota, Rate};

use crate::proto::rate_limit_response::rate_limit::Unit;
use crate::proto::{RateLimitUnit, rate_limit_descriptor::RateLimitOverride};

/// A limit as it is reported, if it is not a rule of the configuration file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CurrentLimit {
    requests_per_unit: u32,
    unit: Unit,
    name: String,
}

/// A limit as it is reported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reported<'a> {
    pub(crate) requests_per_unit: u32,
    pub(crate) unit: Unit,
    pub(crate) name: &'a str,
}

impl CurrentLimit {
    pub(crate) fn new(requests_per_unit: u32, unit: EnvoyUnit, name: String) -> Self {
        Self { requests_per_unit, unit: named(Some(unit)), name }
    }

    pub(crate) fn reported(&self) -> Reported<'_> {
        let Self { requests_per_unit, unit, name } = self;
        Reported { requests_per_unit: *requests_per_unit, unit: *unit, name }
    }
}

impl<'a> Reported<'a> {
    /// Reports the rate of a rule's quota. A period that is no unit has none: how long it is stands
    /// in no field.
    pub(crate) fn of(quota: Option<Quota>, name: &'a str) -> Self {
        let Some(quota) = quota else {
            return Self { requests_per_unit: 0, unit: Unit::Unknown, name };
        };
        let requests_per_unit = u32::try_from(quota.rate().units()).unwrap_or(u32::MAX);
        let unit = named(EnvoyUnit::of(quota.rate().period()));
        Self { requests_per_unit, unit, name }
    }
}

fn named(unit: Option<EnvoyUnit>) -> Unit {
    unit.map_or(Unit::Unknown, |unit| match unit {
        EnvoyUnit::Second => Unit::Second,
        EnvoyUnit::Minute => Unit::Minute,
        EnvoyUnit::Hour => Unit::Hour,
        EnvoyUnit::Day => Unit::Day,
        EnvoyUnit::Week => Unit::Week,
        EnvoyUnit::Month => Unit::Month,
        EnvoyUnit::Year => Unit::Year,
    })
}

/// A limit that came with a request.
#[derive(Clone, Debug)]
pub(crate) struct Override {
    pub(crate) unit: EnvoyUnit,
    pub(crate) quota: Option<Quota>,
    pub(crate) reported: CurrentLimit,
}

impl Override {
    /// Reads it, or gives `None` if it has no unit.
    pub(crate) fn read(limit: &RateLimitOverride) -> Option<Self> {
        let unit = match RateLimitUnit::try_from(limit.unit).ok()? {
            RateLimitUnit::Unknown => return None,
            RateLimitUnit::Second => EnvoyUnit::Second,
            RateLimitUnit::Minute => EnvoyUnit::Minute,
            RateLimitUnit::Hour => EnvoyUnit::Hour,
            RateLimitUnit::Day => EnvoyUnit::Day,
            RateLimitUnit::Month => EnvoyUnit::Month,
            RateLimitUnit::Year => EnvoyUnit::Year,
        };
        // What no quota can hold is far above what one bucket is ever asked for. The answer tells
        // what is counted in its place.
        let requests = limit.requests_per_unit.min(most(unit));
        let reported = CurrentLimit::new(requests, unit, String::new());
        let quota = Rate::new(requests.into(), unit.period()).and_then(Quota::fixed_window).ok();
        Some(Self { unit, quota, reported })
    }
}

/// Returns the most that a limit can admit in a unit.
fn most(unit: EnvoyUnit) -> u32 {
    let in_one = match unit {
        EnvoyUnit::Second => Quota::BURST_MAX.min(Rate::UNITS_PER_SECOND_MAX),
        _ => Quota::BURST_MAX,
    };
    u32::try_from(in_one).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_reported_as_its_unit_if_it_is_one() {
        for (rate, units, unit) in [
            ("20/min", 20, Unit::Minute),
            ("700/60s", 700, Unit::Minute),
            ("5/7day", 5, Unit::Week),
            ("5/30day", 5, Unit::Month),
            ("5/365day", 5, Unit::Year),
            ("3/90s", 3, Unit::Unknown),
        ] {
            let quota = Quota::from_rate(rate.parse().unwrap()).unwrap();
            let reported = Reported::of(Some(quota), "a");
            assert_eq!((reported.requests_per_unit, reported.unit), (units, unit), "{rate}");
        }
    }

    #[test]
    fn every_override_with_a_unit_can_be_counted_and_reports_what_is() {
        for unit in 1..=6 {
            for requests_per_unit in [1, 42, u32::MAX] {
                let limit = RateLimitOverride { requests_per_unit, unit };
                let read = Override::read(&limit).unwrap();
                let counted = read.quota.map(|quota| quota.rate().units());
                let reported = read.reported.reported().requests_per_unit;
                assert_eq!(counted, Some(reported.into()), "{limit:?}");
                let most = if unit == 1 { 1_000_000_000 } else { 2_147_483_647 };
                assert_eq!(reported, requests_per_unit.min(most), "{limit:?}");
            }
            let blocks = RateLimitOverride { requests_per_unit: 0, unit };
            assert!(Override::read(&blocks).unwrap().quota.is_none());
        }
        for unit in [0, 7, -1] {
            assert!(Override::read(&RateLimitOverride { requests_per_unit: 1, unit }).is_none());
        }
    }
}
