//! `docs/metrics.md`, the alerts and the dashboard name the metrics that there are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tollgate_testkit::RedisServer;

use crate::support::Service;

const RULES: &str = "
rules:
  - { name: per-ip, key: ip, limit: 2/min }
  - { name: trial, limit: 1/min, shadow: true }
";

/// What stands before the tables.
const HEAD: &str = "\
# Metrics

<!-- Made by `cargo xtask docs` from what the service answers. -->

`GET /metrics` on the admin address, as Prometheus text, or OpenMetrics for those who accept it. Ready-made alerts are in
[deploy/prometheus](../deploy/prometheus/tollgate.rules.yaml), a dashboard is in
[deploy/grafana](../deploy/grafana/tollgate.json).

Labels are names from the configuration and fixed words, never anything that a caller sends (G9). The counters of a
rule stand at 0 from the start, so that its first denial shows as a rise. Those of a rule that is in force no more stay
for 15 minutes, of at most 1,000 such rules.

`tollgate_redis_script_*` are what the servers count themselves, asked with the page but at most every five seconds and
on a connection apart from that of checks. They are of the whole server, with the scripts of others on it; they begin
anew with the server and with `CONFIG RESETSTAT`, and every node of a fleet tells the same, so do not add them up over
nodes. They are missing until a script has run, and where the user lacks `+info`; the latencies take Redis 7. `tollgate_spans_*` are
there where [traces](tracing.md) are sent.

";

/// Every label, and what its values are.
const LABELS: [(&str, &str); 17] = [
    ("command", "by which scripts are executed: `eval`, `evalsha` or `fcall`"),
    ("domain", "the domain of the rule"),
    (
        "endpoint",
        "the path of the http address without `/v1/`, `other` for any unknown path; `envoy` for the gRPC address",
    ),
    ("envoy_limits", "the id of the limits of `--envoy-config` in force; empty without"),
    ("id", "the id of the rules in force"),
    ("kind", "`timeout`, `unavailable`, `corrupt`, `full` or `refused`"),
    ("listener", "`http` or `grpc`, and of certificates also `admin`"),
    (
        "mode",
        "`exact`: the store decided; `local`, `open`, `closed`: the failure policy did; `unlimited`: no enforced rule applied, under empty names",
    ),
    ("node", "`host:port` of a server of the store, or the path of its socket"),
    ("outcome", "`allow`, `deny`, or `shadow_deny` of a shadow rule, which denies nothing"),
    ("quantile", "`0.5` or `0.99`"),
    (
        "reason",
        "of spans `queue_full`: the collector was too slow; `export_failed`: it did not take them; of the admin listener `no_token`, `unknown_token`, or `scope`: the token may only read",
    ),
    ("rule", "the name of the rule"),
    (
        "source",
        "where the rules come from: `config`, `file`, `redis` or `http`; `none` if the configuration has none",
    ),
    ("status", "of the answer; to Envoy 200, or 400 for a request that cannot be judged"),
    (
        "store",
        "`memory`, `redis`, or `custom` for a store of the application's own; `none` for checks that did not ask it: the denial was known, a leased slice covered the cost, no rule applied, or the breaker was open; refusals of rules that are closed then count with the store",
    ),
    ("version", "of Tollgate"),
];

/// One metric as its page tells of it.
#[derive(Debug, Default)]
struct Metric {
    kind: String,
    help: String,
    labels: Vec<String>,
    samples: BTreeSet<String>,
    /// With which stores it is there.
    stores: BTreeSet<&'static str>,
}

type Metrics = BTreeMap<String, Metric>;

fn read(page: &str, store: &'static str, metrics: &mut Metrics) {
    let mut name = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (of, help) = rest.split_once(' ').unwrap();
            name = of.to_owned();
            let metric = metrics.entry(name.clone()).or_default();
            metric.help = help.trim_end_matches('.').to_owned();
            metric.stores.insert(store);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (of, kind) = rest.split_once(' ').unwrap();
            assert_eq!(of, name, "the type follows the help");
            metrics.get_mut(of).unwrap().kind = kind.to_owned();
        } else if !line.is_empty() && !line.starts_with('#') {
            let (sample, labels) = line.split_once('{').unwrap_or((line, ""));
            let sample = sample.split(' ').next().unwrap();
            assert!(sample.starts_with(&name), "{sample} is of {name}");
            let metric = metrics.get_mut(&name).unwrap();
            metric.samples.insert(sample.to_owned());
            for part in labels.split("\",") {
                if let Some((label, _)) = part.trim_start_matches(',').split_once("=\"")
                    && label != "le"
                    && !metric.labels.iter().any(|known| known == label)
                {
                    metric.labels.push(label.to_owned());
                }
            }
        }
    }
}

/// Reads the pages of services that have answered something.
async fn metrics() -> Metrics {
    let redis = RedisServer::start().unwrap();
    // Nobody listens there, and nothing is traced.
    let rules =
        format!("tracing: {{ otlp: {{ endpoint: \"http://127.0.0.1:1\", sample: 0 }} }}\n{RULES}");
    let with_redis =
        format!("store: {{ kind: redis, url: \"{}\", timeout: 5s }}\n{rules}", redis.url());
    let mut metrics = Metrics::new();
    let folder = tempfile::tempdir().unwrap();
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (folder.path().join("cert"), folder.path().join("key"));
    fs::write(&cert, signed.cert.pem()).unwrap();
    fs::write(&key, signed.signing_key.serialize_pem()).unwrap();
    let tls = |store: &str| {
        let (cert, key) = (cert.display(), key.display());
        format!("tls: {{ grpc: {{ cert: {cert}, key: {key} }} }}\n{store}")
    };
    for (store, config) in [("memory", tls(&rules)), ("redis", tls(&with_redis))] {
        let config = config.as_str();
        let service = Service::start(config).await;
        let reply = service.post("/v1/check", r#"{"attributes":{"ip":"1.2.3.4"}}"#).await;
        assert_eq!(reply.status, 200);
        read(&whole_page(&service, store).await, store, &mut metrics);
    }
    metrics
}

/// Returns the page when it has what Redis tells of itself, which it does not wait for long.
async fn whole_page(service: &Service, store: &str) -> String {
    for _ in 0..1_000 {
        let page = service.admin("/metrics").await.body;
        if store != "redis" || page.contains("tollgate_redis_script_latency_seconds") {
            return page;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("Redis never tells of its scripts");
}

fn written(metrics: &Metrics) -> String {
    let mut text = HEAD.to_owned();
    text.push_str("| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n");
    for (name, metric) in metrics {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let only = match metric.stores.iter().collect::<Vec<_>>()[..] {
            [store] => format!(" (store: {store})"),
            _ => String::new(),
        };
        let (kind, help, labels) = (&metric.kind, &metric.help, labels.join(", "));
        writeln!(text, "| `{name}` | {kind} | {labels} | {help}{only} |").unwrap();
    }
    text.push_str("\n## Labels\n\n| label | values |\n| --- | --- |\n");
    let used: BTreeSet<_> = metrics.values().flat_map(|metric| &metric.labels).collect();
    let known: BTreeSet<_> = LABELS.iter().map(|(label, _)| (*label).to_owned()).collect();
    assert_eq!(used, known.iter().collect(), "every label is described");
    for (label, values) in LABELS {
        writeln!(text, "| `{label}` | {values} |").unwrap();
    }
    text
}

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("tollgate_")).map(str::to_owned).collect()
}

#[tokio::test]
async fn the_page_of_metrics_is_current() {
    let (page, path) = (written(&metrics().await), in_repository("docs/metrics.md"));
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(there, page, "docs/metrics.md is not current: run `cargo xtask docs`");
}

#[tokio::test]
async fn every_metric_that_an_alert_a_panel_or_a_page_names_exists() {
    let metrics = metrics().await;
    let there: BTreeSet<_> = metrics.values().flat_map(|metric| metric.samples.clone()).collect();
    let base: BTreeSet<_> = metrics.keys().cloned().collect();
    for (path, at_least) in
        [("deploy/prometheus/tollgate.rules.yaml", 9), ("deploy/grafana/tollgate.json", 12)]
    {
        let named = names(&fs::read_to_string(in_repository(path)).unwrap());
        let missing: Vec<_> = named.difference(&there).collect();
        assert!(missing.is_empty(), "{path} names metrics that are not there: {missing:?}");
        assert!(named.len() >= at_least, "{path} names {named:?}");
    }
    let page = fs::read_to_string(in_repository("docs/operating.md")).unwrap();
    let missing: Vec<_> = names(&page)
        .into_iter()
        .filter(|name| !there.contains(name) && !base.contains(name))
        .collect();
    assert!(missing.is_empty(), "docs/operating.md names metrics that are not there: {missing:?}");
}

#[test]
fn the_dashboard_is_json_whose_panels_have_their_own_ids_and_queries() {
    let text = fs::read_to_string(in_repository("deploy/grafana/tollgate.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{}", panel["title"]);
        assert!(targets.iter().all(|target| !names(target["expr"].as_str().unwrap()).is_empty()));
    }
}

#[tokio::test]
async fn a_request_is_in_flight_until_it_is_answered() {
    let service = Service::start(RULES).await;
    // The limit is two in a minute, so the third waits for half of one.
    let third = r#"{"attributes":{"ip":"1.2.3.4"},"wait_ms":50000}"#;
    for _ in 0..2 {
        assert_eq!(service.post("/v1/acquire", third).await.status, 200);
    }
    let name = r#"tollgate_requests_in_flight{listener="http"}"#;
    assert_eq!(service.metric(name).await, Some(0.0));
    let waits = async {
        let mut in_flight = None;
        for _ in 0..1_000 {
            in_flight = service.metric(name).await;
            if in_flight == Some(1.0) {
                break;
            }
        }
        in_flight
    };
    // Whoever waits for units is dropped as soon as it was seen.
    tokio::select! {
        _ = service.post("/v1/acquire", third) => panic!("no units come back so soon"),
        in_flight = waits => assert_eq!(in_flight, Some(1.0)),
    }
    for _ in 0..1_000 {
        if service.metric(name).await == Some(0.0) {
            return;
        }
    }
    panic!("who went away is still in flight");
}
