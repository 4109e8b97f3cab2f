//! Why a service does not start.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;

use tollgate::{RuleError, StoreError};

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
}

impl ServeError {
    pub(crate) const fn listen(name: &'static str, address: SocketAddr, source: io::Error) -> Self {
        Self { kind: Kind::Listen { name, address, source } }
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
            Kind::Store(_) | Kind::Rules(_) => None,
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
        }
    }
}

impl Error for ServeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            Kind::Listen { source, .. } => Some(source),
            Kind::Store(source) => source.source(),
            Kind::Rules(_) => None,
        }
    }
}
