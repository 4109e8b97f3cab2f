//! What a load is put on.

mod address;
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

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) is_allowed: bool,
    /// Whether a rule applied to the request.
    pub(super) has_rule: bool,
}

impl Target {
    /// Reads the address, and opens all connections to what is there.
    pub(super) async fn new(args: &Bench) -> Result<Self, String> {
        let (scheme, rest) = args.url.split_once("://").unwrap_or_default();
        if matches!(scheme, "http" | "grpc") || is_redis(scheme) {
            args.agree()?;
        }
        match scheme {
            "http" => Ok(Self::Http(Service::new(rest, args).await?)),
            "grpc" => Ok(Self::Grpc(Envoy::new(rest, args).await?)),
            scheme if is_redis(scheme) => Ok(Self::Redis(Library::new(args).await?)),
            "https" | "grpcs" => Err(format!(
                "TLS is not measured: give the address behind it, as {}://HOST:PORT, of a listener \
                 without certificates",
                scheme.trim_end_matches('s')
            )),
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
    /// Asks for a key and tells what was answered. After a failure the next question starts anew.
    pub(super) async fn ask(&mut self, key: u32) -> Result<Answered, String> {
        match self {
            Self::Http(connection) => connection.ask(key).await,
            Self::Grpc(stream) => stream.ask(key).await,
            Self::Redis(library) => library.ask(key).await,
        }
    }
}

fn is_redis(scheme: &str) -> bool {
    matches!(scheme, "redis" | "rediss" | "unix" | "redis+unix")
}

/// The value of the attribute that is the key.
fn value(key: u32) -> String {
    let [_, a, b, c] = key.to_be_bytes();
    format!("10.{a}.{b}.{c}")
}
