//! What rules mean that are read from a file.

use std::num::NonZeroU16;
use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::{Algorithm, Attributes, Cost, Quota, Treatment};

use super::errors;
use crate::{Config, ConfigErrors};

fn parse(text: &str) -> Config {
    Config::parse(text, "t.yaml").unwrap_or_else(|errors| panic!("{errors}"))
}

/// Returns what the only rule of a configuration does with a request.
fn treatment(config: &Config, pairs: &[(&'static str, &str)]) -> Treatment {
    let rule = config.rules.iter().next().unwrap();
    let attributes =
        pairs.iter().fold(Attributes::new(), |all, (name, value)| all.with(*name, *value));
    rule.treatment(rule.exception(&attributes))
}

#[test]
fn blocked_is_tried_before_unlimited_and_unlimited_before_overrides() {
    let config = parse(
        "
rules:
  - name: a
    limit: 20/min
    overrides:
      - { match: { account: '*' }, limit: 5/s }
      - { match: { account: acme }, limit: 7/s }
    unlimited: [{ account: internal }, { ip: '10.*' }]
    blocked: [{ ip: 10.0.0.7 }]
",
    );
    assert_eq!(treatment(&config, &[("ip", "10.0.0.7")]), Treatment::Blocked);
    assert_eq!(
        treatment(&config, &[("ip", "10.0.0.7"), ("account", "internal")]),
        Treatment::Blocked
    );
    assert_eq!(treatment(&config, &[("ip", "10.0.0.8")]), Treatment::Unlimited);
    assert_eq!(treatment(&config, &[("account", "internal")]), Treatment::Unlimited);
    let five = Quota::from_rate("5/s".parse().unwrap()).unwrap();
    assert_eq!(treatment(&config, &[("account", "acme")]), Treatment::Quota(five));
    let own = Quota::from_rate("20/min".parse().unwrap()).unwrap();
    assert_eq!(treatment(&config, &[("ip", "192.0.2.1")]), Treatment::Quota(own));
}

#[test]
fn overrides_and_shadow_limits_are_counted_as_the_rule_is() {
    let lease_ttl = Duration::from_secs(10);
    for (fields, algorithm) in [
        ("limit: 20/min", Algorithm::TokenBucket),
        ("limit: 20/min, algorithm: fixed_window", Algorithm::FixedWindow),
        (
            "limit: 20/min, algorithm: sliding_window, cells: 60",
            Algorithm::SlidingWindow { cells: NonZeroU16::new(60).unwrap() },
        ),
        ("limit: 20/min, algorithm: sliding_log", Algorithm::SlidingLog),
        ("limit: 20/min, algorithm: leaky_bucket", Algorithm::LeakyBucket),
        ("limit: 20, algorithm: concurrency, lease: 10s", Algorithm::Concurrency { lease_ttl }),
    ] {
        let unit = if fields.contains("concurrency") { "" } else { "/min" };
        let config = parse(&format!(
            "rules: [{{ name: a, {fields}, shadow_limit: 10{unit}, \
             overrides: [{{ match: {{ account: acme }}, limit: 50{unit} }}] }}]"
        ));
        let bursts: Vec<_> = config
            .rules
            .charges(&Attributes::from([("ip", "192.0.2.1")]))
            .map(|applied| {
                let quota = applied.quota.unwrap();
                assert_eq!(quota.algorithm(), algorithm);
                (applied.rule.name().to_owned(), quota.burst())
            })
            .collect();
        assert_eq!(bursts, [("a".to_owned(), 20), ("a.shadow".to_owned(), 10)]);
        let Treatment::Quota(quota) = treatment(&config, &[("account", "acme")]) else {
            panic!("{fields}")
        };
        assert_eq!((quota.algorithm(), quota.burst()), (algorithm, 50), "{fields}");
    }
}

#[test]
fn the_first_cost_that_holds_counts_and_one_unit_if_none_does() {
    let cost = |text: &str, path: &str| {
        let config = parse(&format!("rules: [{{ name: a, limit: 100/min, cost: {text} }}]"));
        let attributes = Attributes::new().with("path", path).with("bytes", "512");
        let rule = config.rules.iter().next().unwrap();
        rule.cost().cost(&attributes, Cost::ONE).unwrap().units()
    };
    assert_eq!(cost("7", "/x"), 7);
    assert_eq!(cost("{ attribute: bytes }", "/x"), 512);
    assert_eq!(cost("{ attribute: absent }", "/x"), 1);
    let matches = "[{ match: { path: /export }, cost: 10 }, { match: { path: '/e*' }, cost: 5 }]";
    assert_eq!(cost(matches, "/export"), 10);
    assert_eq!(cost(matches, "/everything"), 5);
    assert_eq!(cost(matches, "/query"), 1);
    let all = "[{ match: { path: /export }, cost: 10 }, { cost: 2 }]";
    assert_eq!(cost(all, "/export"), 10);
    assert_eq!(cost(all, "/query"), 2);
}

#[test]
fn a_shadow_takes_no_name_from_another_domain() {
    let rules = |domain: &str| {
        format!(
            "rules:\n  - {{ name: a, limit: 2/s, shadow_limit: 1/s }}\n  \
             - {{ name: a.shadow, domain: {domain}, limit: 1/s }}\n"
        )
    };
    assert_eq!(parse(&rules("shop")).rules.len(), 3);
    let collision = errors(&rules("default"));
    let found: Vec<_> = collision.iter().map(|error| (error.line(), error.message())).collect();
    assert_eq!(found, [(3, "the shadow limit of `a` has the name `a.shadow`")]);
}

#[test]
fn an_unread_override_hides_no_other_mistake_and_makes_none_up() {
    let text = "
rules:
  - name: a
    limit: 20/min
    cost: 30
    overrides:
      - { match: { account: acme }, limit: 100 }
  - name: b
    limit: 20/min
    cost: 30
    overrides:
      - { match: { account: acme }, limit: 25/min }
";
    let found = errors(text);
    let lines: Vec<_> = found.iter().map(|error| error.line()).collect();
    assert_eq!(lines, [7, 10]);
}

#[test]
fn the_lines_of_the_example_that_are_commented_out_are_right() {
    let (mut text, mut fields) = (String::new(), 0);
    for line in Config::EXAMPLE.lines() {
        let field = line.trim_start().strip_prefix("# ").filter(|rest| {
            let name = rest.split(": ").next().unwrap_or_default();
            rest.contains(": ")
                && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        });
        match field {
            Some(rest) => {
                let indent = line.len() - line.trim_start().len();
                text += &format!("{}{rest}\n", " ".repeat(indent));
                fields += 1;
            }
            None => text += &format!("{line}\n"),
        }
    }
    let config = parse(&text);
    assert!(config.warnings.is_empty(), "{}", config.warnings);
    assert_eq!((fields, config.rules.len(), config.trusted_proxies.len()), (6, 3, 1), "{text}");
    assert!(config.tracing.otlp.is_some());
}

/// For each field what it may hold, right and at the edge of it, and what no rule can hold.
const VALUES: &[(&str, &[&str])] = &[
    ("limit", &["20/min", "20/min", "1/us", "1/366day", "20000/s", "1/2591999999999us", "50"]),
    ("burst", &["1", "2147483647", "0"]),
    (
        "algorithm",
        &["fixed_window", "sliding_window", "sliding_log", "leaky_bucket", "concurrency"],
    ),
    ("cells", &["1", "20", "100", "101"]),
    ("lease", &["1ms", "1440min", "0s"]),
    (
        "cost",
        &[
            "20",
            "3000",
            "{ attribute: bytes }",
            "[{ match: { path: /x }, cost: 5 }, { cost: 2 }]",
            "{ match: { path: /x }, cost: 3000 }",
            "[]",
        ],
    ),
    (
        "overrides",
        &[
            "[{ match: { account: acme }, limit: 7/s }, { match: { account: b }, blocked: true }]",
            "[{ match: { account: acme }, limit: 7 }, { match: { a: b }, unlimited: true }]",
            "[{ match: { account: acme }, limit: 1/366day }]",
            "{ match: {}, limit: 7/s }",
        ],
    ),
    ("unlimited", &["{ account: acme }", "[{ account: acme }, { ip: [a, b] }]", "{}"]),
    ("blocked", &["{ account: acme }", "[]", "[{ \"a b\": c }]"]),
    ("on_store_failure", &["closed", "open", "local"]),
    ("local_share", &["auto", "0.5", "1", "0.000001"]),
    ("missing", &["share"]),
    ("shadow", &["true", "false"]),
    ("shadow_limit", &["10/min", "1/366day", "1/2591999999999us", "40"]),
    ("shadow_burst", &["1", "2147483647"]),
    ("key", &["ip", "[ip, account]", "[ip, ip]", "a b"]),
    ("match", &["{ path: /x }", "{}", "{ path: [] }"]),
    ("domain", &["shop", "a b"]),
    ("hot_keys", &["exact", "lease", "{ shards: 4 }", "{ shards: 64 }", "{ shards: 65 }", "{}"]),
];

fn fields() -> impl Strategy<Value = String> {
    let other = prop::sample::subsequence(&VALUES[1..], 0..5);
    (other, prop::collection::vec(any::<prop::sample::Index>(), 6)).prop_map(|(other, picks)| {
        std::iter::once(&VALUES[0])
            .chain(&other)
            .zip(picks)
            .fold(String::new(), |text, ((name, values), pick)| {
                text + &format!(", {name}: {}", pick.get(values))
            })
    })
}

/// A rule that is right, with every field that the algorithm can have.
fn right_fields() -> impl Strategy<Value = String> {
    let windowed = prop::sample::select(vec![
        ", algorithm: fixed_window",
        ", algorithm: sliding_window",
        ", algorithm: sliding_window, cells: 100",
        ", algorithm: sliding_log",
    ]);
    let buckets = prop::sample::select(vec!["", ", algorithm: leaky_bucket"]);
    let rate = "[1-9][0-9]{0,3}/(ms|s|[1-9]min|hour|day)";
    let limits = prop_oneof![
        (windowed, rate, rate, rate).prop_map(|(algorithm, limit, shadow, exception)| {
            format!(
                "{algorithm}, limit: {limit}, shadow_limit: {shadow}, \
                 overrides: [{{ match: {{ account: acme }}, limit: {exception} }}]"
            )
        }),
        (buckets, rate, 1..10_000_u32, rate, rate).prop_map(
            |(algorithm, limit, burst, shadow, exception)| {
                format!(
                    "{algorithm}, limit: {limit}, burst: {burst}, shadow_limit: {shadow}, \
                     shadow_burst: {burst}, overrides: [{{ match: {{ account: acme }}, \
                     limit: {exception}, burst: {burst} }}]"
                )
            }
        ),
        (1..10_001_u32, 1..10_001_u32, 1..86_400_u32).prop_map(|(limit, other, lease)| {
            format!(
                ", algorithm: concurrency, limit: {limit}, lease: {lease}s, \
                 shadow_limit: {other}, \
                 overrides: [{{ match: {{ account: acme }}, limit: {other} }}]"
            )
        }),
    ];
    let costs = prop::sample::select(vec!["", ", cost: 1", ", cost: { attribute: bytes }"]);
    let lists = prop::sample::select(vec!["", ", unlimited: { account: a }, blocked: [{ ip: b }]"]);
    (limits, costs, lists).prop_map(|(limits, costs, lists)| limits + costs + lists)
}

/// The set of rules repeats the checks, without places; so it should never be the one to refuse.
fn is_of_the_core(errors: &ConfigErrors) -> bool {
    errors.iter().any(|error| error.message().starts_with("rule \""))
}

#[test]
fn every_field_has_values_to_be_tried() {
    let rule = crate::decode::SHAPES.last().unwrap();
    let tried = |field: &str| VALUES.iter().any(|(name, _)| *name == field);
    assert!(rule.fields[1..].iter().all(|field| tried(field)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_mistake_of_a_rule_has_its_place(
        rules in prop::collection::vec(fields(), 1..3),
        long in any::<bool>(),
    ) {
        let long = "a".repeat(if long { 58 } else { 1 });
        let names = [long.clone(), long + ".shadow"];
        let text = rules.iter().zip(&names).fold("rules:\n".to_owned(), |text, (rule, name)| {
            text + &format!("  - {{ name: {name}{rule} }}\n")
        });
        if let Err(errors) = Config::parse(&text, "t.yaml") {
            prop_assert!(!is_of_the_core(&errors), "{text}\n{errors}");
            prop_assert!(errors.iter().all(|error| error.line() >= 2), "{text}\n{errors}");
        }
    }

    #[test]
    fn rules_within_the_documented_ranges_are_taken(fields in right_fields()) {
        let text = format!("rules:\n  - {{ name: a{fields} }}\n");
        let config = Config::parse(&text, "t.yaml");
        prop_assert!(config.is_ok(), "{text}\n{}", config.unwrap_err());
        prop_assert_eq!(config.unwrap().rules.len(), 2);
    }
}

#[test]
fn more_rules_that_always_match_than_a_request_may_be_charged_by_are_doubted() {
    let file = |count: usize, more: &str| {
        let rule = |index| format!("  - {{ name: r{index}, limit: 1/s{more} }}\n");
        format!("rules:\n{}", (0..count).map(rule).collect::<String>())
    };
    for (text, count) in [(file(65, ""), 65), (file(33, ", shadow_limit: 2/s"), 66)] {
        let config = Config::parse(&text, "t.yaml").unwrap();
        assert_eq!(
            config.warnings.to_string(),
            format!(
                "\
warning: the domain `default` has {count} rules and shadow limits without a `match`
 --> t.yaml:1:1
  |
1 | rules:
  | ^^^^^ a request is charged by at most 64, and refused above that
  |
  = help: give them a `match`, or some of them another `domain`"
            )
        );
    }
    let split = file(64, "") + &file(64, ", domain: shop")["rules:\n".len()..];
    for text in [split, file(100, ", match: { path: /a }")] {
        let config = Config::parse(&text, "t.yaml").unwrap();
        assert!(config.warnings.is_empty(), "{}", config.warnings);
    }
}
