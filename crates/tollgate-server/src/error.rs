//! Why a service does not start.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tollgate::{RuleError, StoreError};

use crate::live::SourceError;
use crate::tls::TlsError;

/// A service that cannot start.
///
/// The text says what was wrong and what to do. It is for the operator; it may name servers, but
/// no password.
#[derive(Debug)]
pub struct ServeError {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Listen { name: &'static str, address: SocketAddr, source: io::Error },
    Store(StoreError),
    Rules(RuleError),
    Source(SourceError),
    Limits(SourceError),
    StateDir { path: PathBuf, source: io::Error },
    Tls { listener: &'static str, problem: TlsError },
    Token { name: String, problem: String },
    Traces(String),
}

impl ServeError {
    pub(crate) const fn listen(name: &'static str, address: SocketAddr, source: io::Error) -> Self {
        Self { kind: Kind::Listen { name, address, source } }
    }

    pub(crate) const fn rules(source: SourceError) -> Self {
        Self { kind: Kind::Source(source) }
    }

    pub(crate) const fn limits(source: SourceError) -> Self {
        Self { kind: Kind::Limits(source) }
    }

    pub(crate) const fn state_dir(path: PathBuf, source: io::Error) -> Self {
        Self { kind: Kind::StateDir { path, source } }
    }

    pub(crate) const fn tls(listener: &'static str, problem: TlsError) -> Self {
        Self { kind: Kind::Tls { listener, problem } }
    }

    pub(crate) const fn token(name: String, problem: String) -> Self {
        Self { kind: Kind::Token { name, problem } }
    }

    pub(crate) const fn traces(problem: String) -> Self {
        Self { kind: Kind::Traces(problem) }
    }

    /// Tells whether the service cannot listen on one of its addresses.
    pub const fn is_listen(&self) -> bool {
        matches!(self.kind, Kind::Listen { .. })
    }

    /// Tells whether the store cannot be made as configured. A Redis server that is down is not
    /// such an error: the service starts without it.
    pub const fn is_store(&self) -> bool {
        matches!(self.kind, Kind::Store(_))
    }

    /// Returns the address that the service cannot listen on.
    pub const fn address(&self) -> Option<SocketAddr> {
        match self.kind {
            Kind::Listen { address, .. } => Some(address),
            _ => None,
        }
    }
}

impl From<StoreError> for ServeError {
    fn from(source: StoreError) -> Self {
        Self { kind: Kind::Store(source) }
    }
}

impl From<RuleError> for ServeError {
    fn from(source: RuleError) -> Self {
        Self { kind: Kind::Rules(source) }
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Listen { name, address, source } => {
                write!(f, "cannot listen on {address} (listen.{name}): ")?;
                match source.kind() {
                    io::ErrorKind::AddrInUse => f.write_str(
                        "another process has this port: stop it, or choose another address",
                    ),
                    io::ErrorKind::AddrNotAvailable => f.write_str(
                        "this machine has no such address: choose one of its own, or 0.0.0.0 for \
                         all of them",
                    ),
                    io::ErrorKind::PermissionDenied => f.write_str(
                        "this user may not take this port: choose one from 1024 up, or give the \
                         process the right to",
                    ),
                    _ => source.fmt(f),
                }
            }
            Kind::Store(source) => write!(f, "the store cannot be used: {source}"),
            Kind::Rules(source) => source.fmt(f),
            Kind::Source(source) => write!(f, "the rules cannot be had: {source} (rules_from)"),
            Kind::Limits(source) => write!(
                f,
                "the limits for Envoy cannot be had, and none are kept in the state_dir: {source}"
            ),
            Kind::StateDir { path, source } => write!(
                f,
                "nothing can be kept in {} (state_dir): {source}: name a folder that this user \
                 may write to",
                path.display()
            ),
            Kind::Tls { listener, problem } => write!(f, "no TLS (tls.{listener}): {problem}"),
            Kind::Token { name, problem } => {
                write!(f, "the admin token {name} cannot be used: {problem}")
            }
            Kind::Traces(problem) => {
                write!(f, "traces cannot be sent (tracing.otlp): {problem}")
            }
        }
    }
}

impl Error for ServeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            Kind::Listen { source, .. } => Some(source),
            Kind::Store(source) => source.source(),
            Kind::StateDir { source, .. } => Some(source),
            _ => None,
        }
    }
}
