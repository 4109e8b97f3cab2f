//! `redis://` URLs.

use std::net::Ipv6Addr;

/// What is wrong with a URL, in words that do not repeat it, and what to do.
pub(super) struct Problem {
    pub(super) message: &'static str,
    pub(super) help: &'static str,
}

/// What a URL names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// A server, and what of it.
    Server,
    /// A node of a cluster or a sentinel, neither of which has databases.
    Node,
}

const FORM: &str = "write redis://[user:password@]host[:port][/database], or rediss:// for TLS, or redis+unix:///path";
const NODE_FORM: &str = "write redis://[user:password@]host[:port], or rediss:// for TLS";
const ENCODE: &str = "write `@` as %40, `:` as %3A, `/` as %2F, `?` as %3F, `#` as %23 and `%` as \
                      %25 in the user and the password, or use the fields `username` and `password`";

const PASSWORD: &str = "write user:password@, or use the fields `username` and `password_file`; for a user with \
                        `nopass` any password will do";

/// Checks that `url` is of the form that [`FORM`] states, or [`NODE_FORM`] for a node.
pub(super) fn check(url: &str, named: Named) -> Result<(), Problem> {
    let form = match named {
        Named::Server => FORM,
        Named::Node => NODE_FORM,
    };
    let fail = |message, help| Err(Problem { message, help });
    let Some((scheme, rest)) = url.split_once("://") else {
        return fail("the URL has no scheme", form);
    };
    match scheme {
        "redis" | "rediss" => {}
        "redis+unix" | "unix" if named == Named::Node => {
            return fail("a node of a cluster or a sentinel is reached by TCP only", form);
        }
        "redis+unix" => return check_path(rest),
        "unix" => return fail("the scheme of a socket is `redis+unix`", form),
        _ => return fail("the scheme of the URL is not `redis` or `rediss`", form),
    }
    if url.chars().any(|character| character.is_whitespace() || !character.is_ascii_graphic()) {
        return fail("the URL contains a space or a character outside of ASCII", form);
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    if tail.contains('@') {
        return fail("the user or the password contains `/`, `?` or `#`", ENCODE);
    }
    if let Some((user, _)) = authority.rsplit_once('@') {
        if user.contains('@') {
            return fail("the user or the password contains `@`", ENCODE);
        }
        if user.matches(':').count() > 1 {
            return fail("the user or the password contains `:`", ENCODE);
        }
        // Such a URL would ask as the server's default user, which may do more.
        if user.split_once(':').is_none_or(|(_, password)| password.is_empty()) {
            return fail("the user has no password", PASSWORD);
        }
        if !is_percent_encoded(user) {
            return fail("`%` in the user or the password is not followed by two digits", ENCODE);
        }
    }
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    check_host(host)?;
    match tail.strip_prefix('/') {
        None if tail.is_empty() => Ok(()),
        Some("") => Ok(()),
        Some(_) if named == Named::Node => {
            fail("the URL has something behind the `/`, which has no meaning here", form)
        }
        Some(database) if is_number::<u32>(database) => Ok(()),
        Some(database) if !database.contains(['?', '#']) => {
            fail("the database behind the `/` is not a number", form)
        }
        _ => fail("the URL has options behind `?` or `#`, which have no meaning here", form),
    }
}

/// Checks what follows the scheme in the URL of a socket.
fn check_path(path: &str) -> Result<(), Problem> {
    let fail = |message| Err(Problem { message, help: "write redis+unix:///run/redis/redis.sock" });
    if !path.starts_with('/') {
        return fail("the path of the socket does not begin with `/`");
    }
    match path.contains(['?', '#', '@', '%']) || path.chars().any(char::is_control) {
        true => fail("the path of the socket contains `?`, `#`, `@`, `%` or a control character"),
        false => Ok(()),
    }
}

fn check_host(text: &str) -> Result<(), Problem> {
    let fail = |message| Err(Problem { message, help: FORM });
    let (host, port, is_valid) = if let Some(rest) = text.strip_prefix('[') {
        let Some((host, port)) = rest.split_once(']') else {
            return fail("the IPv6 address of the URL is not closed by `]`");
        };
        (host, port, host.parse::<Ipv6Addr>().is_ok())
    } else {
        let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        (host, port, host.bytes().all(allowed))
    };
    if host.is_empty() {
        return fail("the URL has no host");
    }
    if !is_valid {
        return fail("the host of the URL is neither a name nor an IP address");
    }
    let is_port = |port: &str| is_number::<u16>(port) && port.bytes().any(|digit| digit != b'0');
    if port.is_empty() || port.strip_prefix(':').is_some_and(is_port) {
        Ok(())
    } else {
        fail("the port of the URL is not a number from 1 to 65535")
    }
}

fn is_number<T: std::str::FromStr>(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<T>().is_ok()
}

fn is_percent_encoded(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_the_stated_form_pass() {
        for url in [
            "redis://127.0.0.1:6379",
            "redis://localhost",
            "redis://redis.internal:6379/",
            "redis://redis_1:6379/15",
            "redis://[::1]:6379/0",
            "redis://user:pa%40ss@host:6379",
            "redis://:password@host",
            "rediss://user:pa%40ss@host:6379/3",
            "redis+unix:///run/redis.sock",
        ] {
            assert!(check(url, Named::Server).is_ok(), "{url}");
        }
        for url in ["redis://a", "rediss://user:password@a:7000", "redis://a:7000/"] {
            assert!(check(url, Named::Node).is_ok(), "{url}");
        }
    }

    #[test]
    fn other_urls_say_which_part_is_wrong() {
        for (url, part) in [
            ("127.0.0.1:6379", "no scheme"),
            ("http://host", "scheme"),
            ("unix:///run/redis", "`redis+unix`"),
            ("redis+unix://run/redis", "begin with `/`"),
            ("redis+unix:///run/redis?db=1", "`?`"),
            ("redis://", "no host"),
            ("redis://:6379", "no host"),
            ("redis://a b", "space"),
            ("redis://user:p@ss@host", "`@`"),
            ("redis://user:p/ss@host", "`/`"),
            ("redis://user:p:ss@host", "`:`"),
            ("redis://user:p%ss@host", "`%`"),
            ("redis://host:0", "port"),
            ("redis://host:65536", "port"),
            ("redis://host:port", "port"),
            ("redis://::1:6379", "no host"),
            ("redis://[::1", "closed"),
            ("redis://[host]:1", "neither"),
            ("redis://ho$t:1", "neither"),
            ("redis://host/db", "database"),
            ("redis://host/0?protocol=resp3", "options"),
            ("redis://host?db=1", "options"),
        ] {
            let problem = check(url, Named::Server).err().unwrap_or_else(|| panic!("{url} passed"));
            assert!(problem.message.contains(part), "{url}: {}", problem.message);
        }
        for (url, part) in [("redis+unix:///run/redis", "TCP"), ("redis://a/0", "`/`")] {
            let problem = check(url, Named::Node).err().unwrap_or_else(|| panic!("{url} passed"));
            assert!(problem.message.contains(part), "{url}: {}", problem.message);
        }
    }
}
