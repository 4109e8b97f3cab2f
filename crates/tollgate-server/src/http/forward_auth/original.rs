//! The original request, as a gateway describes it.

use ::http::HeaderMap;

/// What the headers of a gateway tell about the original request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Original {
    pub(super) method: Option<String>,
    /// Without the query, not decoded and not normalized.
    pub(super) path: Option<String>,
    /// In lower case, without the port.
    pub(super) host: Option<String>,
}

impl Original {
    /// Reads `X-Forwarded-Method`, `-Uri` and `-Host`, and where one is missing
    /// `X-Original-Method`, `-URI` or `-URL`.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let first = |names: [&str; 2]| names.into_iter().find_map(|name| text(headers, name));
        let uri = first(["x-forwarded-uri", "x-original-uri"]);
        let url = text(headers, "x-original-url");
        let (url_host, url_path) = url.as_deref().map_or((None, None), split_url);
        let (uri_host, uri_path) = uri.as_deref().map_or((None, None), split_url);
        let host = first(["x-forwarded-host", "x-original-host"]);
        let host = host.as_deref().or(uri_host).or(url_host);
        Self {
            method: first(["x-forwarded-method", "x-original-method"]),
            path: uri_path.or(url_path).map(str::to_owned),
            host: host
                .map(without_port)
                .filter(|host| !host.is_empty())
                .map(str::to_ascii_lowercase),
        }
    }
}

/// Returns the last value of a header as text, unless it is empty. The last one is what a gateway
/// added, if a client sent the header too. Bytes that are not UTF-8 are taken as Latin-1.
pub(super) fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get_all(name).iter().next_back()?.as_bytes();
    let latin_1 = || value.iter().copied().map(char::from).collect();
    let text = std::str::from_utf8(value).map_or_else(|_| latin_1(), str::to_owned);
    Some(text).filter(|text| !text.is_empty())
}

/// Splits `https://host:port/path?query`, or `/path?query`, into host and path.
fn split_url(url: &str) -> (Option<&str>, Option<&str>) {
    let (host, rest) = match url.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let (host, rest) = rest.split_at(end);
            (Some(host), if rest.starts_with('/') { rest } else { "/" })
        }
        _ => (None, url),
    };
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    (host, Some(&rest[..end]).filter(|path| !path.is_empty()))
}

fn without_port(host: &str) -> &str {
    let host = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            // The last part of a bare IPv6 address is not a port.
            if name.contains(':') && !name.ends_with(']') { host } else { name }
        }
        _ => host,
    };
    host.strip_suffix('.').unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use ::http::{HeaderName, HeaderValue};

    use super::*;

    fn original(headers: &[(&str, &[u8])]) -> Original {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::from_bytes(value).unwrap());
        }
        Original::of(&map)
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn forwarded_headers_come_before_original_ones() {
        let both = original(&[
            ("x-original-method", b"GET"),
            ("x-forwarded-method", b"POST"),
            ("x-original-uri", b"/b"),
            ("x-forwarded-uri", b"/a"),
            ("x-original-url", b"https://b.example/c"),
            ("x-forwarded-host", b"a.example"),
        ]);
        assert_eq!(
            both,
            Original { method: some("POST"), path: some("/a"), host: some("a.example") }
        );
        assert_eq!(original(&[]), Original::default());
    }

    #[test]
    fn the_path_is_cut_at_the_query_and_otherwise_left_as_it_is() {
        for (uri, path) in [
            ("/login?next=/a?b", some("/login")),
            ("/login#top", some("/login")),
            ("/a//b/../%6Cogin/", some("/a//b/../%6Cogin/")),
            ("//evil.example/x", some("//evil.example/x")),
            ("/x?u=https://a.example/", some("/x")),
            ("/x/https://a.example/y", some("/x/https://a.example/y")),
            ("*", some("*")),
            ("?x", None),
            ("", None),
        ] {
            assert_eq!(original(&[("x-forwarded-uri", uri.as_bytes())]).path, path, "{uri}");
        }
    }

    #[test]
    fn an_absolute_url_gives_host_and_path() {
        for (url, host, path) in [
            ("https://Shop.Example:8443/a?b", "shop.example", "/a"),
            ("http://shop.example", "shop.example", "/"),
            ("http://shop.example?x", "shop.example", "/"),
        ] {
            let found = original(&[("x-original-url", url.as_bytes())]);
            assert_eq!((found.host, found.path), (some(host), some(path)), "{url}");
        }
    }

    #[test]
    fn hosts_are_one_however_they_are_written() {
        for (given, host) in [
            ("Shop.Example:443", some("shop.example")),
            ("shop.example.", some("shop.example")),
            ("[2001:DB8::1]:80", some("[2001:db8::1]")),
            ("2001:db8::1", some("2001:db8::1")),
            (":80", None),
            ("", None),
        ] {
            assert_eq!(original(&[("x-forwarded-host", given.as_bytes())]).host, host, "{given}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_taken_as_latin_1() {
        let path = |value| original(&[("x-forwarded-uri", value)]).path;
        assert_eq!(path(b"/caf\xe9"), some("/caf\u{e9}"));
        assert_eq!(path("/caf\u{e9}".as_bytes()), some("/caf\u{e9}"));
        assert_eq!(path(b"/\xff\xfe"), some("/\u{ff}\u{fe}"));
    }

    #[test]
    fn the_last_of_several_values_counts() {
        let twice = original(&[("x-forwarded-uri", b"/client"), ("x-forwarded-uri", b"/gateway")]);
        assert_eq!(twice.path, some("/gateway"));
    }
}
