//! From requests to attributes.

use std::net::SocketAddr;

use axum::extract::ConnectInfo;
use http::header::{HOST, HeaderName, HeaderValue};
use http::{Request, Uri, Version};
use tollgate_tower::{ClientIp, Extractor, PeerAddr};

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The attributes of a request as `name=value` pairs.
fn attributes(extractor: &Extractor, request: Request<()>) -> Vec<String> {
    let attributes = extractor.attributes(&request.into_parts().0);
    attributes.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

#[test]
fn the_default_is_ip_path_and_method() {
    let request =
        Request::delete("/cart/1?now=yes").extension(PeerAddr(address("[2001:db8::1]:1")));
    assert_eq!(
        attributes(&Extractor::default(), request.body(()).unwrap()),
        ["ip=2001:db8::/64", "path=/cart/1", "method=DELETE"]
    );
    assert_eq!(
        attributes(&Extractor::default(), Request::get("/").body(()).unwrap()),
        ["path=/", "method=GET"]
    );
    assert!(attributes(&Extractor::new(), Request::get("/").body(()).unwrap()).is_empty());
}

#[test]
fn the_peer_is_a_peer_addr_or_else_a_connect_info() {
    let extractor = Extractor::new().client_ip(ClientIp::new());
    let connected = || Request::get("/").extension(ConnectInfo(address("203.0.113.7:1")));
    assert_eq!(attributes(&extractor, connected().body(()).unwrap()), ["ip=203.0.113.7"]);
    let both = connected().extension(PeerAddr(address("203.0.113.8:1")));
    assert_eq!(attributes(&extractor, both.body(()).unwrap()), ["ip=203.0.113.8"]);
}

#[test]
fn a_name_that_is_set_again_has_only_its_last_source() {
    let extractor =
        Extractor::default().with("ip", |_| None).with("path", |_| Some("p".to_owned()));
    let request = Request::get("/").extension(PeerAddr(address("203.0.113.7:1")));
    assert_eq!(attributes(&extractor, request.body(()).unwrap()), ["path=p", "method=GET"]);
}

#[test]
fn the_path_is_as_it_was_sent() {
    let extractor = Extractor::new().path();
    for (uri, path) in
        [("//a/%2e%2e/b?c", "//a/%2e%2e/b"), ("http://h/p", "/p"), ("http://h", "/"), ("*", "*")]
    {
        let request = Request::get(uri.parse::<Uri>().unwrap()).body(()).unwrap();
        assert_eq!(attributes(&extractor, request), [format!("path={path}")], "{uri}");
    }
}

#[test]
fn the_host_is_in_lower_case_and_without_port() {
    let host = |uri: &str, header: Option<&[u8]>| {
        let mut request = Request::get(uri).version(Version::HTTP_11).body(()).unwrap();
        if let Some(header) = header {
            request.headers_mut().insert(HOST, HeaderValue::from_bytes(header).unwrap());
        }
        attributes(&Extractor::new().host(), request)
    };
    assert!(host("/", None).is_empty());
    assert_eq!(host("/", Some(b"Shop.Example:8080")), ["host=shop.example"]);
    assert_eq!(host("/", Some(b"[::1]:8080")), ["host=[::1]"]);
    assert_eq!(host("https://Shop.Example:443/", Some(b"other")), ["host=shop.example"]);
    assert_eq!(host("/", Some(b"No Host")), ["host=no host"]);
    assert_eq!(host("/", Some(b"\xff")), ["host=\u{fffd}"]);
}

#[test]
fn a_header_is_its_first_value_and_absent_only_if_it_is_not_there() {
    let name = HeaderName::from_static("x-api-key");
    let extractor = Extractor::new().header(name.clone(), "api_key");
    assert!(attributes(&extractor, Request::get("/").body(()).unwrap()).is_empty());
    let two = Request::get("/").header(&name, "a").header(&name, "b").body(()).unwrap();
    assert_eq!(attributes(&extractor, two), ["api_key=a"]);
    let bytes = HeaderValue::from_bytes(b"a\xff").unwrap();
    let request = Request::get("/").header(&name, bytes).body(()).unwrap();
    assert_eq!(attributes(&extractor, request), ["api_key=a\u{fffd}"]);
    let empty = Request::get("/").header(&name, "").body(()).unwrap();
    assert_eq!(attributes(&extractor, empty), ["api_key="]);
}
