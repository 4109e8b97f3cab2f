//! Envoy's rate limit protocol, as a service answers it over gRPC.

use std::net::SocketAddr;

use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Mutex;
use tollgate_envoy::RateLimiter;
use tollgate_envoy::proto::rate_limit_descriptor::Entry;
use tollgate_envoy::proto::rate_limit_response::Code;
use tollgate_envoy::proto::{RateLimitDescriptor, RateLimitRequest};

use super::value;
use crate::bench::options::Bench;

/// The most requests at a time on one connection: as many as every server should allow.
pub(super) const STREAMS: usize = 100;

/// The longest answer that is read.
const ANSWER_LEN_MAX: usize = 64 * 1024;

/// A service that answers `ShouldRateLimit`.
#[derive(Debug)]
pub(in crate::bench) struct Envoy {
    address: SocketAddr,
    host: String,
    uri: Uri,
    domain: String,
    /// The entries of the descriptor up to that of the key.
    entries: Vec<Entry>,
    attribute: String,
    connections: Vec<Connection>,
}

/// A connection, once it is open.
type Connection = Mutex<Option<Sender>>;

type Sender = SendRequest<Full<Bytes>>;

/// Asks on a connection that it shares with others, which is opened when it is needed.
#[derive(Debug)]
pub(in crate::bench) struct Stream<'e> {
    envoy: &'e Envoy,
    connection: &'e Connection,
    sender: Option<Sender>,
}

/// As much of an answer as matters here.
#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(int32, tag = "1")]
    overall_code: i32,
}

impl Envoy {
    pub(super) async fn new(rest: &str, args: &Bench) -> Result<Self, String> {
        let host = rest.split('/').next().unwrap_or_default().to_owned();
        if !host.contains(':') {
            return Err(format!("{host:?} names no port: write grpc://HOST:PORT"));
        }
        let unreachable = |error| format!("cannot reach {host}: {error}");
        let address = lookup_host(&host).await.map_err(unreachable)?.next();
        let address = address.ok_or_else(|| format!("{host} has no address"))?;
        let uri = format!("http://{host}{}", RateLimiter::PATH);
        let uri = uri.parse().map_err(|error| format!("{host:?} is no address: {error}"))?;
        let entry =
            |(key, value): &(String, String)| Entry { key: key.clone(), value: value.clone() };
        let connections = (0..args.connections).map(|_| Connection::default()).collect();
        let envoy = Self {
            address,
            host,
            uri,
            domain: args.domain.clone(),
            entries: args.attributes.iter().map(entry).collect(),
            attribute: args.attribute.clone(),
            connections,
        };
        envoy.connect().await.map_err(|error| format!("cannot reach {}: {error}", envoy.host))?;
        Ok(envoy)
    }

    /// Returns the caller with a number; callers of neighbouring numbers have other connections.
    pub(super) fn stream(&self, number: usize) -> Stream<'_> {
        let connection = &self.connections[number % self.connections.len()];
        Stream { envoy: self, connection, sender: None }
    }

    async fn connect(&self) -> Result<Sender, String> {
        let stream = TcpStream::connect(self.address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|error| chain(&error))?;
        // How it ends is told by the requests on it.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    /// Writes a request as a message of gRPC.
    fn message(&self, key: u32) -> Bytes {
        let mut entries = self.entries.clone();
        entries.push(Entry { key: self.attribute.clone(), value: value(key) });
        let descriptor = RateLimitDescriptor { entries, ..RateLimitDescriptor::default() };
        let request = RateLimitRequest {
            domain: self.domain.clone(),
            descriptors: vec![descriptor],
            hits_addend: 0,
        };
        let len = u32::try_from(request.encoded_len()).unwrap_or(u32::MAX);
        let mut message = vec![0];
        message.extend_from_slice(&len.to_be_bytes());
        request.encode_raw(&mut message);
        message.into()
    }
}

impl Stream<'_> {
    pub(super) async fn ask(&mut self, key: u32) -> Result<bool, String> {
        let mut sender = match self.sender.take().filter(|sender| !sender.is_closed()) {
            Some(sender) => sender,
            None => self.open().await.map_err(|error| format!("cannot connect: {error}"))?,
        };
        let asked = self.exchange(&mut sender, key).await;
        self.sender = Some(sender);
        asked
    }

    /// Returns the connection that the callers share, opened anew if it has ended.
    async fn open(&self) -> Result<Sender, String> {
        let mut shared = self.connection.lock().await;
        match shared.as_ref().filter(|sender| !sender.is_closed()) {
            Some(sender) => Ok(sender.clone()),
            None => Ok(shared.insert(self.envoy.connect().await?).clone()),
        }
    }

    async fn exchange(&self, sender: &mut Sender, key: u32) -> Result<bool, String> {
        let request = Request::post(self.envoy.uri.clone())
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            .body(Full::new(self.envoy.message(key)))
            .map_err(|error| error.to_string())?;
        let broken = |error: hyper::Error| format!("cannot ask: {}", chain(&error));
        let (head, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
        if head.status != 200 {
            return Err(format!("status {}", head.status.as_u16()));
        }
        refused(&head.headers)?;
        let body = Limited::new(body, ANSWER_LEN_MAX).collect().await;
        let body = body.map_err(|error| format!("cannot read the answer: {error}"))?;
        if let Some(trailers) = body.trailers() {
            refused(trailers)?;
        }
        let body = body.to_bytes();
        let message = body.split_at_checked(5).map(|(_, message)| message);
        let answer = message.and_then(|message| Answer::decode(message).ok());
        match answer.and_then(|answer| Code::try_from(answer.overall_code).ok()) {
            Some(Code::Ok) => Ok(true),
            Some(Code::OverLimit) => Ok(false),
            _ => Err("the answer is neither OK nor OVER_LIMIT".to_owned()),
        }
    }
}

/// Tells what a gRPC status says, unless it says that all went well.
fn refused(headers: &HeaderMap) -> Result<(), String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    match text("grpc-status") {
        None | Some("0") => Ok(()),
        Some(status) => {
            Err(format!("gRPC status {status}: {}", text("grpc-message").unwrap_or_default()))
        }
    }
}

/// Returns what an error says and what is behind it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}
