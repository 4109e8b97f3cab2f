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
        for path in ["/v1/check", "/v1/peek", "/v1/refund", "/v1/reset"] {
            let reply = service.post(path, body).await;
            assert_problem(&reply, 400, "Bad Request", *field, detail);
            assert_eq!(remaining(&service).await, 2, "{path} {body}");
        }
    }
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
    for path in ["/v1/check", "/v1/peek", "/v1/refund", "/v1/reset"] {
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
        let detail = "no such path: there are POST /v1/check, /v1/peek, /v1/refund and /v1/reset, \
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
