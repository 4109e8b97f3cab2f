//! What the admin API shows of the rules.

use tollgate::Timestamp;

use crate::live::limits::Told;
use crate::live::version::Version;
use crate::live::{Live, Trouble};
use crate::rules_status::{EnvoyLimitsStatus, RulesError, RulesSource, RulesStatus, RulesVersion};

pub(crate) fn status(live: &Live) -> RulesStatus {
    let state = live.state();
    let current = state.history.current();
    let refusal = state.refusal.as_ref().map(|trouble| error("invalid", trouble));
    let absence = state.absence.as_ref().map(|trouble| error("unavailable", trouble));
    RulesStatus {
        id: current.map(|version| version.id.to_string()),
        rules: live.limiter.rules().len(),
        source: RulesSource {
            kind: live.source.kind().to_owned(),
            location: live.source.location(),
            writable: live.source.read_only().is_none(),
        },
        origin: current.map(|version| version.origin.as_str().to_owned()),
        by: current.and_then(|version| version.by.clone()),
        applied_at: current.map(|version| rfc3339(version.applied_at)),
        error: absence.or(refusal),
        warnings: current.map(|version| version.warnings.clone()).unwrap_or_default(),
        envoy_limits: live.limits.told().map(limits),
        needs_restart: state.needs_restart.clone(),
        format: live.source.format().to_owned(),
        document: current.map(|version| version.document.to_string()),
    }
}

fn limits(told: Told) -> EnvoyLimitsStatus {
    let refusal = told.refusal.as_ref().map(|trouble| error("invalid", trouble));
    let absence = told.absence.as_ref().map(|trouble| error("unavailable", trouble));
    EnvoyLimitsStatus {
        id: told.id.to_string(),
        domains: told.domains,
        limits: told.limits,
        directory: told.directory,
        origin: told.origin.as_str().to_owned(),
        applied_at: rfc3339(told.applied_at),
        error: absence.or(refusal),
    }
}

fn error(kind: &str, trouble: &Trouble) -> RulesError {
    let since = rfc3339(trouble.since);
    RulesError { kind: kind.to_owned(), message: trouble.message.clone(), since }
}

pub(super) fn history(live: &Live) -> Vec<RulesVersion> {
    live.state().history.iter().map(version).collect()
}

fn version(version: &Version) -> RulesVersion {
    RulesVersion {
        id: version.id.to_string(),
        rules: version.rules_count,
        origin: version.origin.as_str().to_owned(),
        by: version.by.clone(),
        applied_at: rfc3339(version.applied_at),
    }
}

/// Writes a time in UTC, to the second.
fn rfc3339(time: Timestamp) -> String {
    let seconds = time.as_micros() / 1_000_000;
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(day);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Returns year, month and day of the Gregorian calendar, `days` after 1970-01-01.
const fn date(days: u64) -> (u64, u64, u64) {
    // Years begin in March here, so that the leap day is the last of its year.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        for (seconds, written) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(Timestamp::from_micros(seconds * 1_000_000)), written);
        }
    }
}
