//! Where the rules come from, as configured.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::redis::{RedisAccess, RedisUrl};

/// Where the rules come from while the service runs.
///
/// Whatever the source is, it is asked again after `poll_interval` even where changes are pushed,
/// since a push can be lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RulesFrom {
    /// From the configuration itself, and from its file when that changes.
    #[default]
    Config,
    /// From a file of their own.
    File {
        /// The file, YAML or TOML.
        path: PathBuf,
        /// How often it is read although nothing has told of a change.
        poll_interval: Duration,
    },
    /// From a key in Redis, which a whole fleet follows.
    Redis {
        /// The server.
        url: RedisUrl,
        /// What the server is shown.
        access: RedisAccess,
        /// The key, whose value is the text of the rules.
        key: String,
        /// How often it is read although nothing has told of a change.
        poll_interval: Duration,
    },
    /// From an HTTP server.
    Http {
        /// The address.
        url: HttpUrl,
        /// Certificates to trust in PEM, in place of those that the system trusts.
        ca: Option<PathBuf>,
        /// A file with a token, which is sent as `Authorization: Bearer`.
        token_file: Option<PathBuf>,
        /// How often it is asked, give or take a tenth.
        poll_interval: Duration,
    },
}

impl RulesFrom {
    /// The key in Redis unless set otherwise.
    pub const KEY_DEFAULT: &str = "tollgate:rules";

    /// How often a file or a key in Redis is read unless set otherwise: 5 s.
    pub const POLL_INTERVAL_DEFAULT: Duration = Duration::from_secs(5);

    /// How often an HTTP server is asked unless set otherwise: 30 s.
    pub const HTTP_POLL_INTERVAL_DEFAULT: Duration = Duration::from_secs(30);
}

/// An `http://` or `https://` URL without a user, a password and a fragment.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpUrl {
    text: String,
    is_https: bool,
    host: String,
    port: u16,
    target: String,
}

impl HttpUrl {
    pub(crate) const HAS_USER: &str = "the URL has a user: give a token in `token_file` instead";

    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in words that do not repeat it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_config::HttpUrl;
    ///
    /// let url = HttpUrl::parse("https://config.example/limits?env=prod")?;
    /// assert!(url.is_https());
    /// assert_eq!((url.host(), url.port()), ("config.example", 443));
    /// assert_eq!(url.target(), "/limits?env=prod");
    /// assert!(HttpUrl::parse("ftp://config.example").is_err());
    /// # Ok::<(), &'static str>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (is_https, rest) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) => return Err("the scheme of the URL is neither `http` nor `https`"),
            None => return Err("the URL has no scheme"),
        };
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("the URL contains a space or a character outside of ASCII");
        }
        if rest.contains('#') {
            return Err("the URL has a fragment behind `#`, which servers are not sent");
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        if authority.contains('@') {
            return Err(Self::HAS_USER);
        }
        let (host, port) = split_port(authority)?;
        let default = if is_https { 443 } else { 80 };
        let port = match port {
            Some(digits) => digits
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or("the port of the URL is not a number from 1 to 65535")?,
            None => default,
        };
        if host.is_empty() {
            return Err("the URL has no host");
        }
        let slash = if tail.starts_with('/') { "" } else { "/" };
        Ok(Self {
            text: text.to_owned(),
            is_https,
            host: host.to_owned(),
            port,
            target: format!("{slash}{tail}"),
        })
    }

    /// Returns the URL as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Tells whether the scheme is `https`.
    pub const fn is_https(&self) -> bool {
        self.is_https
    }

    /// Returns the host, an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL with another path and query, which begin with `/`.
    #[must_use]
    pub fn with_target(&self, target: &str) -> Self {
        let authority = self.text.find("://").map_or(0, |scheme| scheme + 3);
        let path = self.text[authority..].find(['/', '?']);
        let base = path.map_or(self.text.as_str(), |path| &self.text[..authority + path]);
        Self { text: format!("{base}{target}"), target: target.to_owned(), ..self.clone() }
    }

    /// Returns the path and the query, at least `/`.
    pub fn target(&self) -> &str {
        &self.target
    }
}

fn split_port(authority: &str) -> Result<(&str, Option<&str>), &'static str> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, tail) = rest.split_once(']').ok_or("the `[` of the URL is not closed")?;
        host.parse::<std::net::Ipv6Addr>().map_err(|_| "in `[]` stands no IPv6 address")?;
        return match tail.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if tail.is_empty() => Ok((host, None)),
            None => Err("behind `]` the URL has no `:` and port"),
        };
    }
    match authority.split_once(':') {
        Some((_, port)) if port.contains(':') => Err("IPv6 stands in brackets in a URL"),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((authority, None)),
    }
}

/// Writes the URL without its query, which may hold a secret.
impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text.split_once('?') {
            Some((base, _)) => write!(f, "{base}?***"),
            None => f.write_str(&self.text),
        }
    }
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpUrl({:?})", self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        for (text, is_https, host, port, target) in [
            ("http://a", false, "a", 80, "/"),
            ("https://a.example:8443/x/y?z=1", true, "a.example", 8443, "/x/y?z=1"),
            ("http://a?z", false, "a", 80, "/?z"),
            ("http://[::1]:81/", false, "::1", 81, "/"),
            ("https://[::1]", true, "::1", 443, "/"),
        ] {
            let url = HttpUrl::parse(text).unwrap();
            assert_eq!(
                (url.is_https(), url.host(), url.port(), url.target()),
                (is_https, host, port, target)
            );
        }
    }

    #[test]
    fn another_path_leaves_the_server() {
        for text in
            ["http://[::1]:81", "http://[::1]:81/", "http://[::1]:81/a/b?c", "http://[::1]:81?c"]
        {
            let url = HttpUrl::parse(text).unwrap().with_target("/x?y");
            assert_eq!(url, HttpUrl::parse("http://[::1]:81/x?y").unwrap());
        }
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for text in [
            "",
            "a",
            "ftp://a",
            "http://",
            "http:///x",
            "http://a:0",
            "http://a:x",
            "http://a:65536",
            "http://u@a",
            "http://a b",
            "http://a/#x",
            "http://::1/",
            "http://[::1",
            "http://[x]",
            "http://[::1]x",
        ] {
            assert!(HttpUrl::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_query_is_not_shown() {
        let url = HttpUrl::parse("http://a/x?token=secret").unwrap();
        assert_eq!(url.to_string(), "http://a/x?***");
        assert!(!format!("{url:?}").contains("secret"));
    }
}
