//! What a load is put on.

mod grpc;
mod http;
mod redis;

use self::grpc::{Envoy, Stream};
use self::http::{Connection, Service};
use self::redis::Library;
use super::options::Bench;

/// What is asked. One more kind of target is one more variant here and in [`Caller`].
#[derive(Debug)]
pub(super) enum Target {
    Http(Service),
    Grpc(Envoy),
    Redis(Library),
}

/// Asks a target, one question at a time.
#[derive(Debug)]
pub(super) enum Caller<'t> {
    Http(Connection<'t>),
    Grpc(Stream<'t>),
    Redis(&'t Library),
}

impl Target {
    /// Reads the address, and makes sure that something answers there.
    pub(super) async fn new(args: &Bench) -> Result<Self, String> {
        let (scheme, rest) = args.url.split_once("://").unwrap_or_default();
        match scheme {
            "http" => Ok(Self::Http(Service::new(rest, args).await?)),
            "grpc" => Ok(Self::Grpc(Envoy::new(rest, args).await?)),
            "redis" | "rediss" | "unix" | "redis+unix" => {
                Ok(Self::Redis(Library::new(args).await?))
            }
            _ => Err(format!(
                "cannot tell what {:?} is: write http://HOST:PORT, grpc://HOST:PORT or \
                 redis://HOST:PORT",
                args.url
            )),
        }
    }

    /// Returns how many requests may be in flight on one connection.
    pub(super) const fn streams(&self) -> usize {
        match self {
            Self::Grpc(_) => grpc::STREAMS,
            Self::Http(_) | Self::Redis(_) => 1,
        }
    }

    pub(super) fn caller(&self, number: usize) -> Caller<'_> {
        match self {
            Self::Http(service) => Caller::Http(service.connection()),
            Self::Grpc(envoy) => Caller::Grpc(envoy.stream(number)),
            Self::Redis(library) => Caller::Redis(library),
        }
    }
}

impl Caller<'_> {
    /// Asks for a key and tells whether it was allowed. After a failure the next question starts anew.
    pub(super) async fn ask(&mut self, key: u32) -> Result<bool, String> {
        match self {
            Self::Http(connection) => connection.ask(key).await,
            Self::Grpc(stream) => stream.ask(key).await,
            Self::Redis(library) => library.ask(key).await,
        }
    }
}

/// The value of the attribute that is the key.
fn value(key: u32) -> String {
    let [_, a, b, c] = key.to_be_bytes();
    format!("10.{a}.{b}.{c}")
}
