//! Requests that are not limited.

use http::Request;
use tollgate::{Matcher, Verdict};
use tollgate_tower::{ClientIp, Extractor, PeerAddr, RateLimitLayer};
use tower::Layer;

use crate::support::{hello, limiter, remaining, request_from, rule, send, text};

fn get(path: &str) -> Request<()> {
    let peer = PeerAddr(([203, 0, 113, 7], 1).into());
    Request::get(path).extension(peer).body(()).unwrap()
}

#[tokio::test]
async fn a_skipped_request_costs_nothing_and_its_response_is_left_alone() {
    let (limiter, _) = limiter([rule("all", "1/hour", 5)]);
    let probes = Matcher::new().with("path", ["/healthz", "/assets/*"]);
    let layer = RateLimitLayer::new(limiter.clone())
        .skip(probes)
        .skip(Matcher::new().with("method", ["OPTIONS"]))
        .skip_if(|request| request.headers.contains_key("x-probe"));
    let service = layer.layer(hello().0);
    let options = Request::options("/cart").body(()).unwrap();
    let probe = Request::get("/cart").header("x-probe", "1").body(()).unwrap();
    for skipped in [get("/healthz"), get("/assets/app.css"), options, probe] {
        let response = send(&service, skipped).await;
        assert!(response.extensions().get::<Verdict>().is_none());
        assert_eq!(text(response).await, "200 OK\n\nhello");
        assert_eq!(remaining(&limiter).await, 5);
    }
    for limited in [get("/healthz/"), get("/asset"), get("/cart")] {
        assert!(send(&service, limited).await.headers().contains_key("x-ratelimit-limit"));
    }
    assert_eq!(remaining(&limiter).await, 2);
}

#[tokio::test]
async fn a_skipped_request_passes_when_others_are_denied() {
    let (limiter, _) = limiter([rule("all", "1/hour", 1)]);
    let layer = RateLimitLayer::new(limiter).skip(Matcher::new().with("path", ["/healthz"]));
    let service = layer.layer(hello().0);
    for (path, status) in [("/", 200), ("/", 429), ("/healthz", 200)] {
        assert_eq!(send(&service, get(path)).await.status(), status, "{path}");
    }
}

#[tokio::test]
async fn networks_are_those_of_the_client_behind_the_proxies() {
    let (limiter, _) = limiter([rule("all", "1/hour", 3)]);
    let proxies = ClientIp::new().trust(["10.0.0.1/32".parse().unwrap()]);
    let layer = RateLimitLayer::new(limiter.clone())
        .attributes(Extractor::default().client_ip(proxies))
        .skip_networks(["198.51.100.0/24".parse().unwrap(), "2001:db8::7/128".parse().unwrap()]);
    let service = layer.layer(hello().0);
    for (peer, forwarded, left) in [
        ("198.51.100.9:1", "", 3),
        ("10.0.0.1:1", "198.51.100.9", 3),
        ("[2001:db8::7]:1", "", 3),
        ("[2001:db8::8]:1", "", 2),
        ("203.0.113.7:1", "198.51.100.9", 1),
    ] {
        let mut request = request_from(peer);
        if !forwarded.is_empty() {
            request.headers_mut().insert("x-forwarded-for", forwarded.parse().unwrap());
        }
        assert_eq!(send(&service, request).await.status(), 200);
        assert_eq!(remaining(&limiter).await, left, "{peer} {forwarded}");
    }
}
