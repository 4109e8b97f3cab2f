//! Addresses as proxies write them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Reads `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:4711`.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    if let Some(bracketed) = text.strip_prefix('[') {
        let (address, port) = bracketed.split_once(']')?;
        let port = port.strip_prefix(':').map_or(port.is_empty(), is_port);
        let address = address.parse::<Ipv6Addr>().ok().filter(|_| port)?;
        return Some(IpAddr::V6(address).to_canonical());
    }
    if let Some((address, port)) = text.split_once(':')
        && !port.contains(':')
    {
        let address = address.parse::<Ipv4Addr>().ok().filter(|_| is_port(port))?;
        return Some(IpAddr::V4(address));
    }
    text.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// Reads the address in the `for` parameter of one element of `Forwarded`.
///
/// An element with two of them is malformed, as is one without.
pub(super) fn of_forwarded(element: &str) -> Option<IpAddr> {
    let mut found = None;
    for pair in pairs(element) {
        let pair = pair.trim_matches([' ', '\t']);
        if pair.is_empty() {
            continue;
        }
        let (name, value) = pair.split_once('=')?;
        if name.eq_ignore_ascii_case("for") && found.replace(value).is_some() {
            return None;
        }
    }
    let value = found?;
    let Some(quoted) = value.strip_prefix('"') else { return address(value) };
    address(quoted.strip_suffix('"')?)
}

/// Splits an element at the semicolons that are not inside of a quoted string.
fn pairs(element: &str) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    element.split(move |character| {
        if escaped {
            escaped = false;
            return false;
        }
        match character {
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ';' => return !quoted,
            _ => {}
        }
        false
    })
}

/// Tells whether `text` is a port, or a name that RFC 7239 lets stand for one (`_hidden`).
fn is_port(text: &str) -> bool {
    let named = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match text.strip_prefix('_') {
        Some(name) => !name.is_empty() && name.bytes().all(named),
        None => text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok(),
    }
}
