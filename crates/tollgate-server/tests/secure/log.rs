//! What is logged of callers, and what is not.

use std::io;
use std::sync::{Arc, Mutex};

use tollgate_envoy::proto::rate_limit_descriptor::Entry;
use tollgate_envoy::proto::rate_limit_service_client::RateLimitServiceClient;
use tollgate_envoy::proto::{RateLimitDescriptor, RateLimitRequest};
use tonic::transport::{Channel, Endpoint};
use tracing::Level;

use crate::support::{Service, request};

const RULES: &str = "rules: [{ name: per-account, key: account, limit: 2/day }]";

/// Collects what is logged.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Takes every line that this thread logs, until the guard is dropped.
    pub(crate) fn listen(&self) -> tracing::subscriber::DefaultGuard {
        let writer = self.clone();
        let lines = tracing_subscriber::fmt()
            .with_max_level(Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::set_default(lines)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn envoy(service: &Service) -> RateLimitServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", service.grpc)).unwrap();
    RateLimitServiceClient::new(endpoint.connect().await.unwrap())
}

/// A request of Envoy with one descriptor of one entry.
fn descriptor(key: &str, value: &str) -> RateLimitRequest {
    let entry = Entry { key: key.to_owned(), value: value.to_owned() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
    RateLimitRequest {
        domain: "default".to_owned(),
        descriptors: vec![descriptor],
        ..RateLimitRequest::default()
    }
}

#[tokio::test]
async fn values_of_callers_are_not_logged_even_when_they_are_denied_or_wrong() {
    let log = Log::default();
    // All tasks of this runtime run on this thread.
    let _guard = log.listen();
    // Nobody answers at the discard port, so that the policies of the rules decide.
    let config = format!("store: {{ kind: redis, url: \"redis://127.0.0.1:9\" }}\n{RULES}");
    let service = Service::start(&config).await;
    for _ in 0..4 {
        service.post("/v1/check", r#"{"attributes":{"account":"of-a-caller"}}"#).await;
    }
    service.post("/v1/check", r#"{"attributes":{"account":"of-a-caller","x":1}}"#).await;
    service.post("/v1/refund", r#"{"attributes":{"account":"of-a-caller"}}"#).await;
    let headers =
        [("x-forwarded-uri", &b"/of-a-caller?of-a-caller"[..]), ("x-account", b"of-a-caller")];
    request(service.http, "GET", "/v1/auth", &headers, b"").await;
    request(service.admin, "GET", "/of-a-caller", &[], b"").await;
    service.stopped().await;
    let logged = log.text();
    assert!(logged.contains("stopped"), "{logged}");
    assert!(!logged.contains("of-a-caller"), "{logged}");
}

#[tokio::test]
async fn denials_of_a_rule_are_one_line_with_hashes_unless_keys_are_asked_for() {
    for (keys, shown) in [("", false), ("log: { keys: plain }\n", true)] {
        let log = Log::default();
        let _guard = log.listen();
        let rules = "rules: [{ name: per-account, key: account, limit: 1/hour }]";
        let service = Service::start(&format!("{keys}{rules}")).await;
        let endpoint = Endpoint::from_shared(format!("http://{}", service.grpc)).unwrap();
        let mut grpc = RateLimitServiceClient::new(endpoint.connect().await.unwrap());
        for (account, count) in [("heavy", 30), ("light", 3)] {
            let body = format!(r#"{{"attributes":{{"account":"{account}"}}}}"#);
            for _ in 0..count {
                service.post("/v1/check", &body).await;
            }
            service.auth(&[("x-tollgate-account", account)]).await;
            let entry = Entry { key: "account".to_owned(), value: account.to_owned() };
            let descriptor =
                RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
            let request = RateLimitRequest {
                domain: "default".to_owned(),
                descriptors: vec![descriptor],
                ..RateLimitRequest::default()
            };
            grpc.should_rate_limit(request).await.unwrap();
        }
        service.stopped().await;
        let logged = log.text();
        let lines: Vec<_> = logged.lines().filter(|line| line.contains("denied")).collect();
        let denied = lines.iter().map(|line| {
            let count = line.split_once("denied=").unwrap().1;
            count.split(' ').next().unwrap().parse::<u64>().unwrap()
        });
        assert_eq!(denied.sum::<u64>(), 29 + 2 + 2 + 2, "{logged}");
        assert!(lines.len() <= 3, "{logged}");
        assert!(lines.iter().all(|line| line.contains(" WARN ")), "{logged}");
        assert_eq!(logged.contains("account=heavy ("), shown, "{logged}");
        assert_eq!(logged.contains("heavy"), shown, "{logged}");
        assert_eq!(logged.contains("heaviest=#"), !shown, "{logged}");
    }
}

/// Sums up what the lines of a rule say in this field.
fn logged(log: &Log, rule: &str, field: &str) -> u64 {
    let (text, rule, field) = (log.text(), format!("rule=\"{rule}\""), format!(" {field}="));
    let lines = text.lines().filter(|line| line.contains(&rule) && line.contains(" WARN "));
    let counts = lines.filter_map(|line| line.split_once(&field)?.1.split(' ').next());
    counts.map(|count| count.parse::<u64>().unwrap()).sum()
}

#[tokio::test]
async fn each_kind_of_refusal_is_counted_under_a_name_of_its_own() {
    let log = Log::default();
    let _guard = log.listen();
    let rules = "log: { keys: plain }
rules:
  - { name: real, match: { path: /real }, key: [path], limit: 1/hour }
  - { name: trial, match: { path: /trial }, key: [path], limit: 1/hour, shadow: true }
  - { name: queue, match: { path: /queue }, key: [path], limit: 1/min, burst: 10, algorithm: leaky_bucket }
";
    let service = Service::start(rules).await;
    let mut envoy = envoy(&service).await;
    for path in ["/real", "/trial", "/queue"] {
        let body = format!(r#"{{"attributes":{{"path":"{path}"}}}}"#);
        service.post("/v1/check", &body).await;
        for _ in 0..2 {
            service.post("/v1/check", &body).await;
            envoy.should_rate_limit(descriptor("path", path)).await.unwrap();
        }
    }
    for _ in 0..3 {
        let body = r#"{"attributes":{"path":"/queue"},"wait_ms":10}"#;
        assert_eq!(service.post("/v1/acquire", body).await.status, 429);
    }
    service.stopped().await;
    let kinds = ["denied", "shadow_denied", "wait_refused", "unavailable"];
    for (rule, expected) in
        [("real", [4, 0, 0, 0]), ("trial", [0, 4, 0, 0]), ("queue", [0, 0, 3, 0])]
    {
        assert_eq!(kinds.map(|kind| logged(&log, rule, kind)), expected, "{rule}: {}", log.text());
    }
    let text = log.text();
    assert!(text.contains("requests that a shadow rule would deny"), "{text}");
    assert!(text.contains("heaviest=path=/trial ("), "{text}");
}

#[tokio::test]
async fn g10_refusals_of_closed_rules_are_counted_while_the_store_does_not_answer() {
    let log = Log::default();
    let _guard = log.listen();
    // Nobody answers at the discard port.
    let config = "log: { keys: plain }
store: { kind: redis, url: \"redis://127.0.0.1:9\" }
rules:
  - { name: guard, match: { path: /guard }, key: [path], limit: 1/hour, on_store_failure: closed }
";
    let service = Service::start(config).await;
    let mut envoy = envoy(&service).await;
    let body = r#"{"attributes":{"path":"/guard"}}"#;
    for call in ["/v1/check", "/v1/acquire", "/v1/reserve"] {
        assert_eq!(service.post(call, body).await.status, 503, "{call}");
    }
    assert_eq!(service.auth(&[("x-forwarded-uri", "/guard")]).await.status, 503);
    envoy.should_rate_limit(descriptor("path", "/guard")).await.unwrap();
    // What decides nothing refuses nobody.
    assert_eq!(service.post("/v1/refund", body).await.status, 503);
    service.stopped().await;
    let kinds = ["denied", "shadow_denied", "wait_refused", "unavailable"];
    let counted = kinds.map(|kind| logged(&log, "guard", kind));
    assert_eq!(counted, [0, 0, 0, 5], "{}", log.text());
    assert!(log.text().contains("heaviest=path=/guard ("), "{}", log.text());
}
