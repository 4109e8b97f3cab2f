//! Rules that change while the service runs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]

mod api;
mod envoy;
mod file;
mod folder;
mod http_source;
mod load;
mod origin;
mod redis;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "the other tests need more of it")]
mod support;

use std::time::Duration;

use crate::support::{Reply, Service, request};

/// Rules with this limit a day, for each address.
pub(crate) fn rules(limit: u32) -> String {
    format!("rules:\n  - {{ name: per-ip, key: ip, limit: {limit}/day }}\n")
}

/// What one check with this address tells of the limit and what is left.
pub(crate) async fn check(service: &Service, ip: &str) -> (u64, u64) {
    let reply = service.post("/v1/check", &format!(r#"{{"attributes":{{"ip":"{ip}"}}}}"#)).await;
    let json = reply.json();
    (json["limit"].as_u64().unwrap_or(0), json["remaining"].as_u64().unwrap_or(0))
}

/// Waits until what is in force has this limit.
pub(crate) async fn limit_in_force(service: &Service, limit: u64) {
    until(async || {
        let quota = service.limiter.rules().iter().next().map(|rule| rule.quota().rate().units());
        quota == Some(limit)
    })
    .await;
}

/// Waits until `GET /v1/rules` tells of an error of this kind, and returns its message.
pub(crate) async fn error_of_kind(service: &Service, kind: &str) -> String {
    until(async || service.admin("/v1/rules").await.json()["error"]["kind"] == kind).await;
    service.admin("/v1/rules").await.json()["error"]["message"].as_str().unwrap().to_owned()
}

pub(crate) async fn until(holds: impl AsyncFn() -> bool) {
    for _ in 0..2_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it never comes to hold");
}

/// Writes rules by the admin API, with this `If-Match`.
pub(crate) async fn put(service: &Service, if_match: &str, text: &str) -> Reply {
    let headers = [("if-match", if_match.as_bytes())];
    request(service.admin, "PUT", "/v1/rules", &headers, text.as_bytes()).await
}

pub(crate) async fn id_in_force(service: &Service) -> String {
    service.admin("/v1/rules").await.json()["id"].as_str().unwrap().to_owned()
}
