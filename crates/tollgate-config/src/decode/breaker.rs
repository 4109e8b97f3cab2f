//! `breaker`: when a store that fails is not asked any more.

use std::num::NonZeroU32;
use std::time::Duration;

use tollgate_core::{BreakerSettings, Fraction};

use crate::decode::Decoder;
use crate::decode::fields::{Fields, Shape};
use crate::mistake::{Mistake, quoted};
use crate::tree::Node;

pub(super) const BREAKER: Shape = Shape {
    what: "`breaker`",
    fields: &["failures", "error_ratio", "window", "probe_interval"],
    synonyms: &[
        ("threshold", "failures"),
        ("consecutive_failures", "failures"),
        ("max_failures", "failures"),
        ("ratio", "error_ratio"),
        ("error_rate", "error_ratio"),
        ("failure_ratio", "error_ratio"),
        ("interval", "probe_interval"),
        ("probe", "probe_interval"),
        ("reset_timeout", "probe_interval"),
    ],
};

/// The most failures in a row that can be asked for.
const FAILURES_MAX: u32 = 1_000_000;

const WINDOW_MIN: Duration = Duration::from_millis(100);
const WINDOW_MAX: Duration = Duration::from_secs(600);
const PROBE_INTERVAL_MIN: Duration = Duration::from_millis(10);
const PROBE_INTERVAL_MAX: Duration = Duration::from_secs(60);

impl Decoder<'_> {
    pub(super) fn breaker(&mut self, node: &Node) -> Option<BreakerSettings> {
        let fields = Fields::of(node, &BREAKER, self)?;
        let default = BreakerSettings::default();
        let failures = match fields.value("failures", self) {
            Some(node) => self.failures(node),
            None => Some(default.failures),
        };
        let error_ratio = match fields.value("error_ratio", self) {
            Some(node) => self.error_ratio(node),
            None => Some(default.error_ratio),
        };
        let window = match fields.value("window", self) {
            Some(node) => self.duration(node, "window", WINDOW_MIN..=WINDOW_MAX, "10s"),
            None => Some(default.window),
        };
        let probe_interval = match fields.value("probe_interval", self) {
            Some(node) => {
                let range = PROBE_INTERVAL_MIN..=PROBE_INTERVAL_MAX;
                self.duration(node, "probe_interval", range, "100ms")
            }
            None => Some(default.probe_interval),
        };
        if let Some(entry) = fields.entry("window")
            && error_ratio == Some(None)
        {
            let message = "`window` has no effect";
            let label = "`error_ratio` is `off`, so only failures in a row count";
            self.warning(Mistake::new(entry.value.span.clone(), message).label(label));
        }
        Some(BreakerSettings {
            failures: failures?,
            error_ratio: error_ratio?,
            window: window?,
            probe_interval: probe_interval?,
        })
    }

    fn failures(&mut self, node: &Node) -> Option<NonZeroU32> {
        let default = BreakerSettings::FAILURES_DEFAULT;
        let given = self.whole(node, "failures", &default.to_string())?;
        let failures = u32::try_from(given).ok().filter(|failures| *failures <= FAILURES_MAX);
        let failures = failures.and_then(NonZeroU32::new);
        if failures.is_none() {
            let message = format!("`failures` cannot be {given}");
            let help = format!("it must be 1 to {FAILURES_MAX}");
            self.error(Mistake::new(node.span.clone(), message).help(help));
        }
        failures
    }

    #[expect(
        clippy::option_option,
        reason = "none is a value that can be written, and a mistake is none"
    )]
    fn error_ratio(&mut self, node: &Node) -> Option<Option<Fraction>> {
        let text = self.text(node, "`error_ratio`", "a number or `off`")?;
        if text == "off" {
            return Some(None);
        }
        let ratio = Fraction::parse(text);
        if ratio.is_none() {
            let message = format!("`error_ratio` cannot be {}", quoted(text));
            let help = "write a number above 0 and at most 1 with up to 6 decimals, for example \
                        `0.5`, or `off`";
            self.error(Mistake::new(node.span.clone(), message).help(help));
        }
        ratio.map(Some)
    }
}
