//! `/v1/auth`.

use tollgate::ManualClock;

use crate::support::{Service, request};

/// Returns a configuration with one rule that has one unit for each value of the attribute.
fn one_for_each(attribute: &str) -> String {
    format!("rules: [{{ name: one, key: {attribute}, limit: 1/hour }}]")
}

#[tokio::test]
async fn answers_are_headers_only() {
    let rules = "rules: [{ name: login, match: { path: /login, method: POST }, limit: 1/min }]";
    let service = Service::start_with_clock(rules, &ManualClock::new()).await;
    let login = [("x-forwarded-method", "POST"), ("x-forwarded-uri", "/login?next=/")];

    let allowed = service.auth(&login).await;
    assert_eq!((allowed.status, allowed.body.as_str()), (200, ""));
    assert_eq!(
        allowed.own_headers(),
        [
            ("x-ratelimit-limit", "1"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "60"),
            ("ratelimit-policy", r#""login";q=1;w=60"#),
            ("ratelimit", r#""login";r=0;t=60"#),
        ]
    );
    let denied = service.auth(&login).await;
    assert_eq!((denied.status, denied.body.as_str()), (429, ""));
    assert_eq!(denied.header("retry-after"), Some("60"));
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));

    let unlimited = service.auth(&[("x-forwarded-uri", "/")]).await;
    assert_eq!((unlimited.status, unlimited.own_headers()), (200, vec![]));
}

#[tokio::test]
async fn every_method_asks_and_is_the_method_unless_a_header_names_one() {
    let service = Service::start_with_clock(&one_for_each("method"), &ManualClock::new()).await;
    for method in ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"] {
        let first = request(service.http, method, "/v1/auth", &[], b"").await;
        let second = request(service.http, method, "/v1/auth", &[], b"").await;
        assert_eq!((first.status, second.status), (200, 429), "{method}");
    }
    let original: [(&str, &[u8]); 1] = [("x-original-method", b"POST")];
    assert_eq!(request(service.http, "GET", "/v1/auth", &original, b"").await.status, 429);
}

#[tokio::test]
async fn path_and_host_are_those_of_the_original_request() {
    for (attribute, header, first, same, other) in [
        ("path", "x-forwarded-uri", "/a?x=1", "/a?x=2", "/b?x=1"),
        ("path", "x-original-uri", "/a", "/a#top", "/a/"),
        ("path", "x-original-url", "https://shop.example/a?x", "http://other/a", "https://a/A"),
        ("host", "x-forwarded-host", "shop.example:443", "Shop.Example", "other.example"),
        ("host", "x-original-url", "https://shop.example/a", "https://shop.example", "https://a/"),
    ] {
        let rules = one_for_each(attribute);
        let service = Service::start_with_clock(&rules, &ManualClock::new()).await;
        let mut statuses = Vec::new();
        for value in [first, same, other] {
            statuses.push(service.auth(&[(header, value)]).await.status);
        }
        assert_eq!(statuses, [200, 429, 200], "{header}");
    }
}

#[tokio::test]
async fn only_a_trusted_peer_is_believed_about_the_address() {
    let forwarded = [("x-forwarded-for", "203.0.113.7")];
    let forged = [("x-forwarded-for", "198.51.100.1, 203.0.113.7")];
    let other = [("x-forwarded-for", "203.0.113.8")];

    let untrusting = Service::start_with_clock(&one_for_each("ip"), &ManualClock::new()).await;
    assert_eq!(untrusting.auth(&forwarded).await.status, 200);
    assert_eq!(untrusting.auth(&other).await.status, 429);

    let trusting = format!("trusted_proxies: [127.0.0.1]\n{}", one_for_each("ip"));
    let trusting = Service::start_with_clock(&trusting, &ManualClock::new()).await;
    assert_eq!(trusting.auth(&forwarded).await.status, 200);
    assert_eq!(trusting.auth(&forged).await.status, 429);
    assert_eq!(trusting.auth(&other).await.status, 200);
}

#[tokio::test]
async fn attributes_of_the_gateway_come_as_headers() {
    let service = Service::start_with_clock(&one_for_each("account"), &ManualClock::new()).await;
    assert_eq!(service.auth(&[("X-Tollgate-Account", "a")]).await.status, 200);
    assert_eq!(service.auth(&[("x-tollgate-account", "a")]).await.status, 429);
    assert_eq!(service.auth(&[("x-tollgate-account", "b")]).await.status, 200);
    let appended = [("x-tollgate-account", "c"), ("x-tollgate-account", "a")];
    assert_eq!(service.auth(&appended).await.status, 429, "the gateway's own comes last");
    for absent in [("x-tollgate-account", ""), ("x-tollgate-", "a"), ("x-tollgate-a!", "a")] {
        let reply = service.auth(&[absent]).await;
        assert_eq!((reply.status, reply.own_headers()), (200, vec![]), "{absent:?}");
    }
}

#[tokio::test]
async fn headers_cannot_replace_what_the_original_request_says() {
    for name in ["ip", "method", "path", "host"] {
        let rules = one_for_each(name);
        let service = Service::start_with_clock(&rules, &ManualClock::new()).await;
        let header = format!("x-tollgate-{name}");
        let original = [("x-forwarded-uri", "/a"), ("x-forwarded-host", "a")];
        let first = service.auth(&[&original[..], &[(&header, "1")]].concat()).await;
        let second = service.auth(&[&original[..], &[(&header, "2")]].concat()).await;
        assert_eq!((first.status, second.status), (200, 429), "{name}");
    }
}

#[tokio::test]
async fn the_query_selects_the_domain() {
    let rules = "rules: [{ name: one, limit: 1/hour, domain: shop }]";
    let service = Service::start_with_clock(rules, &ManualClock::new()).await;
    let status = async |path: &str| request(service.http, "GET", path, &[], b"").await.status;
    assert_eq!(status("/v1/auth").await, 200);
    assert_eq!(status("/v1/auth?domain=shop&").await, 200);
    assert_eq!(status("/v1/auth?domain=shop").await, 429);
    assert_eq!(status("/v1/auth?").await, 200);

    let bad = request(service.http, "GET", "/v1/auth?domain=a%3Ab", &[], b"").await;
    assert_eq!(bad.status, 400);
    assert_eq!(bad.json()["field"], "domain");
}

#[tokio::test]
async fn a_query_that_could_select_other_rules_by_mistake_is_refused() {
    let rules = "rules: [{ name: one, limit: 1/hour, domain: shop }]";
    let service = Service::start_with_clock(rules, &ManualClock::new()).await;
    for (query, field, detail) in [
        (
            "domian=shop",
            "domian",
            "unknown parameter \"domian\" in the query: the only one is domain. If it is the \
             client's, give the gateway's call a query of its own, such as /v1/auth?domain=default",
        ),
        ("domain=shop&page", "page", "unknown parameter \"page\" in the query"),
        ("domain=shop&domain=other", "domain", "domain is given twice in the query"),
        ("domain", "domain", "domain must be 1 to 64 letters"),
    ] {
        let bad = request(service.http, "GET", &format!("/v1/auth?{query}"), &[], b"").await;
        assert_eq!((bad.status, bad.json()["field"].as_str()), (400, Some(field)), "{query}");
        assert!(bad.json()["detail"].as_str().unwrap().starts_with(detail), "{bad:?}");
    }
    let spent = request(service.http, "GET", "/v1/auth?domain=shop", &[], b"").await;
    assert_eq!(spent.status, 200, "what was refused spent nothing");
}

#[tokio::test]
async fn header_bytes_that_are_not_utf_8_are_values_too() {
    let service = Service::start_with_clock(&one_for_each("path"), &ManualClock::new()).await;
    let status = async |uri: &[u8]| {
        request(service.http, "GET", "/v1/auth", &[("x-forwarded-uri", uri)], b"").await.status
    };
    assert_eq!(status(b"/caf\xe9").await, 200);
    assert_eq!(status(b"/caf\xe9").await, 429);
    assert_eq!(status("/caf\u{e9}".as_bytes()).await, 429, "Latin-1 and UTF-8 of one text");
    assert_eq!(status(b"/caf\xe8").await, 200);
}

#[tokio::test]
async fn the_body_of_the_original_request_is_not_needed() {
    let service = Service::start_with_clock(&one_for_each("ip"), &ManualClock::new()).await;
    let reply = request(service.http, "POST", "/v1/auth", &[], b"not json").await;
    assert_eq!(reply.status, 200);
}

/// Traefik asks by GET, whatever the method of the request, and describes it in these headers.
#[tokio::test]
async fn the_call_of_traefik_is_judged_as_the_request_that_it_describes() {
    let rules = "
trusted_proxies: [127.0.0.1]
rules:
  - { name: one, match: { path: /cart, method: POST, host: shop.example }, key: ip, limit: 1/hour }
";
    let service = Service::start_with_clock(rules, &ManualClock::new()).await;
    let call = |client: &'static str| {
        [
            ("accept", "*/*"),
            ("x-forwarded-for", client),
            ("x-forwarded-host", "shop.example"),
            ("x-forwarded-method", "POST"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-uri", "/cart?item=1"),
        ]
    };
    let allowed = service.auth(&call("203.0.113.7")).await;
    assert_eq!((allowed.status, allowed.header("x-ratelimit-remaining")), (200, Some("0")));
    let denied = service.auth(&call("203.0.113.7")).await;
    assert_eq!((denied.status, denied.header("retry-after")), (429, Some("3600")));
    assert_eq!(denied.header("x-ratelimit-limit"), Some("1"));
    assert_eq!(service.auth(&call("203.0.113.8")).await.status, 200);
}

/// What Traefik sends along unless `authRequestHeaders` names less, and does with the answer.
#[tokio::test]
async fn what_else_traefik_sends_changes_nothing_and_its_client_can_have_the_answer_as_it_is() {
    let rules = "
trusted_proxies: [127.0.0.1]
denial: { body: problem }
rules:
  - { name: one, match: { path: /cart }, key: ip, limit: 1/hour }
";
    let service = Service::start_with_clock(rules, &ManualClock::new()).await;
    let call = |extra: &[(&'static str, &'static str)]| {
        let contract = [
            // Traefik puts the address that it sees behind what the client has sent.
            ("x-forwarded-for", "198.51.100.1, 203.0.113.7"),
            ("x-forwarded-host", "shop.example"),
            ("x-forwarded-method", "GET"),
            ("x-forwarded-port", "443"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-server", "traefik-0"),
            ("x-forwarded-uri", "/cart"),
            ("x-real-ip", "203.0.113.7"),
        ];
        [&contract[..], extra].concat()
    };
    let of_client = [
        ("accept-encoding", "gzip"),
        ("authorization", "Bearer of-the-client"),
        ("content-type", "application/json"),
        ("cookie", "session=of-the-client"),
        ("user-agent", "curl/8"),
        ("x-original-uri", "/elsewhere"),
    ];
    let allowed = service.auth(&call(&of_client)).await;
    assert_eq!((allowed.status, allowed.body.as_str()), (200, ""));
    let denied = service.auth(&call(&of_client)).await;
    assert_eq!((denied.status, denied.json()["rule"].as_str()), (429, Some("one")));
    // Without them the request is the same.
    let bare = service.auth(&call(&[])).await;
    assert_eq!((bare.status, &bare.body), (429, &denied.body));
    assert_eq!(bare.own_headers(), denied.own_headers());
    // What a client has of it tells of its limits and nothing else.
    let names: Vec<_> = denied.own_headers().into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "content-type",
            "retry-after",
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
            "ratelimit-policy",
            "ratelimit",
            "x-ratelimit-rule",
        ]
    );
    assert!(!denied.body.contains("of-the-client"), "{}", denied.body);
}
