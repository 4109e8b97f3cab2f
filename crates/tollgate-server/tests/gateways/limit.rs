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
