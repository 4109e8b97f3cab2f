//! What every recipe with a limit for each address must do, and how a gateway is asked.

use tokio::net::TcpSocket;

use super::Gateway;
use crate::origin::Origin;
use crate::support::{Reply, exchange};

/// The rules of [`three_pass_and_others_are_denied`].
pub(crate) const THREE_PER_IP: &str = "
trusted_proxies: [127.0.0.1]
rules: [{ name: per-ip, key: ip, limit: 3/hour }]
";

/// The rules of [`errors_stay_those_of_the_service`].
pub(crate) const MANY: &str = "rules: [{ name: all, limit: 1000/hour }]";

/// The rules of [`a_client_cannot_speak`].
pub(crate) const ONE_LOGIN: &str = "
trusted_proxies: [127.0.0.1]
rules:
  - { name: login, match: { path: /login, method: GET }, key: [ip, host], limit: 1/hour }
  - { name: per-account, key: account, limit: 1/hour }
";

/// Asks as the client 127.0.0.`client`. 127.0.0.1 is the gateway itself to Tollgate.
pub(crate) async fn ask(
    client: u8,
    gateway: &Gateway,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Reply {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, client], 0).into()).unwrap();
    let connection = socket.connect(gateway.address()).await.unwrap();
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    exchange(connection, method, path, &headers, b"").await
}

/// Three requests of a client pass with what is left, and others are told when to retry.
pub(crate) async fn three_pass_and_others_are_denied(gateway: &Gateway, origin: &Origin) {
    for remaining in ["2", "1", "0"] {
        let reply = ask(2, gateway, "GET", "/page?x=1", &[]).await;
        assert_eq!((reply.status, reply.body.as_str()), (200, "GET /page?x=1 0\n"));
        assert_eq!(reply.header("x-ratelimit-limit"), Some("3"));
        assert_eq!(reply.header("x-ratelimit-remaining"), Some(remaining));
        assert!(reply.header("x-ratelimit-reset").is_some(), "{reply:?}");
    }
    let denied = ask(2, gateway, "GET", "/page", &[]).await;
    assert_eq!(denied.status, 429);
    let wait: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!((1_190..=1_200).contains(&wait), "{wait}");
    assert_eq!(denied.header("x-ratelimit-limit"), Some("3"));
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(ask(3, gateway, "GET", "/page", &[]).await.status, 200, "another client");
    assert_eq!(origin.requests(), 4, "a denied request does not reach the service");
}

/// What the service says itself, its errors too, reaches the client as it is.
pub(crate) async fn errors_stay_those_of_the_service(gateway: &Gateway) {
    for status in [401, 403, 404, 429, 500, 503] {
        let reply = ask(2, gateway, "GET", &format!("/{status}"), &[]).await;
        assert_eq!((reply.status, reply.body.clone()), (status, format!("GET /{status} 0\n")));
        assert_eq!(reply.header("retry-after"), None);
        assert_eq!(reply.header("x-ratelimit-limit"), Some("1000"));
    }
}

/// Nothing that a client sends stands for what the gateway says of it, but for its account.
pub(crate) async fn a_client_cannot_speak(gateway: &Gateway) {
    assert_eq!(ask(2, gateway, "GET", "/login?x", &[]).await.status, 200);
    for forged in [
        [("x-forwarded-for", "198.51.100.1"), ("x-tollgate-ip", "198.51.100.2")],
        [("forwarded", "for=198.51.100.1"), ("x-real-ip", "198.51.100.2")],
        [("x-forwarded-uri", "/other"), ("x-original-url", "/other")],
        [("x-forwarded-method", "POST"), ("x-original-method", "POST")],
        [("x-forwarded-host", "other"), ("x-original-host", "other")],
    ] {
        assert_eq!(ask(2, gateway, "GET", "/login?x", &forged).await.status, 429, "{forged:?}");
    }
    assert_eq!(ask(2, gateway, "GET", "/login?domain=other", &[]).await.status, 429);
    for _ in 0..2 {
        let account = [("x-tollgate-account", "a1")];
        assert_eq!(ask(2, gateway, "GET", "/", &account).await.status, 200);
    }
}
