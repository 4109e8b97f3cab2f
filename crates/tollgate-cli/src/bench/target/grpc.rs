//! Envoy's rate limit protocol, as a service answers it over gRPC.

use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::sync::Mutex;
use tollgate_envoy::RateLimiter;
use tollgate_envoy::proto::rate_limit_descriptor::Entry;
use tollgate_envoy::proto::rate_limit_response::Code;
use tollgate_envoy::proto::{RateLimitDescriptor, RateLimitRequest};

use super::address::Address;
use super::{Answered, value};
use crate::bench::options::Bench;

/// The most requests at a time on one connection: as many as every server should allow.
pub(super) const STREAMS: usize = 100;

/// The longest answer that is read.
const ANSWER_LEN_MAX: usize = 64 * 1024;

/// A service that answers `ShouldRateLimit`.
#[derive(Debug)]
pub(in crate::bench) struct Envoy {
    address: Address,
    uri: Uri,
    domain: String,
    /// The entries of the descriptor up to that of the key.
    entries: Vec<Entry>,
    attribute: String,
    connections: Vec<Connection>,
}

/// A connection, if it is open.
type Connection = Mutex<Option<Sender>>;

type Sender = SendRequest<Full<Bytes>>;

/// Asks on a connection that it shares with others, which is opened anew when it has ended.
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
    #[prost(message, repeated, tag = "2")]
    statuses: Vec<Status>,
}

/// As much of the status of a descriptor as matters here.
#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(bytes = "vec", optional, tag = "2")]
    current_limit: Option<Vec<u8>>,
    #[prost(uint32, tag = "3")]
    limit_remaining: u32,
}

impl Status {
    /// Tells whether a rule applied: one without a limit leaves the most that can be told.
    const fn has_rule(&self) -> bool {
        self.current_limit.is_some() || self.limit_remaining > 0
    }
}

impl Envoy {
    pub(super) async fn new(rest: &str, args: &Bench) -> Result<Self, String> {
        let address = Address::read("grpc", rest, None).await?;
        let host = &address.host;
        let uri = format!("http://{host}{}", RateLimiter::PATH);
        let uri = uri.parse().map_err(|error| format!("{host:?} is no address: {error}"))?;
        let entry =
            |(key, value): &(String, String)| Entry { key: key.clone(), value: value.clone() };
        let open = address.open(args.connections, connect).await?;
        let connections = open.into_iter().map(|sender| Mutex::new(Some(sender))).collect();
        Ok(Self {
            address,
            uri,
            domain: args.domain().to_owned(),
            entries: args.attributes.iter().map(entry).collect(),
            attribute: args.attribute.clone(),
            connections,
        })
    }

    /// Returns the caller with a number; callers of neighbouring numbers have other connections.
    pub(super) fn stream(&self, number: usize) -> Stream<'_> {
        let connection = &self.connections[number % self.connections.len()];
        Stream { envoy: self, connection, sender: None }
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
    pub(super) async fn ask(&mut self, key: u32) -> Result<Answered, String> {
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
            None => Ok(shared.insert(connect(self.envoy.address.clone()).await?).clone()),
        }
    }

    async fn exchange(&self, sender: &mut Sender, key: u32) -> Result<Answered, String> {
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
        let answer = answer.ok_or("the answer is none of ShouldRateLimit")?;
        let is_allowed = match Code::try_from(answer.overall_code) {
            Ok(Code::Ok) => true,
            Ok(Code::OverLimit) => false,
            _ => return Err("the answer is neither OK nor OVER_LIMIT".to_owned()),
        };
        Ok(Answered { is_allowed, has_rule: answer.statuses.iter().any(Status::has_rule) })
    }
}

async fn connect(address: Address) -> Result<Sender, String> {
    let stream = address.connect().await?;
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(|error| chain(&error))?;
    // How it ends is told by the requests on it.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
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
