//! Who may connect and who may ask, as configured.

use std::fmt;
use std::path::PathBuf;

/// The certificates of each listener. One without is not encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tls {
    /// Those of the check API and forward auth.
    pub http: Option<ListenerTls>,
    /// Those of Envoy's rate limit protocol.
    pub grpc: Option<ListenerTls>,
    /// Those of metrics, health and the admin API.
    pub admin: Option<ListenerTls>,
}

/// The files of one listener with TLS, all PEM. They are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerTls {
    /// The certificate, and behind it those that lead to its authority.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// The authorities of which a client must have a certificate; `None` asks for no certificate.
    pub client_ca: Option<PathBuf>,
}

/// Somebody who may use the admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminToken {
    /// Who it is, for the log.
    pub name: String,
    /// What may be done with it.
    pub scope: Scope,
    /// The token.
    pub secret: TokenSecret,
}

/// What may be done with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Metrics and rules may be read.
    Read,
    /// Rules may be changed too.
    Write,
}

/// A token, or where it stands. [`Debug`](fmt::Debug) does not show it.
#[derive(Clone, PartialEq, Eq)]
pub enum TokenSecret {
    /// The token itself, at least 16 characters.
    Text(String),
    /// A file with nothing but the token, which is read again when it changes.
    File(PathBuf),
}

impl AdminToken {
    /// The fewest characters of a token: 16.
    pub const LEN_MIN: usize = 16;
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(***)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}
