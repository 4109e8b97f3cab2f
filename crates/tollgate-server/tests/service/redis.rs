//! The service on a Redis store.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tollgate_testkit::RedisServer;

use crate::support::{Service, reply};

fn config(server: &RedisServer, rules: &str) -> String {
    format!("store: {{ kind: redis, url: \"{}\", timeout: 2s }}\n{rules}", server.url())
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_two_services_share_one_budget_exactly() {
    let server = RedisServer::start().unwrap();
    let config = config(&server, "rules: [{ name: everyone, limit: 50/day }]");
    let (one, two) = (Service::start(&config).await, Service::start(&config).await);
    let spend = async |service: &Service| {
        let mut allowed = 0;
        for _ in 0..40 {
            let reply = service.post("/v1/check", r#"{"attributes":{"ip":"1.2.3.4"}}"#).await;
            assert_eq!(reply.json()["mode"], "exact");
            assert!(matches!(reply.status, 200 | 429), "{reply:?}");
            allowed += u32::from(reply.status == 200);
        }
        allowed
    };
    let (by_one, by_two) = tokio::join!(spend(&one), spend(&two));
    assert_eq!(by_one + by_two, 50, "{by_one} and {by_two}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_no_more_after_its_request_gets_the_answer() {
    let server = RedisServer::start().unwrap();
    let rules = "rules: [{ name: everyone, limit: 50/day }]";
    let service = Service::start(&config(&server, rules)).await;
    let body = br#"{"attributes":{"ip":"1.2.3.4"}}"#;
    // Over connections that would be kept alive, too.
    for (remaining, connection) in (0..50).rev().zip(["keep-alive", "close"].into_iter().cycle()) {
        let mut client = TcpStream::connect(service.http).await.unwrap();
        let head = format!(
            "POST /v1/check HTTP/1.1\r\nhost: localhost\r\nconnection: {connection}\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        client.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
        client.shutdown().await.unwrap();
        let answer = reply(&mut client).await;
        assert_eq!((answer.status, &answer.json()["remaining"]), (200, &remaining.into()));
    }
}

const POLICIES: &str = "
rules:
  - { name: guard, match: { path: /guard }, limit: 2/day, on_store_failure: closed }
  - { name: free, match: { path: /free }, limit: 2/day, on_store_failure: open }
  - { name: own, match: { path: /own }, limit: 2/day, on_store_failure: local }
";

#[tokio::test]
async fn g10_the_policies_answer_when_the_store_is_gone() {
    let mut server = RedisServer::start().unwrap();
    let service = Service::start(&config(&server, POLICIES)).await;
    let check = async |path: &str| {
        let body = format!(r#"{{"attributes":{{"path":"{path}"}}}}"#);
        service.post("/v1/check", &body).await
    };
    for path in ["/guard", "/free", "/own"] {
        let reply = check(path).await.json();
        assert_eq!((&reply["mode"], &reply["remaining"]), (&"exact".into(), &1.into()), "{path}");
    }
    server.kill().unwrap();

    let refused = check("/guard").await;
    assert_eq!(refused.status, 503);
    assert_eq!(
        refused.own_headers(),
        [("retry-after", "1"), ("content-type", "application/problem+json")]
    );
    assert_eq!(
        refused.body,
        concat!(
            r#"{"type":"about:blank","title":"Service Unavailable","status":503,"#,
            r#""detail":"the store cannot decide, and rule \"guard\" refuses requests until it can"}"#
        )
    );
    let refused = service.auth(&[("x-forwarded-uri", "/guard")]).await;
    assert_eq!((refused.status, refused.body.as_str()), (503, ""));
    assert_eq!(refused.own_headers(), [("retry-after", "1")]);

    for _ in 0..5 {
        let reply = check("/free").await;
        assert_eq!((reply.status, &reply.json()["mode"]), (200, &"open".into()));
    }
    for status in [200, 200, 429] {
        let reply = check("/own").await;
        assert_eq!((reply.status, &reply.json()["mode"]), (status, &"local".into()));
    }
    for path in ["/v1/refund", "/v1/reset"] {
        let reply = service.post(path, r#"{"attributes":{"path":"/own"}}"#).await;
        assert_eq!(reply.status, 503, "{path}");
        assert_eq!(reply.json()["detail"], "the store cannot decide", "{path}");
        assert_eq!(reply.header("retry-after"), Some("1"));
    }

    let counted = async |rule: &str, outcome: &str, mode: &str| {
        let labels = format!(r#"domain="default",rule="{rule}",outcome="{outcome}",mode="{mode}""#);
        service.metric(&format!("tollgate_decisions_total{{{labels}}}")).await
    };
    assert_eq!(counted("guard", "deny", "closed").await, Some(2.0));
    assert_eq!(counted("free", "allow", "open").await, Some(5.0));
    assert_eq!(counted("own", "allow", "local").await, Some(2.0));
    assert_eq!(counted("own", "deny", "local").await, Some(1.0));
    let mut errors = 0.0;
    for kind in ["unavailable", "timeout"] {
        let name = format!("tollgate_store_errors_total{{kind=\"{kind}\"}}");
        errors += service.metric(&name).await.unwrap();
    }
    assert_eq!(errors, 12.0);
}

#[tokio::test]
async fn a_service_starts_without_its_store_and_is_exact_once_it_is_there() {
    let mut server = RedisServer::start().unwrap();
    server.kill().unwrap();
    let service = Service::start(&config(&server, POLICIES)).await;
    let check = async || {
        service.post("/v1/check", r#"{"attributes":{"path":"/free"}}"#).await.json()["mode"].clone()
    };
    assert_eq!(check().await, "open");
    server.restart().unwrap();
    for _ in 0..200 {
        if check().await == "exact" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the store is back, and decisions are still not exact");
}

#[tokio::test]
async fn what_is_wrong_in_the_store_stays_inside() {
    let server = RedisServer::start().unwrap();
    let rules = "
rules:
  - { name: guard, key: ip, limit: 2/day, on_store_failure: closed }
";
    let service = Service::start(&config(&server, rules)).await;
    server.command(&["SET", "tollgate:default:guard:ip=1.2.3.4", "not a bucket"]).unwrap();
    for path in ["/v1/check", "/v1/peek", "/v1/refund"] {
        let reply = service.post(path, r#"{"attributes":{"ip":"1.2.3.4"}}"#).await;
        assert_eq!(reply.status, 503, "{path}");
        for secret in ["tollgate:", "1.2.3.4", "WRONGTYPE", "lua", "redis", "127.0.0.1"] {
            assert!(!reply.body.to_lowercase().contains(&secret.to_lowercase()), "{reply:?}");
        }
    }
    assert_eq!(service.metric(r#"tollgate_store_errors_total{kind="corrupt"}"#).await, Some(3.0));
}

const EXPORTS: &str = "
rules:
  - { name: exports, algorithm: concurrency, limit: 2, lease: 30s }
  - { name: tokens, limit: 1000/day }
";

#[tokio::test(flavor = "multi_thread")]
async fn leases_and_reservations_are_shared_by_all_services_of_one_store() {
    let server = RedisServer::start().unwrap();
    let config = config(&server, EXPORTS);
    let (one, two) = (Service::start(&config).await, Service::start(&config).await);
    let body = r#"{"attributes":{"account":"acme"}}"#;
    let lease = async |service: &Service| {
        let reply = service.post("/v1/acquire", body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        format!(r#"{{"lease_id":{}}}"#, reply.json()["lease_id"])
    };
    let (first, second) = (lease(&one).await, lease(&two).await);
    for service in [&one, &two] {
        let refused = service.post("/v1/acquire", body).await;
        assert_eq!((refused.status, &refused.json()["rule"]), (429, &"exports".into()));
    }
    assert_eq!(two.post("/v1/renew", &first).await.status, 200);
    assert_eq!(two.post("/v1/release", &first).await.status, 200);
    assert_eq!(one.post("/v1/renew", &first).await.status, 404);
    assert_eq!(one.post("/v1/release", &second).await.status, 200);

    let reserve = r#"{"attributes":{"account":"acme"},"cost":400}"#;
    let reserved = one.post("/v1/reserve", reserve).await.json();
    let commit = format!(r#"{{"reservation_id":{},"cost":100}}"#, reserved["reservation_id"]);
    let settled = two.post("/v1/commit", &commit).await;
    // Two acquisitions have cost a unit each.
    assert_eq!((settled.status, &settled.json()["remaining"]), (200, &898.into()));
    assert_eq!(one.post("/v1/commit", &commit).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_of_several_services_get_a_slot_as_soon_as_it_is_free() {
    let server = RedisServer::start().unwrap();
    let config = config(&server, EXPORTS);
    let (one, two) = (Service::start(&config).await, Service::start(&config).await);
    let both = r#"{"attributes":{"account":"acme"},"cost":2}"#;
    let held = one.post("/v1/acquire", both).await.json()["lease_id"].clone();
    let waiting = r#"{"attributes":{"account":"acme"},"wait_ms":60000}"#;
    let release = async {
        // A refusal in line shows that the first has begun to wait.
        let short = r#"{"attributes":{"account":"acme"},"wait_ms":20}"#;
        assert_eq!(two.post("/v1/acquire", short).await.status, 429);
        one.post("/v1/release", &format!(r#"{{"lease_id":{held}}}"#)).await
    };
    let (granted, released) = tokio::join!(two.post("/v1/acquire", waiting), release);
    assert_eq!((granted.status, released.status), (200, 200));
    assert_eq!(granted.json()["rules"][0]["remaining"], 1);
}

#[tokio::test]
async fn g10_slots_are_granted_and_released_here_while_the_store_is_gone() {
    let mut server = RedisServer::start().unwrap();
    let service = Service::start(&config(&server, EXPORTS)).await;
    server.kill().unwrap();
    let body = r#"{"attributes":{"account":"acme"},"cost":2}"#;
    for _ in 0..3 {
        let granted = service.post("/v1/acquire", body).await;
        assert_eq!((granted.status, &granted.json()["mode"]), (200, &"local".into()));
        assert_eq!(service.post("/v1/acquire", body).await.status, 429);
        let lease = format!(r#"{{"lease_id":{}}}"#, granted.json()["lease_id"]);
        assert_eq!(service.post("/v1/renew", &lease).await.status, 200);
        let released = service.post("/v1/release", &lease).await;
        assert_eq!(released.status, 200);
    }
}

#[tokio::test]
async fn a_store_that_refuses_to_write_shows_in_readiness_until_it_accepts_a_write() {
    let server = RedisServer::start().unwrap();
    let rules = "rules: [{ name: all, limit: 100/min, on_store_failure: open }]";
    let service = Service::start(&config(&server, rules)).await;
    let body = r#"{"attributes":{"path":"/"}}"#;
    assert_eq!(service.post("/v1/check", body).await.status, 200);
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).unwrap();
    assert!(service.post("/v1/check", body).await.body.contains("\"mode\":\"open\""));
    let readiness = service.admin("/readyz").await.body;
    assert!(readiness.contains("\"store_answers\":false,\"reason\":\"refused\""), "{readiness}");
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]).unwrap();
    assert!(service.post("/v1/check", body).await.body.contains("\"mode\":\"exact\""));
    assert!(service.admin("/readyz").await.body.contains("\"store_answers\":true"));
}

const LOCAL: &str = "
rules:
  - { name: own, limit: 90/min, burst: 9 }
  - { name: free, domain: shop, limit: 5/s, on_store_failure: open }
";

/// Waits until a metric has a value.
async fn wait_for(service: &Service, metric: &str, value: f64) {
    for _ in 0..300 {
        if service.metric(metric).await == Some(value) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{metric} is {:?}, not {value}", service.metric(metric).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_see_the_loss_of_the_store_and_its_return() {
    let mut server = RedisServer::start().unwrap();
    let config = format!("store: {{ kind: redis, url: \"{}\" }}\n{LOCAL}", server.url());
    let (one, two) = (Service::start(&config).await, Service::start(&config).await);
    wait_for(&one, "tollgate_nodes", 2.0).await;
    let check = async || one.post("/v1/check", r#"{"attributes":{"path":"/"}}"#).await;
    assert_eq!(check().await.json()["mode"], "exact");
    let status = one.admin("/v1/status").await.json();
    assert_eq!(status["nodes"], serde_json::json!({"counted": 2, "known": true}));
    assert_eq!(
        (&status["store"]["breaker"], &status["store"]["answers"]),
        (&"closed".into(), &true.into())
    );
    assert!(status["store"]["answered_ms_ago"].as_u64().unwrap() < 5_000);
    assert_eq!(
        status["rules"][0],
        serde_json::json!({
            "domain": "default", "rule": "own", "mode": "exact", "on_store_failure": "local",
            "limit": "90/min", "burst": 9, "local_limit": "90/2min", "local_burst": 4,
        })
    );
    assert_eq!(
        status["rules"][1],
        serde_json::json!({
            "domain": "shop", "rule": "free", "mode": "exact", "on_store_failure": "open",
            "limit": "5/s", "burst": 5,
        })
    );

    server.kill().unwrap();
    for _ in 0..10 {
        check().await;
    }
    let status = one.admin("/v1/status").await.json();
    assert_eq!(
        (&status["store"]["breaker"], &status["store"]["failure"]),
        (&"open".into(), &"unavailable".into())
    );
    assert_eq!(
        (&status["rules"][0]["mode"], &status["rules"][1]["mode"]),
        (&"local".into(), &"open".into())
    );
    assert_eq!(status["local"]["debts"], 1);
    let told: Vec<_> =
        status["changes"].as_array().unwrap().iter().map(|one| &one["change"]).collect();
    assert!(told.ends_with(&[&"fails".into(), &"breaker_opened".into()]), "{told:?}");
    let ready = one.admin("/readyz").await;
    assert_eq!(ready.status, 200);
    assert!(ready.body.contains(r#""store_answers":false,"reason":"unavailable""#), "{ready:?}");
    for (name, value) in [
        ("tollgate_breaker_open", 1.0),
        ("tollgate_breaker_openings_total", 1.0),
        ("tollgate_store_failing", 1.0),
        ("tollgate_local_debts", 1.0),
        ("tollgate_redis_connections", 0.0),
        (r#"tollgate_local_burst{domain="default",rule="own"}"#, 4.0),
        (r#"tollgate_local_rate{domain="default",rule="own"}"#, 0.75),
        (r#"tollgate_rule_mode{domain="default",rule="own",mode="local"}"#, 1.0),
        (r#"tollgate_rule_mode{domain="default",rule="own",mode="exact"}"#, 0.0),
        (r#"tollgate_rule_mode{domain="shop",rule="free",mode="open"}"#, 1.0),
    ] {
        assert_eq!(one.metric(name).await, Some(value), "{name}");
    }

    server.restart().unwrap();
    wait_for(&one, "tollgate_breaker_open", 0.0).await;
    wait_for(&one, "tollgate_local_debts", 0.0).await;
    assert_eq!(check().await.json()["mode"], "exact");
    // A share of a burst of 4 was spent here, and gains a unit in 1.3 s.
    let charged = one.metric("tollgate_local_debts_charged_total").await.unwrap();
    assert!((1.0..=4.0).contains(&charged), "{charged}");
    assert_eq!(one.metric("tollgate_redis_reconnects_total").await, Some(1.0));
    assert_eq!(one.admin("/v1/status").await.json()["rules"][0]["mode"], "exact");
    drop(two);
}

#[tokio::test]
async fn the_status_of_a_service_in_memory_tells_of_no_redis() {
    let service = Service::start(LOCAL).await;
    let status = service.admin("/v1/status").await.json();
    assert_eq!(status["store"]["kind"], "memory");
    assert_eq!((status["store"].get("redis"), &status["store"]["answers"]), (None, &true.into()));
    assert_eq!(status["nodes"], serde_json::json!({"counted": 1, "known": false}));
}

/// The names in a JSON value, those of nested ones after a dot; the items of a list count as one.
fn names(value: &serde_json::Value, within: &str, found: &mut std::collections::BTreeSet<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                let name = format!("{within}.{name}");
                names(value, &name, found);
                found.insert(name);
            }
        }
        serde_json::Value::Array(items) => {
            items.iter().for_each(|item| names(item, within, found));
        }
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_status_has_the_fields_of_a_real_one() {
    let documentation = include_str!("../../../../docs/http-api.md");
    let (_, section) = documentation.split_once("## GET /v1/status").unwrap();
    let (_, block) = section.split_once("```json\n").unwrap();
    let documented = serde_json::from_str(block.split_once("```").unwrap().0).unwrap();

    let mut server = RedisServer::start().unwrap();
    let config = format!(
        "store: {{ kind: redis, url: \"{}\" }}\nrules: [{{ name: all, limit: 9/min }}]",
        server.url()
    );
    let service = Service::start(&config).await;
    wait_for(&service, "tollgate_nodes", 1.0).await;
    server.kill().unwrap();
    for _ in 0..10 {
        service.post("/v1/check", r#"{"attributes":{"path":"/"}}"#).await;
    }
    let [mut told, mut real] = [const { std::collections::BTreeSet::new() }; 2];
    names(&documented, "", &mut told);
    names(&service.admin("/v1/status").await.json(), "", &mut real);
    // Whether the node had announced itself by then is left to chance.
    for set in [&mut told, &mut real] {
        set.remove(".changes.nodes");
    }
    assert_eq!(told, real);
}
