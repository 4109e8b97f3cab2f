//! An axum service on a loopback socket.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http_body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tollgate::Limiter;
use tollgate_tower::{ClientIp, Extractor, RateLimitLayer};

use crate::support::{leaky, limiter, remaining, rule, slots};

/// A server that ends with the test.
struct Server {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(app: Router) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        let task = tokio::spawn(async move { axum::serve(listener, service).await.unwrap() });
        Self { address, task }
    }

    /// Opens a connection and sends one request on it.
    async fn begin(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// Sends one request on a connection of its own and returns the response as it came, but for
    /// the order of its headers and the date.
    async fn get(&self, path: &str, headers: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        let (status, headers) = head.split_once("\r\n").unwrap();
        let mut headers: Vec<&str> = headers.split("\r\n").collect();
        headers.retain(|line| !line.starts_with("date: "));
        headers.sort_unstable();
        format!("{status}\n{}\n\n{body}", headers.join("\n"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn status(response: &str) -> &str {
    response.split(' ').nth(1).unwrap()
}

#[tokio::test]
async fn an_axum_service_limits_its_clients_end_to_end() {
    let (limiter, _) = limiter([rule("per-ip", "20/min", 2).with_key(["ip"])]);
    let app =
        Router::new().route("/", get(|| async { "hello" })).layer(RateLimitLayer::new(limiter));
    let server = Server::start(app).await;

    assert_eq!(
        server.get("/", "").await,
        "HTTP/1.1 200 OK\n\
         connection: close\n\
         content-length: 5\n\
         content-type: text/plain; charset=utf-8\n\
         ratelimit-policy: \"per-ip\";q=2;w=6\n\
         ratelimit: \"per-ip\";r=1;t=3\n\
         x-ratelimit-limit: 2\n\
         x-ratelimit-remaining: 1\n\
         x-ratelimit-reset: 3\n\
         \n\
         hello"
    );
    assert_eq!(status(&server.get("/", "").await), "200");
    assert_eq!(
        server.get("/", "x-forwarded-for: 6.6.6.6\r\n").await,
        concat!(
            "HTTP/1.1 429 Too Many Requests\n",
            "connection: close\n",
            "content-length: 242\n",
            "content-type: application/problem+json\n",
            "ratelimit-policy: \"per-ip\";q=2;w=6\n",
            "ratelimit: \"per-ip\";r=0;t=3\n",
            "retry-after: 3\n",
            "x-ratelimit-limit: 2\n",
            "x-ratelimit-remaining: 0\n",
            "x-ratelimit-reset: 6\n",
            "x-ratelimit-rule: per-ip\n",
            "\n",
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
            r#""title":"Too Many Requests","status":429,"#,
            r#""detail":"the rate limit is used up: try again in 3000 ms","#,
            r#""rule":"per-ip","retry_after_ms":3000,"violated-policies":["per-ip"]}"#,
        )
    );
}

#[tokio::test]
async fn two_routers_with_one_layer_share_the_budget_and_routes_without_it_are_free() {
    let (limiter, _) = limiter([rule("per-ip", "1/min", 3).with_key(["ip"])]);
    let layer = RateLimitLayer::new(limiter);
    let shop = Router::new().route("/", get(|| async { "shop" })).layer(layer.clone());
    let admin = Router::new().route("/", get(|| async { "admin" })).layer(layer);
    let open = Router::new().route("/health", get(|| async { "ok" }));
    let shop = Server::start(shop.merge(open)).await;
    let admin = Server::start(admin).await;

    assert_eq!(status(&shop.get("/", "").await), "200");
    assert_eq!(status(&admin.get("/", "").await), "200");
    assert_eq!(status(&shop.get("/", "").await), "200");
    assert_eq!(status(&admin.get("/", "").await), "429");
    assert_eq!(status(&shop.get("/", "").await), "429");
    assert!(shop.get("/health", "").await.ends_with("\n\nok"));
}

#[tokio::test]
async fn clients_behind_a_loopback_proxy_are_told_apart() {
    let (limiter, _) = limiter([rule("per-ip", "1/min", 1).with_key(["ip"])]);
    let proxies = ClientIp::new().trust(["127.0.0.0/8".parse().unwrap()]);
    let layer = RateLimitLayer::new(limiter).attributes(Extractor::default().client_ip(proxies));
    let server = Server::start(Router::new().route("/", get(|| async { "" })).layer(layer)).await;

    let forwarded = |client: &str| format!("x-forwarded-for: 6.6.6.6, {client}\r\n");
    assert_eq!(status(&server.get("/", &forwarded("203.0.113.7")).await), "200");
    assert_eq!(status(&server.get("/", &forwarded("203.0.113.8")).await), "200");
    assert_eq!(status(&server.get("/", &forwarded("203.0.113.7")).await), "429");
}

/// Waits until so many units or slots are left.
async fn left(limiter: &Limiter, count: u32) {
    for _ in 0..1_000 {
        if remaining(limiter).await == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{} are left, not {count}", remaining(limiter).await);
}

/// A body that gives a piece for every message, and ends when its sender is dropped.
struct Stream(mpsc::Receiver<&'static str>);

impl http_body::Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = ready!(self.0.poll_recv(cx));
        Poll::Ready(piece.map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes())))))
    }
}

#[tokio::test]
async fn a_slot_is_held_until_the_stream_has_ended_or_its_reader_goes_away() {
    let (limiter, _) = limiter([slots("streams", 2)]);
    let (sender, receiver) = mpsc::channel(2);
    let streams = Arc::new(Mutex::new(vec![receiver]));
    let (other, receiver) = mpsc::channel(2);
    streams.lock().unwrap().insert(0, receiver);
    let stream = move || {
        let receiver = streams.lock().unwrap().pop().unwrap();
        async { axum::body::Body::new(Stream(receiver)) }
    };
    let app = Router::new().route("/", get(stream)).layer(RateLimitLayer::new(limiter.clone()));
    let server = Server::start(app).await;

    let mut reader = server.begin("/").await;
    sender.send("one").await.unwrap();
    let mut seen = String::new();
    while !seen.contains("one") {
        let mut bytes = [0; 1024];
        let count = reader.read(&mut bytes).await.unwrap();
        seen += str::from_utf8(&bytes[..count]).unwrap();
    }
    assert!(seen.contains("\r\nratelimit: \"streams\";r=1\r\n"), "{seen}");
    left(&limiter, 1).await;
    let mut leaving = server.begin("/").await;
    other.send("two").await.unwrap();
    leaving.read_u8().await.unwrap();
    left(&limiter, 0).await;
    let third = server.get("/", "").await;
    assert_eq!(status(&third), "429", "{third}");

    drop(sender);
    left(&limiter, 1).await;
    drop(leaving);
    left(&limiter, 2).await;
    drop(other);
}

#[tokio::test]
async fn a_client_that_goes_away_while_it_waits_leaves_nothing_spent() {
    let (limiter, _) = limiter([leaky("sms", "1/min", 5)]);
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(RateLimitLayer::new(limiter.clone()));
    let server = Server::start(app).await;
    assert_eq!(status(&server.get("/", "").await), "200");
    let waiting = server.begin("/").await;
    left(&limiter, 3).await;
    drop(waiting);
    left(&limiter, 4).await;
}

#[tokio::test]
async fn a_handler_that_panics_releases_its_slot() {
    let (limiter, _) = limiter([slots("exports", 1)]);
    let panics = || async { std::panic::resume_unwind(Box::new("bug")) as () };
    let app = Router::new().route("/", get(panics)).layer(RateLimitLayer::new(limiter.clone()));
    let server = Server::start(app).await;
    for _ in 0..3 {
        let mut connection = server.begin("/").await;
        assert_eq!(connection.read(&mut [0; 64]).await.unwrap(), 0, "no answer");
        left(&limiter, 1).await;
    }
}

#[tokio::test]
async fn rules_can_name_routes_and_handlers_extract_the_verdict() {
    use axum::Extension;
    use axum::extract::Path;
    use tollgate::Verdict;

    let (limiter, _) = limiter([
        rule("users", "1/hour", 2).with_match("route", ["/users/{id}"]).with_key(["ip"]),
        rule("export", "1/hour", 1).with_match("route", ["export"]),
    ]);
    let layer = RateLimitLayer::new(limiter);
    let by_route = layer.clone().attributes(Extractor::default().route());
    let user = |Path(id): Path<u32>, Extension(verdict): Extension<Verdict>| async move {
        format!("user {id}, {:?} left", verdict.remaining())
    };
    let app = Router::new()
        .route("/users/{id}", get(user))
        .route("/about", get(|| async { "about" }))
        .layer(by_route)
        .route("/export", get(|| async { "export" }).layer(layer.clone().for_route("export")))
        .route("/import", get(|| async { "import" }).layer(layer.for_route("import")));
    let server = Server::start(app).await;

    let body = |response: String| response.rsplit("\n\n").next().unwrap().to_owned();
    assert_eq!(body(server.get("/users/1", "").await), "user 1, Some(1) left");
    assert_eq!(body(server.get("/users/2", "").await), "user 2, Some(0) left");
    assert_eq!(status(&server.get("/users/3", "").await), "429");
    for (path, expected) in
        [("/about", "200"), ("/export", "200"), ("/export", "429"), ("/import", "200")]
    {
        assert_eq!(status(&server.get(path, "").await), expected, "{path}");
    }
}
