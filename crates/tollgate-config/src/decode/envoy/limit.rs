//! `rate_limit`.

use tollgate_core::{Algorithm, Quota, QuotaError, Rate};

use crate::decode::Decoder;
use crate::decode::envoy::given;
use crate::decode::fields::{Fields, Shape};
use crate::decode::quota::quota_mistake;
use crate::envoy::{EnvoyAmount, EnvoyLimit, EnvoyUnit};
use crate::mistake::Mistake;
use crate::tree::{Node, Value};

pub(super) const RATE_LIMIT: Shape = Shape {
    what: "`rate_limit`",
    fields: &[
        "unit",
        "requests_per_unit",
        "unlimited",
        "name",
        "replaces",
        "algorithm",
        "burst",
        "on_store_failure",
    ],
    synonyms: &[
        ("requests", "requests_per_unit"),
        ("limit", "requests_per_unit"),
        ("period", "unit"),
        ("capacity", "burst"),
    ],
};

pub(super) const REPLACES: Shape =
    Shape { what: "an entry of `replaces`", fields: &["name"], synonyms: &[] };

/// The algorithms of this format. The others need a caller who waits or gives back.
const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::FixedWindow,
    Algorithm::TokenBucket,
    Algorithm::SlidingWindow { cells: Algorithm::CELLS_DEFAULT },
    Algorithm::SlidingLog,
];

impl Decoder<'_> {
    pub(super) fn envoy_limit(&mut self, node: &Node) -> Option<EnvoyLimit> {
        let fields = Fields::of(node, &RATE_LIMIT, self)?;
        let name = given(&fields, "name")
            .and_then(|node| self.text(node, "`name`", "text"))
            .filter(|name| !name.is_empty())
            .map(str::to_owned);
        let replaces = self.replaces(&fields, name.as_deref());
        let on_store_failure = self.failure_policy(&fields).unwrap_or_default();
        let unlimited = given(&fields, "unlimited")
            .and_then(|node| self.boolean(node, "unlimited"))
            .unwrap_or_default();
        let amount = if unlimited { self.unlimited(&fields) } else { self.per_unit(&fields) };
        Some(EnvoyLimit { amount: amount?, name, replaces, on_store_failure })
    }

    fn unlimited(&mut self, fields: &Fields<'_>) -> Option<EnvoyAmount> {
        for name in ["unit", "requests_per_unit", "algorithm", "burst"] {
            if let Some(entry) = fields.entry(name) {
                let message = format!("`{name}` has no meaning beside `unlimited: true`");
                let mistake = Mistake::new(entry.name_span.clone(), message)
                    .help("remove it, or remove `unlimited`");
                // Files that envoyproxy/ratelimit takes may have it.
                if name == "requests_per_unit" {
                    self.warning(mistake);
                } else {
                    self.error(mistake);
                }
            }
        }
        Some(EnvoyAmount::Unlimited)
    }

    fn per_unit(&mut self, fields: &Fields<'_>) -> Option<EnvoyAmount> {
        let unit = fields.required("unit", "unit: minute", self);
        let unit = unit.and_then(|node| self.unit(node));
        let requests_node = fields.required("requests_per_unit", "requests_per_unit: 20", self);
        let requests = requests_node.and_then(|node| self.requests(node));
        let algorithm = match given(fields, "algorithm") {
            Some(node) => self.envoy_algorithm(node),
            None => Some(ALGORITHMS[0]),
        };
        let burst = given(fields, "burst").map(|node| self.whole(node, "burst", "20"));
        let (unit, requests, algorithm) = (unit?, requests?, algorithm?);
        if burst.is_some() && algorithm != Algorithm::TokenBucket {
            let owners = [Algorithm::TokenBucket.as_str()];
            let help = format!(
                "remove it: all of `requests_per_unit` can pass at once, or write `algorithm: {}`",
                owners[0]
            );
            self.refuse_field(fields, "burst", algorithm, &owners, &help);
        }
        if requests == 0 {
            return Some(EnvoyAmount::PerUnit { requests, unit, quota: None });
        }
        let quota = quota(requests, unit, algorithm, burst.map_or(Some(None), |b| b.map(Some))?);
        match quota {
            Ok(quota) => Some(EnvoyAmount::PerUnit { requests, unit, quota: Some(quota) }),
            Err(error) => {
                let place = match fields.entry("burst") {
                    Some(entry) if !error.is_rate() => &entry.value,
                    _ => requests_node?,
                };
                let mut mistake = quota_mistake(place, &error);
                mistake.help.get_or_insert_with(|| {
                    format!(
                        "give at most {} requests, or write `unlimited: true` instead",
                        if algorithm == Algorithm::SlidingLog {
                            Quota::LOG_UNITS_MAX
                        } else {
                            Quota::BURST_MAX
                        }
                    )
                });
                self.error(mistake);
                None
            }
        }
    }

    fn unit(&mut self, node: &Node) -> Option<EnvoyUnit> {
        let is_written = |text: &str| {
            EnvoyUnit::ALL.into_iter().find(|unit| unit.as_str().eq_ignore_ascii_case(text))
        };
        if let Value::Scalar(scalar) = &node.value
            && let Some(unit) = is_written(&scalar.text)
        {
            return Some(unit);
        }
        let synonyms = &[
            ("s", "second"),
            ("sec", "second"),
            ("min", "minute"),
            ("mins", "minute"),
            ("m", "minute"),
            ("h", "hour"),
            ("d", "day"),
        ];
        self.word(node, "unit", &EnvoyUnit::ALL.map(EnvoyUnit::as_str), synonyms)?;
        None
    }

    fn requests(&mut self, node: &Node) -> Option<u32> {
        let given = self.whole(node, "requests_per_unit", "20")?;
        let requests = u32::try_from(given).ok();
        if requests.is_none() {
            let message = format!("`requests_per_unit` cannot be {given}");
            self.error(
                Mistake::new(node.span.clone(), message)
                    .label("it is more than 32 bits hold")
                    .help("write `unlimited: true` for no limit"),
            );
        }
        requests
    }

    fn envoy_algorithm(&mut self, node: &Node) -> Option<Algorithm> {
        if let Value::Scalar(scalar) = &node.value
            && let Some(why) = match scalar.text.as_str() {
                "leaky_bucket" => Some("it delays requests, and Envoy cannot wait"),
                "concurrency" => {
                    Some("it counts requests in flight, and Envoy does not tell their end")
                }
                _ => None,
            }
        {
            let message = format!("`algorithm` cannot be `{}` for Envoy", scalar.text);
            let words: Vec<_> = ALGORITHMS.map(|algorithm| format!("`{algorithm}`")).into();
            self.error(
                Mistake::new(node.span.clone(), message)
                    .label(why)
                    .help(format!("it is one of {}", words.join(", "))),
            );
            return None;
        }
        let word = self.word(node, "algorithm", &ALGORITHMS.map(Algorithm::as_str), &[])?;
        ALGORITHMS.into_iter().find(|algorithm| algorithm.as_str() == word)
    }

    fn replaces(&mut self, fields: &Fields<'_>, own: Option<&str>) -> Vec<String> {
        let Some(node) = given(fields, "replaces") else { return Vec::new() };
        let Value::Sequence(items) = &node.value else {
            let help = "for example `replaces: [{ name: per-tenant }]`";
            self.expected(node, "`replaces`", "a list", Some(help));
            return Vec::new();
        };
        let mut names = Vec::new();
        for item in items {
            let Some(fields) = Fields::of(item, &REPLACES, self) else { continue };
            let Some(node) = fields.required("name", "name: per-tenant", self) else { continue };
            let Some(name) = self.text(node, "`name`", "text") else { continue };
            if name.is_empty() {
                let mistake = Mistake::new(node.span.clone(), "`name` is empty");
                self.error(mistake.help("give the name of the limit that is replaced"));
            } else if own == Some(name) {
                let mistake = Mistake::new(node.span.clone(), "a limit cannot replace itself");
                self.error(mistake.help("give the name of another limit"));
            } else {
                names.push(name.to_owned());
            }
        }
        names
    }
}

fn quota(
    requests: u32,
    unit: EnvoyUnit,
    algorithm: Algorithm,
    burst: Option<u64>,
) -> Result<Quota, QuotaError> {
    let rate = Rate::new(requests.into(), unit.period())?;
    match (algorithm, burst) {
        (Algorithm::TokenBucket, Some(burst)) => Quota::new(rate, burst),
        (Algorithm::TokenBucket, None) => Quota::from_rate(rate),
        (Algorithm::SlidingWindow { cells }, _) => Quota::sliding_window(rate, cells),
        (Algorithm::SlidingLog, _) => Quota::sliding_log(rate),
        _ => Quota::fixed_window(rate),
    }
}
