use proptest::prelude::*;

use super::*;

const PROXIES: [&str; 3] = ["10.0.0.0/16", "192.0.2.53/32", "2001:db8:f::/48"];

fn behind_proxies() -> ClientIp {
    ClientIp::new().trust(PROXIES.map(|network| network.parse().unwrap()))
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
    lines
        .iter()
        .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()))
        .collect()
}

fn xff(lines: &[&str]) -> HeaderMap {
    headers(&lines.iter().map(|line| (X_FORWARDED_FOR, *line)).collect::<Vec<_>>())
}

fn forwarded(lines: &[&str]) -> HeaderMap {
    headers(&lines.iter().map(|line| (FORWARDED, *line)).collect::<Vec<_>>())
}

#[test]
fn headers_of_an_untrusted_peer_are_not_read() {
    let all = headers(&[(X_FORWARDED_FOR, "6.6.6.6"), (FORWARDED, "for=6.6.6.6")]);
    assert_eq!(ClientIp::new().resolve(ip("10.0.0.1"), &all), ip("10.0.0.1"));
    assert_eq!(behind_proxies().resolve(ip("203.0.113.7"), &all), ip("203.0.113.7"));
    assert_eq!(behind_proxies().resolve(ip("192.0.2.54"), &all), ip("192.0.2.54"));
}

#[test]
fn x_forwarded_for_of_a_trusted_peer_is_walked_from_the_right() {
    let table: &[(&str, &[&str], &str)] = &[
        ("no header", &[], "10.0.0.1"),
        ("one entry", &["203.0.113.7"], "203.0.113.7"),
        ("a spoofed entry on the left", &["6.6.6.6, 203.0.113.7"], "203.0.113.7"),
        ("a trusted address spoofed on the left", &["10.0.0.9, 203.0.113.7"], "203.0.113.7"),
        ("a chain of proxies", &["6.6.6.6, 203.0.113.7, 192.0.2.53,10.0.0.2"], "203.0.113.7"),
        ("a chain over lines", &["6.6.6.6", "203.0.113.7 , 192.0.2.53", "10.0.0.2"], "203.0.113.7"),
        ("all trusted", &["10.0.0.4, 10.0.0.3", "10.0.0.2"], "10.0.0.4"),
        ("garbage on the right", &["203.0.113.7, garbage"], "10.0.0.1"),
        ("garbage after a proxy", &["203.0.113.7, garbage, 10.0.0.2"], "10.0.0.2"),
        ("unknown", &["203.0.113.7, unknown, 10.0.0.2"], "10.0.0.2"),
        ("obfuscated", &["203.0.113.7, _hidden, 10.0.0.2"], "10.0.0.2"),
        ("an empty entry", &["203.0.113.7, , 10.0.0.2"], "10.0.0.2"),
        ("an empty line", &["203.0.113.7", "", "10.0.0.2"], "10.0.0.2"),
        ("a trailing comma", &["203.0.113.7,"], "10.0.0.1"),
        ("spaces inside", &["203.0.113.7 10.0.0.2"], "10.0.0.1"),
        ("a leading zero", &["203.0.113.07"], "10.0.0.1"),
        ("a network", &["203.0.113.0/24"], "10.0.0.1"),
        ("a quoted address, which only Forwarded has", &["\"203.0.113.7\""], "10.0.0.1"),
        ("a quote that swallows nothing", &["\"6.6.6.6, 203.0.113.7"], "203.0.113.7"),
        ("a port", &["203.0.113.7:4711, 10.0.0.2:80"], "203.0.113.7"),
        ("a port of zero", &["203.0.113.7:0"], "203.0.113.7"),
        ("a port out of range", &["203.0.113.7:65536"], "10.0.0.1"),
        ("a port with a sign", &["203.0.113.7:+80"], "10.0.0.1"),
        ("no port after the colon", &["203.0.113.7:"], "10.0.0.1"),
        ("IPv6", &["2001:db8::1"], "2001:db8::1"),
        ("IPv6 through an IPv6 proxy", &["2001:db8::1, 2001:db8:f::2"], "2001:db8::1"),
        ("IPv6 in brackets", &["[2001:db8::1]"], "2001:db8::1"),
        ("IPv6 with a port", &["[2001:db8::1]:4711, [2001:db8:f::2]:443"], "2001:db8::1"),
        ("brackets without an end", &["[2001:db8::1"], "10.0.0.1"),
        ("text after the brackets", &["[2001:db8::1]x"], "10.0.0.1"),
        ("brackets around IPv4", &["[203.0.113.7]"], "10.0.0.1"),
        ("a zone", &["fe80::1%eth0"], "10.0.0.1"),
        ("mapped IPv4", &["::ffff:203.0.113.7"], "203.0.113.7"),
        ("a mapped proxy", &["203.0.113.7, ::ffff:10.0.0.2"], "203.0.113.7"),
        ("a mapped proxy in brackets", &["203.0.113.7, [::ffff:10.0.0.2]:80"], "203.0.113.7"),
    ];
    for (name, lines, client) in table {
        assert_eq!(behind_proxies().resolve(ip("10.0.0.1"), &xff(lines)), ip(client), "{name}");
    }
}

#[test]
fn forwarded_of_a_trusted_peer_is_walked_from_the_right() {
    let table: &[(&str, &[&str], &str)] = &[
        ("one element", &["for=203.0.113.7"], "203.0.113.7"),
        ("the name in any case", &["For=203.0.113.7"], "203.0.113.7"),
        ("other parameters", &["proto=https;for=203.0.113.7;by=10.0.0.1"], "203.0.113.7"),
        ("spaces", &["  proto=https ; for=203.0.113.7 "], "203.0.113.7"),
        ("empty parameters", &[";for=203.0.113.7;;"], "203.0.113.7"),
        ("quotes", &["for=\"203.0.113.7\""], "203.0.113.7"),
        ("a port", &["for=\"203.0.113.7:4711\""], "203.0.113.7"),
        ("a hidden port", &["for=\"203.0.113.7:_x-1.y\""], "203.0.113.7"),
        ("a hidden port without a name", &["for=\"203.0.113.7:_\""], "10.0.0.1"),
        ("a port without quotes", &["for=203.0.113.7:4711"], "203.0.113.7"),
        ("IPv6", &["for=\"[2001:db8::1]\""], "2001:db8::1"),
        ("IPv6 with a port", &["for=\"[2001:db8::1]:4711\""], "2001:db8::1"),
        ("IPv6 with a hidden port", &["for=\"[2001:db8::1]:_x\""], "2001:db8::1"),
        ("mapped IPv4", &["for=\"[::ffff:203.0.113.7]\""], "203.0.113.7"),
        ("a chain", &["for=6.6.6.6, for=203.0.113.7", "for=10.0.0.3,for=10.0.0.2"], "203.0.113.7"),
        ("all trusted", &["for=10.0.0.3, for=10.0.0.2"], "10.0.0.3"),
        ("unknown", &["for=203.0.113.7, for=unknown, for=10.0.0.2"], "10.0.0.2"),
        ("obfuscated", &["for=203.0.113.7, for=_gazonk, for=10.0.0.2"], "10.0.0.2"),
        ("no for", &["for=203.0.113.7, proto=https, for=10.0.0.2"], "10.0.0.2"),
        ("two fors", &["for=203.0.113.7;for=6.6.6.6"], "10.0.0.1"),
        ("a for that a Host brings", &["for=203.0.113.7;host=a;for=6.6.6.6"], "10.0.0.1"),
        ("a for inside of quotes", &["host=\"a;for=6.6.6.6\";for=203.0.113.7"], "203.0.113.7"),
        ("a comma inside of quotes", &["for=203.0.113.7;host=\"a,for=6.6.6.6\""], "203.0.113.7"),
        ("an escaped quote", &[r#"for=203.0.113.7;host="a\",for=6.6.6.6""#], "203.0.113.7"),
        ("an escaped backslash", &[r#"for=6.6.6.6, host="\\";for=203.0.113.7"#], "203.0.113.7"),
        ("an open quote on the left", &["for=\", for=203.0.113.7"], "203.0.113.7"),
        ("an open quote on the right", &["for=203.0.113.7, for=\""], "10.0.0.1"),
        ("an open quote after the address", &["for=203.0.113.7;host=\""], "10.0.0.1"),
        ("a pair without a value", &["for"], "10.0.0.1"),
        ("an empty line", &[""], "10.0.0.1"),
    ];
    for (name, lines, client) in table {
        assert_eq!(
            behind_proxies().resolve(ip("10.0.0.1"), &forwarded(lines)),
            ip(client),
            "{name}"
        );
    }
}

#[test]
fn forwarded_is_read_only_where_there_is_no_x_forwarded_for() {
    let both = headers(&[(FORWARDED, "for=198.51.100.1"), (X_FORWARDED_FOR, "203.0.113.7")]);
    let garbled = headers(&[(FORWARDED, "for=198.51.100.1"), (X_FORWARDED_FOR, "unknown")]);
    let client_of = |header, headers: &HeaderMap| {
        behind_proxies().header(header).resolve(ip("10.0.0.1"), headers).to_string()
    };
    for (header, of_both, of_garbled) in [
        (ForwardingHeader::Either, "203.0.113.7", "10.0.0.1"),
        (ForwardingHeader::XForwardedFor, "203.0.113.7", "10.0.0.1"),
        (ForwardingHeader::Forwarded, "198.51.100.1", "198.51.100.1"),
    ] {
        assert_eq!(client_of(header, &both), of_both, "{header:?}");
        assert_eq!(client_of(header, &garbled), of_garbled, "{header:?}");
    }
    let standard = forwarded(&["for=198.51.100.1"]);
    assert_eq!(client_of(ForwardingHeader::Either, &standard), "198.51.100.1");
    assert_eq!(client_of(ForwardingHeader::XForwardedFor, &standard), "10.0.0.1");
    assert_eq!(client_of(ForwardingHeader::Forwarded, &xff(&["203.0.113.7"])), "10.0.0.1");
}

#[test]
fn bytes_that_are_not_text_end_the_walk() {
    let mut headers = HeaderMap::new();
    headers.append(X_FORWARDED_FOR, HeaderValue::from_bytes(b"1.2.3.4, \xff, 10.0.0.2").unwrap());
    assert_eq!(behind_proxies().resolve(ip("10.0.0.1"), &headers), ip("10.0.0.2"));
}

#[test]
fn no_more_than_64_entries_are_walked() {
    let hop = |index: usize| format!("10.0.{}.{}", index / 256, index % 256);
    let entries: Vec<String> = (0..10_000).rev().map(hop).collect();
    let client = behind_proxies().resolve(ip("10.0.0.1"), &xff(&[&entries.join(", ")]));
    assert_eq!(client.to_string(), hop(63));

    let lines: Vec<&str> = entries.iter().map(String::as_str).collect();
    let client = behind_proxies().resolve(ip("10.0.0.1"), &xff(&lines));
    assert_eq!(client.to_string(), hop(63));
}

#[test]
fn an_entry_of_more_than_8_kib_ends_the_walk() {
    let element = |host_len: usize| {
        let host = "h".repeat(host_len);
        forwarded(&[&format!("for=6.6.6.6, for=203.0.113.7;host={host}, for=10.0.0.2")])
    };
    assert_eq!(behind_proxies().resolve(ip("10.0.0.1"), &element(8_000)), ip("203.0.113.7"));
    assert_eq!(behind_proxies().resolve(ip("10.0.0.1"), &element(8_200)), ip("10.0.0.2"));
}

#[test]
fn a_mapped_peer_is_its_ipv4_address() {
    let headers = xff(&["203.0.113.7"]);
    let mapped = ip("::ffff:10.0.0.1");
    assert_eq!(ClientIp::new().resolve(mapped, &headers), ip("10.0.0.1"));
    assert_eq!(behind_proxies().resolve(mapped, &headers), ip("203.0.113.7"));
}

#[test]
fn a_mapped_network_is_its_ipv4_network_and_a_wider_one_holds_no_ipv4() {
    let headers = xff(&["203.0.113.7"]);
    let client = |network: &str, peer: &str| {
        let client_ip = ClientIp::new().trust([network.parse().unwrap()]);
        client_ip.resolve(ip(peer), &headers).to_string()
    };
    assert_eq!(client("::ffff:10.0.0.0/120", "10.0.0.1"), "203.0.113.7");
    assert_eq!(client("::ffff:10.0.0.0/120", "10.0.1.1"), "10.0.1.1");
    assert_eq!(client("::ffff:0.0.0.0/96", "10.0.0.1"), "203.0.113.7");
    assert_eq!(client("::/0", "10.0.0.1"), "10.0.0.1");
    assert_eq!(client("::/0", "2001:db8::1"), "203.0.113.7");
}

#[test]
fn ipv6_clients_are_grouped_by_their_prefix() {
    let none = HeaderMap::new();
    let attribute = |bits: u8, address: &str| {
        ClientIp::new().ipv6_prefix(bits).unwrap().attribute(ip(address), &none)
    };
    let address = "2001:db8:1:2ff:fff4:5678:9abc:def1";
    assert_eq!(ClientIp::new().attribute(ip(address), &none), "2001:db8:1:2ff::/64");
    assert_eq!(attribute(128, address), address);
    assert_eq!(attribute(127, address), "2001:db8:1:2ff:fff4:5678:9abc:def0/127");
    assert_eq!(attribute(56, address), "2001:db8:1:200::/56");
    assert_eq!(attribute(1, address), "::/1");
    assert_eq!(attribute(0, address), "::/0");
    for bits in [0, 64, 128] {
        assert_eq!(attribute(bits, "203.0.113.7"), "203.0.113.7");
        assert_eq!(attribute(bits, "::ffff:203.0.113.7"), "203.0.113.7");
    }
}

#[test]
fn a_prefix_longer_than_an_address_is_an_error() {
    let error = ClientIp::new().ipv6_prefix(129).unwrap_err();
    assert_eq!(error.to_string(), "IPv6 prefix 129 is longer than an address: give 0 to 128 bits");
}

/// What a client may write into a header: anything, and above all what could confuse a reader.
fn claim() -> impl Strategy<Value = String> {
    let telling = prop::sample::select(vec![
        "6.6.6.6",
        "10.0.0.2",
        "[::1]",
        "for=6.6.6.6",
        "for=\"",
        "\"",
        "\\",
        "\\\"",
        ",",
        ";",
        "=",
        " ",
        "unknown",
        "for=10.0.0.3",
        "[",
        "]",
        ":80",
    ]);
    prop_oneof!["[ -~]{0,40}", prop::collection::vec(telling, 0..12).prop_map(|all| all.concat())]
}

fn untrusted() -> impl Strategy<Value = IpAddr> {
    any::<IpAddr>()
        .prop_map(|address| address.to_canonical())
        .prop_filter("a proxy is no client", |address| !behind_proxies().trusts(*address))
}

/// How a proxy appends an entry: into the last line, or as a line of its own.
fn append(lines: &mut Vec<String>, entry: String, in_line: bool) {
    match lines.last_mut() {
        Some(line) if in_line => *line = format!("{line}, {entry}"),
        _ => lines.push(entry),
    }
}

proptest! {
    #[test]
    fn a_client_cannot_claim_an_address_by_x_forwarded_for(
        mut lines in prop::collection::vec(claim(), 0..4),
        others in prop::collection::vec(claim(), 0..3),
        client in untrusted(),
        proxies in prop::collection::vec((any::<u16>(), any::<bool>(), any::<bool>()), 0..4),
        in_line in any::<bool>(),
    ) {
        append(&mut lines, client.to_string(), in_line);
        for (host, in_line, port) in proxies {
            let [high, low] = host.to_be_bytes();
            let port = if port { ":4711" } else { "" };
            append(&mut lines, format!("10.0.{high}.{low}{port}"), in_line);
        }
        let mut headers = xff(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        for other in &others {
            headers.append(FORWARDED, HeaderValue::from_str(other).unwrap());
        }
        prop_assert_eq!(behind_proxies().resolve(ip("10.0.0.1"), &headers), client);
        prop_assert_eq!(ClientIp::new().resolve(ip("10.0.0.1"), &headers), ip("10.0.0.1"));
    }

    #[test]
    fn a_client_cannot_claim_an_address_by_forwarded(
        mut lines in prop::collection::vec(claim(), 0..4),
        others in prop::collection::vec(claim(), 0..3),
        client in untrusted(),
        proxies in prop::collection::vec((any::<u16>(), any::<bool>(), claim()), 0..4),
        in_line in any::<bool>(),
    ) {
        let node = |address: IpAddr| match address {
            IpAddr::V4(address) => format!("for={address}"),
            IpAddr::V6(address) => format!("for=\"[{address}]:4711\""),
        };
        append(&mut lines, node(client), in_line);
        for (host, in_line, name) in proxies {
            let [high, low] = host.to_be_bytes();
            let address = IpAddr::from([10, 0, high, low]);
            let name = name.replace('\\', "\\\\").replace('"', "\\\"");
            append(&mut lines, format!("{};host=\"{name}\"", node(address)), in_line);
        }
        let mut headers = forwarded(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        for other in &others {
            headers.append(X_FORWARDED_FOR, HeaderValue::from_str(other).unwrap());
        }
        let behind_proxies = behind_proxies().header(ForwardingHeader::Forwarded);
        prop_assert_eq!(behind_proxies.resolve(ip("10.0.0.1"), &headers), client);
    }

    #[test]
    fn any_header_of_any_peer_gives_an_address_and_an_attribute(
        peer in any::<IpAddr>(),
        lines in prop::collection::vec((any::<bool>(), any::<Vec<u8>>()), 0..4),
        bits in 0_u8..=128,
    ) {
        let mut headers = HeaderMap::new();
        for (standard, line) in lines {
            let Ok(value) = HeaderValue::from_bytes(&line) else { continue };
            headers.append(if standard { FORWARDED } else { X_FORWARDED_FOR }, value);
        }
        let everyone = ["0.0.0.0/0", "::/0"].map(|network| network.parse().unwrap());
        let client_ip = ClientIp::new().trust(everyone).ipv6_prefix(bits).unwrap();
        let client = client_ip.resolve(peer, &headers);
        let attribute = client_ip.attribute(peer, &headers);
        let network: IpNet = match attribute.contains('/') {
            true => attribute.parse().unwrap(),
            false => IpNet::from(attribute.parse::<IpAddr>().unwrap()),
        };
        prop_assert!(network.contains(&client));
        prop_assert_eq!(network.trunc(), network);
    }
}
