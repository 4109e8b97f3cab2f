//! Every file under `fixtures/` gives exactly what stands in the `.expected` file beside it.
//!
//! `BLESS=1 cargo test -p tollgate-config --test fixtures` writes the `.expected` files anew; read
//! the difference before it is committed.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "these are tests")]

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use tollgate_config::{
    Config, DenialConfig, EnvoyConfig, HeadersConfig, Listen, ListenLimits, LogConfig, RulesFrom,
    TracingConfig,
};
use tollgate_core::{CostRule, HotKeys, Matcher, Treatment};

#[test]
fn every_mistake_is_shown_with_its_line_and_what_to_write() {
    let count = compare("fixtures/bad", |path| {
        let errors = Config::read(path).expect_err("the file is wrong");
        let text = fs::read(path).unwrap();
        let lines = text.iter().filter(|byte| **byte == b'\n').count() + 1;
        for error in errors.iter().chain(errors.warnings()) {
            assert!((1..=lines).contains(&error.line()), "{error}");
            assert_eq!(error.file(), path.to_str().unwrap());
        }
        errors.to_string()
    });
    assert!(count >= 113, "{count} files");
}

#[test]
fn good_files_give_what_they_say() {
    let count = compare("fixtures/good", |path| {
        dump(&Config::read(path).unwrap_or_else(|errors| panic!("{errors}")))
    });
    assert!(count >= 24, "{count} files");
}

/// Compares every file of a directory with its `.expected` file, and returns how many there were.
fn compare(directory: &str, actual: impl Fn(&Path) -> String) -> usize {
    let bless = std::env::var_os("BLESS").is_some();
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension != "expected"))
        .collect();
    paths.sort();
    let mut differing = Vec::new();
    for path in &paths {
        let expected = PathBuf::from(format!("{}.expected", path.display()));
        let actual = actual(path) + "\n";
        if bless {
            fs::write(&expected, &actual).unwrap();
        }
        let expected = fs::read_to_string(&expected).unwrap_or_default();
        if actual != expected {
            differing.push(format!("{}:\n{actual}", path.display()));
        }
    }
    assert!(differing.is_empty(), "not as expected: {}", differing.join("\n"));
    paths.len()
}

fn matcher(matcher: &Matcher) -> String {
    let conditions = matcher.iter().map(|(attribute, patterns)| {
        let patterns: Vec<_> = patterns.iter().map(|pattern| pattern.as_str()).collect();
        format!("{attribute} {patterns:?}")
    });
    let conditions: Vec<_> = conditions.collect();
    if conditions.is_empty() { "all".to_owned() } else { conditions.join(" and ") }
}

fn dump(config: &Config) -> String {
    let mut text = String::new();
    let Listen { http, grpc, admin, reuse_port, limits, .. } = &config.listen;
    writeln!(text, "Listen {{ http: {http}, grpc: {grpc:?}, admin: {admin} }}").unwrap();
    if *reuse_port {
        writeln!(text, "reuse_port").unwrap();
    }
    if *limits != ListenLimits::default() {
        writeln!(text, "{limits:?}").unwrap();
    }
    writeln!(text, "{:?}", config.store).unwrap();
    writeln!(text, "trusted_proxies {:?}", config.trusted_proxies).unwrap();
    if config.rules_from != RulesFrom::Config {
        writeln!(text, "{:?}\n{:?}\n{:?}", config.tls, config.admin_tokens, config.rules_from)
            .unwrap();
        writeln!(text, "state_dir {:?}", config.state_dir).unwrap();
    }
    if config.log != LogConfig::default() {
        writeln!(text, "{:?}", config.log).unwrap();
    }
    if config.envoy != EnvoyConfig::default() {
        writeln!(text, "{:?}", config.envoy).unwrap();
    }
    if config.headers != HeadersConfig::default() {
        writeln!(text, "{:?}", config.headers).unwrap();
    }
    if config.denial != DenialConfig::default() {
        writeln!(text, "{:?}", config.denial).unwrap();
    }
    if config.tracing != TracingConfig::default() {
        writeln!(text, "{:?}", config.tracing).unwrap();
    }
    let mut rules: Vec<_> = config.rules.iter().collect();
    rules.sort_by_key(|rule| (rule.domain(), rule.name()));
    for rule in rules {
        let (quota, algorithm) = (rule.quota(), rule.quota().algorithm());
        writeln!(text, "rule {}/{}: {quota}, {algorithm:?}", rule.domain(), rule.name()).unwrap();
        writeln!(text, "  key {:?}, missing {:?}", rule.key(), rule.missing()).unwrap();
        writeln!(text, "  match {}", matcher(rule.matcher())).unwrap();
        match rule.cost() {
            CostRule::One => {}
            CostRule::PerMatch(costs) => {
                for (one, cost) in costs {
                    writeln!(text, "  cost {cost} for {}", matcher(one)).unwrap();
                }
            }
            cost => writeln!(text, "  cost {cost:?}").unwrap(),
        }
        for exception in rule.exceptions() {
            write!(text, "  for {}: ", matcher(&exception.matcher)).unwrap();
            match &exception.treatment {
                Treatment::Quota(quota) => writeln!(text, "{quota}, {:?}", quota.algorithm()),
                treatment => writeln!(text, "{treatment:?}"),
            }
            .unwrap();
        }
        let (policy, share) = (rule.failure_policy().as_str(), rule.local_share());
        writeln!(text, "  {policy}, {share:?}, shadow {}", rule.is_shadow()).unwrap();
        if rule.hot_keys() != HotKeys::Exact {
            writeln!(text, "  hot keys {:?}", rule.hot_keys()).unwrap();
        }
    }
    if !config.warnings.is_empty() {
        writeln!(text, "{}", config.warnings).unwrap();
    }
    text.trim_end().to_owned()
}
