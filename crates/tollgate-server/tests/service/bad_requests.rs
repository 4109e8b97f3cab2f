//! What is refused, with which words, and without a trace.

use tollgate::ManualClock;

use crate::support::{Reply, Service, request};

const RULES: &str = "rules: [{ name: everyone, limit: 3/min }]";

async fn remaining(service: &Service) -> serde_json::Value {
    service.post("/v1/peek", r#"{"attributes":{"ip":"1.2.3.4"}}"#).await.json()["remaining"].clone()
}

#[track_caller]
fn assert_problem(reply: &Reply, status: u16, title: &str, field: Option<&str>, detail: &str) {
    let field = field.map_or(String::new(), |field| format!(",\"field\":{field:?}"));
    assert_eq!(
        reply.body,
        format!(
            "{{\"type\":\"about:blank\",\"title\":{title:?},\"status\":{status},\
             \"detail\":{}{field}}}",
            serde_json::to_string(detail).unwrap()
        )
    );
    assert_eq!(reply.status, status);
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
}

/// Bodies, the field at fault and the words for it. All of them are answered with 400.
const BODIES: &[(&str, Option<&str>, &str)] = &[
    ("", None, r#"the body is empty: send JSON such as {"attributes":{"ip":"203.0.113.7"}}"#),
    (" \n", None, r#"the body is empty: send JSON such as {"attributes":{"ip":"203.0.113.7"}}"#),
    ("ip=1.2.3.4", None, "the body is not valid JSON: expected value at line 1 column 1"),
    (
        "{\"attributes\":\n  {\"ip\" \"1.2.3.4\"}}",
        None,
        "the body is not valid JSON: expected `:` at line 2 column 9",
    ),
    (
        r#"{"attributes":{"ip":"1.2.3.4"}"#,
        None,
        "the body is not valid JSON: EOF while parsing an object at line 1 column 30",
    ),
    (
        r#"{"attributes":{"ip":"1.2.3.4"}} x"#,
        None,
        "the body is not valid JSON: trailing characters at line 1 column 33",
    ),
    (
        r#"{"attributes":{"ip":"1.2.3.4",}}"#,
        None,
        "the body is not valid JSON: key must be a string at line 1 column 31",
    ),
    ("[]", None, r#"the body must be a JSON object such as {"attributes":{"ip":"203.0.113.7"}}"#),
    ("7", None, r#"the body must be a JSON object such as {"attributes":{"ip":"203.0.113.7"}}"#),
    (
        "{}",
        Some("attributes"),
        r#"attributes is missing: send JSON such as {"attributes":{"ip":"203.0.113.7"}}"#,
    ),
    (
        r#"{"attributes":{"ip":"1.2.3.4"},"hits":1}"#,
        Some("hits"),
        "unknown field \"hits\": the fields are attributes, cost, domain",
    ),
    (
        r#"{"attributes":{"ip":"1.2.3.4"},"Cost":1}"#,
        Some("Cost"),
        "unknown field \"Cost\": the fields are attributes, cost, domain",
    ),
    (
        r#"{"attributes":{}}"#,
        Some("attributes"),
        "attributes is empty: name at least one attribute of the request",
    ),
    (
        r#"{"attributes":null}"#,
        Some("attributes"),
        "attributes must be an object of strings, not null",
    ),
    (
        r#"{"attributes":[["ip","1.2.3.4"]]}"#,
        Some("attributes"),
        "attributes must be an object of strings, not an array",
    ),
    (
        r#"{"attributes":"ip"}"#,
        Some("attributes"),
        "attributes must be an object of strings, not a string",
    ),
    (
        r#"{"attributes":{"":"1.2.3.4"}}"#,
        Some("attributes"),
        "attribute name must be 1 to 64 letters, digits, '_', '-' or '.', not \"\"",
    ),
    (
        r#"{"attributes":{"client ip":"1.2.3.4"}}"#,
        Some("attributes.client ip"),
        "attribute name must be 1 to 64 letters, digits, '_', '-' or '.', not \"client ip\"",
    ),
    (
        r#"{"attributes":{"aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffggggg":"x"}}"#,
        Some("attributes.aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg..."),
        "attribute name must be 1 to 64 letters, digits, '_', '-' or '.', not \
         \"aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg...\"",
    ),
    (
        r#"{"attributes":{"ip":""}}"#,
        Some("attributes.ip"),
        "attribute \"ip\" is empty: leave out what the request does not have",
    ),
    (
        r#"{"attributes":{"port":8080}}"#,
        Some("attributes.port"),
        "attribute \"port\" must be a string, not a number: write \"8080\"",
    ),
    (
        r#"{"attributes":{"beta":true}}"#,
        Some("attributes.beta"),
        "attribute \"beta\" must be a string, not a boolean: write \"true\"",
    ),
    (
        r#"{"attributes":{"account":null}}"#,
        Some("attributes.account"),
        "attribute \"account\" must be a string, not null: leave out what the request does not \
         have",
    ),
    (
        r#"{"attributes":{"ip":["1.2.3.4"]}}"#,
        Some("attributes.ip"),
        "attribute \"ip\" must be a string, not an array: leave out what the request does not have",
    ),
    (
        r#"{"attributes":{"ip":"1.2.3.4","ip":"5.6.7.8"}}"#,
        Some("attributes.ip"),
        "attribute \"ip\" is given twice: give it once",
    ),
    (
        r#"{"attributes":{"ip":"1.2.3.4"},"attributes":{"ip":"1.2.3.4"}}"#,
        Some("attributes"),
        "attributes is given twice: give it once",
    ),
    (
        r#"{"cost":1,"attributes":{"ip":"1.2.3.4"},"cost":1}"#,
        Some("cost"),
        "cost is given twice: give it once",
    ),
    (
        r#"{"attributes":{"ip":"1.2.3.4"},"cost":-1}"#,
        Some("cost"),
        "cost must be a whole number from 0 to 18446744073709551615, not -1",
    ),
    (
        r#"{"attributes":{"ip":"1.2.3.4"},"cost":1.0}"#,
        Some("cost"),
        "cost must be a whole number from 0 to 18446744073709551615, not 1.0",
    ),
    (
        r#"{"attributes":{"ip":"1.2.3.4"},"cost":1e3}"#,
        Some("cost"),
        "cost must be a whole number from 0 to 18446744073709551615, not 1e3",
    ),
    (
        r#"{"attributes":{"ip":"1.2.3.4"},"cost":1e999}"#,
        Some("cost"),
        "cost must be a whole number from 0 to 18446744073709551615, not 1e999",
    ),
    (
        r#"{"attributes":{"ip":"1.2.3.4"},"cost":18446744073709551616}"#,
        Some("cost"),
        "cost must be a whole number from 0 to 18446744073709551615, not 18446744073709551616",
    ),
    (
        r#"{"attributes":{"ip":"1.2.3.4"},"cost":"1"}"#,
        Some("cost"),
        "cost must be a whole number from 0 to 18446744073709551615, not a string",
    ),
    (
        r#"{"attributes":{"ip":"1.2.3.4"},"cost":null}"#,
        Some("cost"),
        "cost must be a whole number from 0 to 18446744073709551615, not null",
    ),
    (
        r#"{"attributes":{"ip":"1.2.3.4"},"domain":7}"#,
        Some("domain"),
        "domain must be a string, not a number",
    ),
    (
        r#"{"attributes":{"ip":"1.2.3.4"},"domain":"a:b"}"#,
        Some("domain"),
        "domain must be 1 to 64 letters, digits, '_', '-' or '.', not \"a:b\"",
    ),
    (
        r#"{"attributes":{"ip":"1.2.3.4"},"domain":""}"#,
        Some("domain"),
        "domain must be 1 to 64 letters, digits, '_', '-' or '.', not \"\"",
    ),
];

#[tokio::test]
async fn g3_every_bad_body_is_refused_by_name_and_changes_nothing() {
    let service = Service::start_with_clock(RULES, &ManualClock::new()).await;
    service.post("/v1/check", r#"{"attributes":{"ip":"1.2.3.4"}}"#).await;
    for (body, field, detail) in BODIES {
        for path in
            ["/v1/check", "/v1/peek", "/v1/refund", "/v1/reset", "/v1/acquire", "/v1/reserve"]
        {
            let reply = service.post(path, body).await;
            let fields = match path {
                "/v1/refund" => "attributes, cost, domain, id",
                "/v1/acquire" => "attributes, cost, domain, wait_ms",
                "/v1/reserve" => "attributes, cost, domain, ttl_ms",
                _ => "attributes, cost, domain",
            };
            let detail = detail
                .replace("fields are attributes, cost, domain", &format!("fields are {fields}"));
            assert_problem(&reply, 400, "Bad Request", *field, &detail);
            assert_eq!(remaining(&service).await, 2, "{path} {body}");
        }
    }
}

const LEASE: &str = "lease_id is missing: send JSON such as {\"lease_id\":\"...\"} with what \
                     /v1/acquire answered";

/// Calls with fields of their own, the field at fault and the words for it.
const CALLS: &[(&str, &str, Option<&str>, &str)] = &[
    (
        "/v1/acquire",
        r#"{"attributes":{"ip":"1.2.3.4"},"wait_ms":60001}"#,
        Some("wait_ms"),
        "wait_ms must be a whole number from 0 to 60000, not 60001",
    ),
    (
        "/v1/acquire",
        r#"{"attributes":{"ip":"1.2.3.4"},"wait_ms":"5s"}"#,
        Some("wait_ms"),
        "wait_ms must be a whole number from 0 to 60000, not a string",
    ),
    (
        "/v1/acquire",
        r#"{"attributes":{"ip":"1.2.3.4"},"wait_ms":-1}"#,
        Some("wait_ms"),
        "wait_ms must be a whole number from 0 to 60000, not -1",
    ),
    (
        "/v1/check",
        r#"{"attributes":{"ip":"1.2.3.4"},"wait_ms":5}"#,
        Some("wait_ms"),
        "unknown field \"wait_ms\": the fields are attributes, cost, domain",
    ),
    (
        "/v1/reserve",
        r#"{"attributes":{"ip":"1.2.3.4"},"ttl_ms":999}"#,
        Some("ttl_ms"),
        "ttl_ms must be a whole number from 1000 to 86400000, not 999",
    ),
    (
        "/v1/reserve",
        r#"{"attributes":{"ip":"1.2.3.4"},"ttl_ms":86400001}"#,
        Some("ttl_ms"),
        "ttl_ms must be a whole number from 1000 to 86400000, not 86400001",
    ),
    (
        "/v1/refund",
        r#"{"attributes":{"ip":"1.2.3.4"},"id":""}"#,
        Some("id"),
        "id must have 1 to 256 bytes, not 0",
    ),
    (
        "/v1/refund",
        r#"{"attributes":{"ip":"1.2.3.4"},"id":66}"#,
        Some("id"),
        "id must be a string, not a number",
    ),
    (
        "/v1/renew",
        "",
        None,
        "the body is empty: send JSON such as {\"lease_id\":\"...\"} with what /v1/acquire answered",
    ),
    ("/v1/renew", "{}", Some("lease_id"), LEASE),
    ("/v1/release", "{}", Some("lease_id"), LEASE),
    (
        "/v1/release",
        r#"{"attributes":{"ip":"1.2.3.4"}}"#,
        Some("attributes"),
        "unknown field \"attributes\": the only field is lease_id",
    ),
    ("/v1/renew", r#"{"lease_id":null}"#, Some("lease_id"), "lease_id must be a string, not null"),
    (
        "/v1/renew",
        r#"{"lease_id":"x"}"#,
        Some("lease_id"),
        "lease_id is not an id that was handed out: pass it back as it was received",
    ),
    (
        "/v1/release",
        r#"{"lease_id":"0123456789abcdef0123456789abcdef"}"#,
        Some("lease_id"),
        "lease_id is not an id that was handed out: pass it back as it was received",
    ),
    (
        "/v1/renew",
        r#"{"lease_id":"\ud800"}"#,
        Some("lease_id"),
        "lease_id has half of a surrogate pair: a character above U+FFFF needs both halves",
    ),
    (
        "/v1/commit",
        r#"{"cost":5}"#,
        Some("reservation_id"),
        "reservation_id is missing: send JSON such as {\"reservation_id\":\"...\",\"cost\":5} with \
         what /v1/reserve answered and the real cost",
    ),
    (
        "/v1/commit",
        r#"{"reservation_id":"x","cost":5}"#,
        Some("reservation_id"),
        "reservation_id is not an id that was handed out: pass it back as it was received",
    ),
    (
        "/v1/cancel",
        r#"{"reservation_id":"x"}"#,
        Some("reservation_id"),
        "reservation_id is not an id that was handed out: pass it back as it was received",
    ),
    (
        "/v1/cancel",
        r#"{"reservation_id":"x","cost":5}"#,
        Some("cost"),
        "unknown field \"cost\": the only field is reservation_id",
    ),
];

#[tokio::test]
async fn every_call_names_what_is_wrong_with_its_own_fields() {
    let service = Service::start_with_clock(RULES, &ManualClock::new()).await;
    for (path, body, field, detail) in CALLS {
        let reply = service.post(path, body).await;
        assert_problem(&reply, 400, "Bad Request", *field, detail);
    }
    let long = format!(r#"{{"attributes":{{"ip":"1.2.3.4"}},"id":"{}"}}"#, "x".repeat(257));
    let reply = service.post("/v1/refund", &long).await;
    assert_problem(&reply, 400, "Bad Request", Some("id"), "id must have 1 to 256 bytes, not 257");
    assert_eq!(remaining(&service).await, 3);
}

#[tokio::test]
async fn an_id_under_which_nothing_is_held_is_404() {
    let service = Service::start_with_clock(RULES, &ManualClock::new()).await;
    let other = "rules: [{ name: other, limit: 3/day }]";
    let other = Service::start_with_clock(other, &ManualClock::new()).await;
    let body = r#"{"attributes":{"ip":"1.2.3.4"}}"#;
    let reserved = service.post("/v1/reserve", body).await.json()["reservation_id"].clone();
    let cancel = format!(r#"{{"reservation_id":{reserved}}}"#);
    assert_eq!(service.post("/v1/cancel", &cancel).await.status, 200);
    // It was cancelled; and the rule of the other is not in force here.
    let of_other = other.post("/v1/reserve", body).await.json()["reservation_id"].clone();
    let detail = "nothing is held under this id: it was given back, or it ended";
    for id in [reserved, of_other] {
        let commit = format!(r#"{{"reservation_id":{id},"cost":5}}"#);
        let reply = service.post("/v1/commit", &commit).await;
        assert_problem(&reply, 404, "Not Found", Some("reservation_id"), detail);
        let cancel = format!(r#"{{"reservation_id":{id}}}"#);
        let reply = service.post("/v1/cancel", &cancel).await;
        assert_problem(&reply, 404, "Not Found", Some("reservation_id"), detail);
        assert_eq!(remaining(&service).await, 3);
    }
}

#[tokio::test]
async fn ids_of_another_kind_changed_ids_and_ids_without_a_cost_are_refused() {
    let rules = "rules: [{ name: all, limit: 3/day }, \
                 { name: slots, limit: 3, algorithm: concurrency }]";
    let service = Service::start_with_clock(rules, &ManualClock::new()).await;
    let body = r#"{"attributes":{"ip":"1.2.3.4"}}"#;
    let reserved = service.post("/v1/reserve", body).await.json();
    let reserved = reserved["reservation_id"].as_str().unwrap();
    let acquired = service.post("/v1/acquire", body).await.json();
    let acquired = acquired["lease_id"].as_str().unwrap();
    let missing = "cost is missing: send JSON such as {\"reservation_id\":\"...\",\"cost\":5} with \
                   what /v1/reserve answered and the real cost";
    let reply = service.post("/v1/commit", &format!(r#"{{"reservation_id":"{reserved}"}}"#)).await;
    assert_problem(&reply, 400, "Bad Request", Some("cost"), missing);
    for path in ["/v1/renew", "/v1/release"] {
        let reply = service.post(path, &format!(r#"{{"lease_id":"{reserved}"}}"#)).await;
        let detail = "lease_id is the id of a reservation: commit or cancel it";
        assert_problem(&reply, 400, "Bad Request", Some("lease_id"), detail);
        let changed = acquired.to_uppercase();
        let reply = service.post(path, &format!(r#"{{"lease_id":"{changed}"}}"#)).await;
        let detail = "lease_id is not an id that was handed out: pass it back as it was received";
        assert_problem(&reply, 400, "Bad Request", Some("lease_id"), detail);
    }
    let reply = service.post("/v1/cancel", &format!(r#"{{"reservation_id":"{acquired}"}}"#)).await;
    let detail = "reservation_id is the id of a lease: renew or release it";
    assert_problem(&reply, 400, "Bad Request", Some("reservation_id"), detail);
}

#[tokio::test]
async fn attributes_that_an_id_has_no_room_for_are_refused_before_anything_is_spent() {
    let service = Service::start_with_clock(RULES, &ManualClock::new()).await;
    let held = |len| format!(r#"{{"attributes":{{"ip":"{}"}}}}"#, "x".repeat(len));
    let detail = "the attributes take 8193 bytes: a request that holds something may have 8192, so \
                  leave out or shorten what no rule looks at";
    for path in ["/v1/acquire", "/v1/reserve"] {
        let reply = service.post(path, &held(8_192 - 9)).await;
        assert_problem(&reply, 400, "Bad Request", Some("attributes"), detail);
    }
    assert_eq!(remaining(&service).await, 3);
    let reserved = service.post("/v1/reserve", &held(8_192 - 10)).await.json();
    let cancel = format!(r#"{{"reservation_id":{}}}"#, reserved["reservation_id"]);
    assert_eq!(service.post("/v1/cancel", &cancel).await.status, 200);
    assert_eq!(remaining(&service).await, 3);
}

#[tokio::test]
async fn an_attribute_that_does_not_tell_the_cost_is_400_and_named() {
    let rules = "rules: [{ name: upload, limit: 500/min, cost: { attribute: bytes } }]";
    let service = Service::start_with_clock(rules, &ManualClock::new()).await;
    for path in ["/v1/check", "/v1/peek", "/v1/acquire", "/v1/reserve", "/v1/refund"] {
        let reply = service.post(path, r#"{"attributes":{"bytes":"1.5"}}"#).await;
        let detail = "attribute \"bytes\" tells the cost and must be a whole number, not \"1.5\"";
        assert_problem(&reply, 400, "Bad Request", Some("attributes.bytes"), detail);
    }
    let reply = service.auth(&[("x-tollgate-bytes", "many")]).await;
    assert_eq!((reply.status, reply.body.as_str()), (400, ""));
    assert_eq!(remaining(&service).await, 500);
}

#[tokio::test]
async fn a_body_that_is_not_utf_8_is_refused() {
    let service = Service::start_with_clock(RULES, &ManualClock::new()).await;
    let body = b"{\"attributes\":{\"ip\":\"\xff\"}}";
    let reply = request(service.http, "POST", "/v1/check", &[], body).await;
    assert_problem(&reply, 400, "Bad Request", None, "the body is not UTF-8 after byte 21");
    assert_eq!(remaining(&service).await, 3);
}

#[tokio::test]
async fn a_cost_that_can_never_succeed_is_422() {
    let service = Service::start_with_clock(RULES, &ManualClock::new()).await;
    for path in ["/v1/check", "/v1/peek"] {
        for cost in ["4", "18446744073709551615"] {
            let body = format!(r#"{{"attributes":{{"ip":"1.2.3.4"}},"cost":{cost}}}"#);
            let reply = service.post(path, &body).await;
            let detail = format!(
                "cost {cost} can never succeed: rule \"everyone\" admits at most 3 at once"
            );
            assert_problem(&reply, 422, "Unprocessable Entity", Some("cost"), &detail);
        }
    }
    assert_eq!(remaining(&service).await, 3);
}

#[tokio::test]
async fn a_body_over_64_kib_is_413_whether_announced_or_not() {
    let service = Service::start_with_clock(RULES, &ManualClock::new()).await;
    let value = |len: usize| {
        let frame = r#"{"attributes":{"ip":""}}"#.len();
        format!(r#"{{"attributes":{{"ip":"{}"}}}}"#, "x".repeat(len - frame))
    };
    let most = value(65_536);
    assert_eq!(service.post("/v1/check", &most).await.status, 200);

    let announced =
        request(service.http, "POST", "/v1/check", &[("content-length", b"65537")], b"").await;
    let detail = "the body is larger than 65536 bytes";
    assert_problem(&announced, 413, "Payload Too Large", None, detail);

    let chunked = format!("10001\r\n{}\r\n0\r\n\r\n", value(65_537));
    let mut connection = tokio::net::TcpStream::connect(service.http).await.unwrap();
    let chunks: [(&str, &[u8]); 1] = [("transfer-encoding", b"chunked")];
    let head = crate::support::head("POST", "/v1/check", &chunks, 0);
    tokio::io::AsyncWriteExt::write_all(&mut connection, &head).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut connection, chunked.as_bytes()).await.unwrap();
    let reply = crate::support::reply(&mut connection).await;
    assert_problem(&reply, 413, "Payload Too Large", None, detail);
    assert_eq!(remaining(&service).await, 2);
}

#[tokio::test]
async fn another_method_is_405_and_says_which_one_is_taken() {
    let service = Service::start_with_clock(RULES, &ManualClock::new()).await;
    for path in [
        "/v1/check",
        "/v1/peek",
        "/v1/acquire",
        "/v1/renew",
        "/v1/release",
        "/v1/reserve",
        "/v1/commit",
        "/v1/cancel",
        "/v1/refund",
        "/v1/reset",
    ] {
        for method in ["GET", "PUT", "DELETE"] {
            let reply = request(service.http, method, path, &[], b"").await;
            let detail = format!("{path} takes POST, not {method}");
            assert_problem(&reply, 405, "Method Not Allowed", None, &detail);
            assert_eq!(reply.header("allow"), Some("POST"));
        }
    }
}

#[tokio::test]
async fn an_unknown_path_is_404_and_lists_those_that_there_are() {
    let service = Service::start_with_clock(RULES, &ManualClock::new()).await;
    for path in ["/", "/v1/check/", "/v2/check", "/metrics"] {
        let reply = service.post(path, "{}").await;
        let detail = "no such path: there are POST /v1/check, /v1/peek, /v1/acquire, /v1/renew, \
                      /v1/release, /v1/reserve, /v1/commit, /v1/cancel, /v1/refund and /v1/reset, \
                      and /v1/auth; /healthz, /readyz and /metrics are on the admin address";
        assert_problem(&reply, 404, "Not Found", None, detail);
    }
}

#[tokio::test]
async fn more_rules_than_one_request_can_be_charged_to_is_an_error_of_the_service() {
    let rules: Vec<_> =
        (0..65).map(|index| format!("  - {{ name: rule-{index}, limit: 3/min }}\n")).collect();
    let rules = format!("rules:\n{}", rules.concat());
    let service = Service::start_with_clock(&rules, &ManualClock::new()).await;
    let reply = service.post("/v1/check", r#"{"attributes":{"ip":"1.2.3.4"}}"#).await;
    let detail = "more rules apply to this request than one request can be charged to, which is 64";
    assert_problem(&reply, 500, "Internal Server Error", None, detail);
}
