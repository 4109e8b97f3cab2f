//! What is logged when nobody tells where requests come from.

use std::io;
use std::sync::{Arc, Mutex};

use http::Request;
use tollgate::{Missing, Rule};
use tollgate_tower::{Extractor, RateLimitLayer};
use tower::Layer;
use tracing_subscriber::fmt::MakeWriter;

use crate::support::{hello, limiter, request_from, rule, send};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// Returns what is logged while three services of one layer are asked.
async fn logged(
    rules: impl IntoIterator<Item = Rule>,
    extractor: Extractor,
    requests: impl IntoIterator<Item = Request<()>>,
) -> String {
    let log = Log::default();
    let lines = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .finish();
    let _lines = tracing::subscriber::set_default(lines);
    let layer = RateLimitLayer::new(limiter(rules).0).attributes(extractor);
    for request in requests {
        let service = layer.layer(hello().0);
        assert_eq!(send(&service, request).await.status(), 200);
    }
    String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
}

fn per_ip() -> Rule {
    rule("per-ip", "1/s", 9).with_key(["ip"])
}

fn without_peer() -> Request<()> {
    Request::new(())
}

#[tokio::test]
async fn rules_that_limit_nothing_for_want_of_a_peer_are_told_once() {
    let requests = [without_peer(), without_peer(), without_peer()];
    assert_eq!(
        logged([per_ip(), rule("all", "1/s", 9)], Extractor::default(), requests).await,
        " WARN requests have no peer address, so rules that key on ip limit nothing: serve with \
         into_make_service_with_connect_info::<SocketAddr>(), or put a tollgate_tower::PeerAddr \
         into the extensions of every request rule=\"per-ip\"\n"
    );
}

#[tokio::test]
async fn nothing_is_told_where_peers_are_known_or_no_rule_skips_for_want_of_them() {
    let known = [request_from("203.0.113.7:4711"), without_peer()];
    assert_eq!(logged([per_ip()], Extractor::default(), known).await, "");
    for rules in [
        vec![rule("all", "1/s", 9)],
        vec![per_ip().with_missing(Missing::Share)],
        vec![per_ip().with_domain("shop")],
    ] {
        assert_eq!(logged(rules, Extractor::default(), [without_peer()]).await, "");
    }
    let own = Extractor::default().with("ip", |_| None);
    assert_eq!(logged([per_ip()], own, [without_peer()]).await, "");
}
