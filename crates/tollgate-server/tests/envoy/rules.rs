//! Descriptors as attributes of the configuration's own rules.

use std::time::Duration;

use crate::rls::Rls;
use crate::text;

async fn assert_answers(rls: &Rls, pairs: &[(&str, &str)]) {
    for (request, answer) in pairs {
        assert_eq!(text::answer(&rls.ask(request).await), *answer, "{request}");
    }
}

#[tokio::test]
async fn the_entries_of_a_descriptor_are_attributes_of_the_rules() {
    let config = r#"
rules:
  - { name: login-per-ip, domain: shop, match: { path: "/login*" }, key: [remote_address], limit: 2/min }
  - { name: per-tenant, domain: shop, key: [tenant], limit: 100/s, burst: 200 }
  - { name: odd, domain: shop, key: [odd], limit: 3/90s }
"#;
    let rls = Rls::start(config, &[]).await;
    assert_answers(
        &rls,
        &[
            ("shop: path=/login/x,remote_address=1", "OK | OK 1 of 2/MINUTE login-per-ip in 30s"),
            ("shop: remote_address=1,path=/login", "OK | OK 0 of 2/MINUTE login-per-ip in 60s"),
            (
                "shop: remote_address=1,path=/login",
                "OVER_LIMIT | OVER 0 of 2/MINUTE login-per-ip in 30s",
            ),
            ("shop: remote_address=1,path=/", "OK | OK"),
            ("shop: tenant=a", "OK | OK 199 of 100/SECOND per-tenant in 1s"),
            ("shop: odd=a", "OK | OK 2 of 3/UNKNOWN odd in 30s"),
            ("shop: tenant=", "OK | OK"),
            ("default: tenant=a", "OK | OK"),
        ],
    )
    .await;
}

#[tokio::test]
async fn g7_all_descriptors_of_a_request_spend_together_or_not_at_all() {
    let config = "
rules:
  - { name: per-ip, domain: d, key: [ip], limit: 1/min }
  - { name: per-tenant, domain: d, key: [tenant], limit: 5/min }
";
    let rls = Rls::start(config, &[]).await;
    assert_answers(
        &rls,
        &[
            (
                "tenant=a + ip=1",
                "OK | OK 4 of 5/MINUTE per-tenant in 12s + OK 0 of 1/MINUTE per-ip in 60s",
            ),
            (
                "tenant=a + ip=1",
                "OVER_LIMIT | OK 4 of 5/MINUTE per-tenant in 12s + OVER 0 of 1/MINUTE per-ip in \
                 60s",
            ),
            ("tenant=a", "OK | OK 3 of 5/MINUTE per-tenant in 24s"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_rule_that_several_descriptors_lead_to_is_charged_once() {
    let config = "
rules:
  - { name: everyone, domain: d, limit: 9/min }
  - { name: per-ip, domain: d, key: [ip], limit: 5/min }
";
    let rls = Rls::start(config, &[]).await;
    assert_answers(
        &rls,
        &[
            (
                "ip=1 [hits 2] + ip=1,path=/ [hits 3]",
                "OK | OK 2 of 5/MINUTE per-ip in 36s + OK 2 of 5/MINUTE per-ip in 36s",
            ),
            ("path=/", "OK | OK 5 of 9/MINUTE everyone in 27s"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_rule_in_shadow_is_counted_and_not_reported() {
    let config = "
rules:
  - { name: trial, domain: d, limit: 1/hour, shadow: true }
  - { name: per-ip, domain: d, key: [ip], limit: 5/min }
";
    let rls = Rls::start(config, &[]).await;
    for left in [4, 3] {
        let expected = format!("OK | OK {left} of 5/MINUTE per-ip in {}s", (5 - left) * 12);
        assert_eq!(text::answer(&rls.ask("ip=1").await), expected);
    }
    let denied =
        r#"tollgate_decisions_total{domain="d",rule="trial",outcome="shadow_deny",mode="exact"}"#;
    assert_eq!(rls.service.metric(denied).await, Some(1.0));
}

#[tokio::test]
async fn rules_and_limits_of_one_domain_are_both_charged() {
    let config = "rules: [{ name: per-ip, domain: d, key: [ip], limit: 3/min }]";
    let file = "
domain: d
descriptors: [{ key: ip, rate_limit: { unit: minute, requests_per_unit: 2 } }]
";
    let rls = Rls::start(config, &[file]).await;
    assert_answers(
        &rls,
        &[
            ("ip=1", "OK | OK 1 of 2/MINUTE in 40s"),
            ("ip=1", "OK | OK 0 of 2/MINUTE in 40s"),
            ("ip=1", "OVER_LIMIT | OVER 0 of 2/MINUTE in 40s"),
        ],
    )
    .await;
    rls.clock.advance(Duration::from_secs(40));
    assert_answers(&rls, &[("ip=1,x=y", "OK | OK 2 of 3/MINUTE per-ip in 20s")]).await;
}

#[tokio::test]
async fn exceptions_and_overrides_of_the_request_hold() {
    let config = "
rules:
  - name: per-ip
    domain: d
    key: [ip]
    limit: 3/min
    unlimited: [{ ip: '10.*' }]
    blocked: [{ ip: '192.*' }]
";
    let rls = Rls::start(config, &[]).await;
    assert_answers(
        &rls,
        &[
            ("ip=10.0.0.1", "OK | OK"),
            ("ip=192.0.2.1", "OVER_LIMIT | OVER 0 of 0/UNKNOWN per-ip"),
            ("ip=192.0.2.1 [limit 7 HOUR]", "OK | OK 6 of 7/HOUR in 2800s"),
            (
                "ip=203.0.113.1 + ip=203.0.113.2",
                "OK | OK 2 of 3/MINUTE per-ip in 20s + OK 2 of 3/MINUTE per-ip in 20s",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_cost_that_an_entry_does_not_tell_is_a_mistake_of_the_request() {
    let config = "
rules: [{ name: bytes, domain: d, limit: 100/min, cost: { attribute: bytes } }]
";
    let rls = Rls::start(config, &[]).await;
    assert_answers(&rls, &[("bytes=30", "OK | OK 70 of 100/MINUTE bytes in 18s")]).await;
    let status = rls.send(text::request("bytes=many")).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    assert_eq!(
        status.message(),
        "the entry \"bytes\" of a descriptor tells the cost and must be a whole number"
    );
}
