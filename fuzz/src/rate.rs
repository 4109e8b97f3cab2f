//! Rates and fractions in text, and the quotas that are made of them.

use std::num::NonZeroU16;
use std::time::Duration;

use tollgate_core::{Fraction, Quota, QuotaError, Rate};

/// Checks a rate in the first line and a fraction in the second.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (rate, fraction) = text.split_once('\n').unwrap_or((&text, "0.5"));
    let rate = match rate.parse::<Rate>() {
        Ok(rate) => rate,
        Err(error) => return assert!(!error.to_string().is_empty(), "{rate:?}"),
    };
    assert_eq!(rate.to_string().parse(), Ok(rate), "{text:?}");
    assert!(
        rate.units() > 0 && rate.period() > Duration::ZERO && rate.period() <= Rate::PERIOD_MAX
    );

    let bursts = [1, 20, rate.units(), rate.units() / 3, Quota::BURST_MAX, u64::MAX];
    let buckets = bursts
        .into_iter()
        .flat_map(|burst| [Quota::new(rate, burst), Quota::leaky_bucket(rate, burst)]);
    let cells = [1, 20, 100, 101].map(|cells| NonZeroU16::new(cells).unwrap_or(NonZeroU16::MIN));
    let windows = cells.into_iter().map(|cells| Quota::sliding_window(rate, cells));
    let others = [
        Quota::from_rate(rate),
        Quota::fixed_window(rate),
        Quota::sliding_log(rate),
        Quota::concurrency(rate.units(), rate.period()),
    ];
    let fraction = Fraction::parse(fraction);
    for quota in buckets.chain(windows).chain(others) {
        check_quota(&text, quota, fraction);
    }
}

fn check_quota(text: &str, quota: Result<Quota, QuotaError>, fraction: Option<Fraction>) {
    let quota = match quota {
        Ok(quota) => quota,
        Err(error) => return assert!(!error.to_string().is_empty(), "{text:?}"),
    };
    assert!(quota.level_max() <= Quota::LEVEL_MAX, "{quota} of {text:?}");
    assert!(quota.fill_time() > Duration::ZERO, "{quota} of {text:?}");
    assert!(!quota.to_string().is_empty());
    if let Some(Ok(part)) = fraction.map(|fraction| fraction.of(&quota)) {
        assert!(part.burst() <= quota.burst(), "{part} of {quota}");
        assert_eq!(part.algorithm().as_str(), quota.algorithm().as_str());
        // units / period of the part is at most that of the whole.
        let (part, whole) = (part.rate(), quota.rate());
        let cross = |one: Rate, other: Rate| u128::from(one.units()) * other.period().as_micros();
        assert!(cross(part, whole) <= cross(whole, part), "{part} of {whole}");
    }
}
