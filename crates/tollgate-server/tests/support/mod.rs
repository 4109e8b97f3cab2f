//! A running service, and the plainest HTTP client.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tollgate::{Attributes, Limiter, ManualClock};
use tollgate_config::Config;
use tollgate_server::Server;

/// How long any answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running service on free ports. It stops when it is dropped.
pub(crate) struct Service {
    pub(crate) http: SocketAddr,
    #[allow(dead_code, reason = "only the tests of Envoy ask there")]
    pub(crate) grpc: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) limiter: Limiter,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
}

impl Service {
    /// Starts a service of the configuration, which names no addresses.
    pub(crate) async fn start(config: &str) -> Self {
        Self::run(Server::bind(&parse(config)).await.unwrap())
    }

    /// Starts a service on a memory store, with a clock that the test owns.
    pub(crate) async fn start_with_clock(config: &str, clock: &ManualClock) -> Self {
        let config = parse(config);
        let limiter = Limiter::builder().clock(clock.clone()).build().unwrap();
        limiter.replace_rules(config.rules.clone());
        Self::run(Server::bind_with_limiter(&config, limiter).await.unwrap())
    }

    pub(crate) fn run(server: Server) -> Self {
        let (http, admin) = (server.http_addr(), server.admin_addr());
        let grpc = server.grpc_addr().unwrap();
        let limiter = server.limiter().clone();
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run(async { drop(stopped.await) }));
        Self { http, grpc, admin, limiter, stop: Some(stop), running }
    }

    /// Tells the service to stop; it finishes what is in flight.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Stops the service and waits until it has.
    pub(crate) async fn stopped(mut self) {
        self.stop();
        timeout(PATIENCE, &mut self.running).await.unwrap().unwrap();
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Reply {
        request(self.http, "POST", path, &[], body.as_bytes()).await
    }

    /// Asks `/v1/auth` with these headers.
    pub(crate) async fn auth(&self, headers: &[(&str, &str)]) -> Reply {
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        request(self.http, "GET", "/v1/auth", &headers, b"").await
    }

    pub(crate) async fn admin(&self, path: &str) -> Reply {
        request(self.admin, "GET", path, &[], b"").await
    }

    /// Waits until so many units or slots are left for a request with these attributes.
    pub(crate) async fn left(&self, attributes: &Attributes, count: u32) {
        for _ in 0..1_000 {
            if self.limiter.peek(attributes).await.unwrap().remaining() == Some(count) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("there are never {count} left");
    }

    /// Returns the value of a metric, written with its labels, if there is one.
    pub(crate) async fn metric(&self, name: &str) -> Option<f64> {
        let page = self.admin("/metrics").await.body;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(|value| value.parse().unwrap())
    }
}

/// Parses a configuration that gets free loopback ports.
pub(crate) fn parse(config: &str) -> Config {
    let text =
        format!("listen: {{ http: 127.0.0.1:0, grpc: 127.0.0.1:0, admin: 127.0.0.1:0 }}\n{config}");
    Config::parse(&text, "test.yaml").unwrap_or_else(|errors| panic!("{errors}"))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Names in lower case, in the order received.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(known, _)| known == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert_eq!(values.next(), None, "{name} stands once");
        value
    }

    /// Returns the headers but for those that every answer has.
    pub(crate) fn own_headers(&self) -> Vec<(&str, &str)> {
        let common = ["connection", "content-length", "date"];
        let own = self.headers.iter().filter(|(name, _)| !common.contains(&name.as_str()));
        own.map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Sends one request on a connection of its own.
pub(crate) async fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &[u8])],
    body: &[u8],
) -> Reply {
    let connection = TcpStream::connect(address).await.unwrap();
    exchange(connection, method, path, headers, body).await
}

/// Sends one request on this connection.
pub(crate) async fn exchange(
    mut connection: TcpStream,
    method: &str,
    path: &str,
    headers: &[(&str, &[u8])],
    body: &[u8],
) -> Reply {
    connection.write_all(&head(method, path, headers, body.len())).await.unwrap();
    connection.write_all(body).await.unwrap();
    reply(&mut connection).await
}

/// Writes the head of a request that closes the connection.
pub(crate) fn head(
    method: &str,
    path: &str,
    headers: &[(&str, &[u8])],
    body_len: usize,
) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    if body_len > 0 {
        head += &format!("content-length: {body_len}\r\n");
    }
    let mut head = head.into_bytes();
    for (name, value) in headers {
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// Reads one reply, up to the end of the connection.
pub(crate) async fn reply(connection: &mut TcpStream) -> Reply {
    let mut bytes = Vec::new();
    timeout(PATIENCE, connection.read_to_end(&mut bytes)).await.unwrap().unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap();
    let header = |line: &str| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    Reply {
        status: status.parse().unwrap(),
        headers: lines.map(header).collect(),
        body: body.to_owned(),
    }
}
