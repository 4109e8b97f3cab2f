//! Accepts connections, as many as there may be, and ends those that say nothing.

mod door;
mod guests;
mod heads;
mod pulse;
mod requests;
mod streams;

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::ConnectInfo;
use axum::response::IntoResponse;
use futures_util::FutureExt;
use futures_util::future::{self, ready};
use http::{Request, Response, StatusCode};
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tollgate_config::ListenLimits;
use tower::ServiceExt;

use crate::http::Problem;
use crate::tls::ListenerTls;

pub(crate) use self::door::BACKLOG;
use self::door::Door;
use self::guests::Guests;
use self::heads::Heads;
use self::pulse::{Counted, Heard, InFlight, Over, Pulse};
use self::requests::Requests;
use self::streams::{Driver, Streams};

/// What one listener grants its clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The most connections at a time. Those that come when there are so many wait.
    pub(crate) connections_max: usize,
    /// The most headers of a request, and the most bytes of all of them.
    pub(crate) headers_max: usize,
    pub(crate) header_bytes_max: u32,
    /// The most bytes that an HTTP/2 request may be ahead of the service.
    pub(crate) stream_window: u32,
    /// How long the head of a request may take once it has begun, and a TLS handshake.
    pub(crate) header_timeout: Duration,
    /// How long a connection may stay without a request.
    pub(crate) idle_timeout: Duration,
    /// Whether the connection that has asked nothing for the longest gives way to a new one when there
    /// is no place, so that nobody can hold all of them.
    pub(crate) gives_way: bool,
    /// Whether a request of that path may wait for what others give back, and so ends with its client.
    pub(crate) awaits_others: fn(&str) -> bool,
}

impl Bounds {
    /// Returns what the listeners for requests grant.
    pub(crate) fn of(limits: &ListenLimits) -> Self {
        Self {
            connections_max: limits.connections_max,
            headers_max: limits.headers_max,
            header_bytes_max: limits.header_bytes_max,
            stream_window: stream_window(limits.body_bytes_max),
            header_timeout: limits.header_timeout,
            idle_timeout: limits.idle_timeout,
            gives_way: false,
            awaits_others: |_| false,
        }
    }

    /// Returns what the admin listener grants.
    pub(crate) fn of_admin(limits: &ListenLimits) -> Self {
        Self { connections_max: limits.admin_connections_max, gives_way: true, ..Self::of(limits) }
    }
}

/// Returns a window for the whole of nearly every body, for one of several MiB a part.
fn stream_window(body_bytes_max: usize) -> u32 {
    u32::try_from(body_bytes_max).unwrap_or(u32::MAX).clamp(256 << 10, CONNECTION_WINDOW)
}

/// How often a silent HTTP/2 connection is asked whether it still lives, and how long it has to
/// say so.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// How long a client that is told that its idle connection ends may take to let go of it.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// The same for one that gives way to another, which waits meanwhile.
const WAY_TIMEOUT: Duration = Duration::from_millis(20);

/// How long a connection that has just been opened may take to ask when the service stops.
const FRESH: Duration = Duration::from_millis(100);

/// How often a connection without a place looks for another that gives way.
const WAY_INTERVAL: Duration = Duration::from_millis(50);

/// The most requests at a time of one listener that have not been answered in full, unless it grants
/// even more connections.
const REQUESTS_MAX: usize = 10_000;

/// The most bytes that an HTTP/2 connection may be ahead of the service with all its requests: seldom
/// enough that a client is told to go on, every thousands of calls.
const CONNECTION_WINDOW: u32 = 1 << 20;

/// The most requests at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 128;

/// Answers requests, of which each comes with the address of its peer.
pub(crate) trait Service:
    Fn(Request<Incoming>, SocketAddr) -> Self::Answering + Clone + Send + 'static
{
    type Answering: Future<Output = Response<Self::Body>> + Send + 'static;
    type Body: HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static;
}

impl<S, F, B> Service for S
where
    S: Fn(Request<Incoming>, SocketAddr) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    type Answering = F;
    type Body = B;
}

/// Makes a service of a router, whose handlers find the address of the peer as [`ConnectInfo`].
pub(crate) fn routed(router: Router) -> impl Service<Body = Body> {
    move |request, peer| route(router.clone(), request, peer)
}

/// Answers by a router.
pub(crate) async fn route(
    router: Router,
    request: Request<impl HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static>,
    peer: SocketAddr,
) -> Response<Body> {
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(ConnectInfo(peer));
    match router.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Answers on `listener` by `service`, within `bounds`, by TLS if there is a `tls`, until `stopped`
/// says `true` or its sender is gone. Then it finishes what is in flight and returns. Requests beyond the most
/// at a time are counted as `refused`.
pub(crate) async fn serve(
    listener: TcpListener,
    service: impl Service,
    bounds: Bounds,
    tls: Option<Arc<ListenerTls>>,
    refused: Counter,
    stopped: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(bounds.connections_max));
    let requests = Arc::new(Requests::new(bounds.connections_max.max(REQUESTS_MAX), refused));
    let heads = Arc::new(Heads::default());
    let mut guests = Guests::new(bounds.connections_max);
    let mut door = Door::new(listener);
    let mut stopping = stopped.clone();
    let greet = move |(stream, peer), place, guests: &mut Guests| {
        let opened = Instant::now();
        let pulse = Arc::new(Pulse::new(opened, Arc::clone(&requests), Arc::clone(&heads)));
        if bounds.gives_way {
            guests.add(&pulse);
        }
        let (service, stopped) = (service.clone(), stopped.clone());
        let connection = Connection { service, bounds, peer, opened, pulse, stopped };
        let acceptor = tls.as_ref().map(|tls| tls.acceptor());
        tokio::spawn(async move {
            connection.shake_hands(stream, acceptor).await;
            drop(place);
        });
    };
    loop {
        let accepted = async {
            let connected = door.accept().await;
            (connected, place(&places, bounds.gives_way.then_some(&mut guests)).await)
        };
        let (connected, place) = tokio::select! {
            accepted = accepted => accepted,
            _ = stopping.wait_for(|stop| *stop) => break,
        };
        greet(connected, place, &mut guests);
    }
    // Those who have connected meanwhile count on an answer.
    for connected in door.closed() {
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { break };
        greet(connected, Some(place), &mut guests);
    }
    // Every connection holds a place, so all of them are there again once the last has ended.
    let all = u32::try_from(bounds.connections_max).unwrap_or(u32::MAX);
    let _ = places.acquire_many(all).await;
}

/// Waits for a place, for which one of `guests` gives way.
async fn place(
    places: &Arc<Semaphore>,
    mut guests: Option<&mut Guests>,
) -> Option<OwnedSemaphorePermit> {
    if let Ok(place) = Arc::clone(places).try_acquire_owned() {
        return Some(place);
    }
    loop {
        // The semaphore is never closed.
        let place = Arc::clone(places).acquire_owned();
        let Some(guests) = &mut guests else { return place.await.ok() };
        guests.make_way();
        if let Ok(place) = timeout(WAY_INTERVAL, place).await {
            return place.ok();
        }
    }
}

fn builder(bounds: &Bounds, streams: Streams) -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(streams);
    builder
        .http1()
        .timer(TokioTimer::new())
        // What a connection does is watched here, for both protocols and apart from idleness.
        .header_read_timeout(None)
        .max_headers(bounds.headers_max)
        .max_buf_size(bounds.header_bytes_max as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL)
        .max_header_list_size(bounds.header_bytes_max)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(bounds.stream_window)
        .max_concurrent_streams(STREAMS_MAX);
    builder
}

/// A connection that has been accepted.
struct Connection<S> {
    service: S,
    bounds: Bounds,
    peer: SocketAddr,
    opened: Instant,
    pulse: Arc<Pulse>,
    stopped: watch::Receiver<bool>,
}

impl<S: Service> Connection<S> {
    /// Answers on `stream`, by TLS if there is an `acceptor`, until either side ends it.
    async fn shake_hands(self, stream: TcpStream, acceptor: Option<TlsAcceptor>) {
        let Some(acceptor) = acceptor else { return self.serve(stream).await };
        let (pulse, patience) = (Arc::clone(&self.pulse), self.bounds.header_timeout);
        let shaken = tokio::select! {
            shaken = acceptor.accept(stream) => shaken,
            // A client that does not shake hands is let go.
            _ = pulse.over(patience, patience) => return,
        };
        match shaken {
            Ok(encrypted) => self.serve(encrypted).await,
            Err(error) => tracing::debug!(%error, peer = %self.peer, "no TLS with a client"),
        }
    }

    /// Answers on `stream` until either side ends it.
    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let Self { service, bounds, peer, opened, pulse, stopped } = self;
        let watched = Arc::clone(&pulse);
        let service = service_fn(move |request: Request<Incoming>| {
            let in_flight = watched.begin((bounds.awaits_others)(request.uri().path()));
            // A future is held once, and not moved about in others that hold it twice.
            let answering = match refusal(&request, &bounds, &in_flight) {
                Some(refusal) => {
                    let refused = refusal.into_response().map(Either::Right);
                    future::Either::Right(ready(refused))
                }
                None => {
                    let answered = service(request, peer);
                    future::Either::Left(answered.map(|answer| answer.map(Either::Left)))
                }
            };
            answering.map(move |response| {
                Ok::<_, Infallible>(response.map(|body| Counted::new(body, in_flight)))
            })
        });
        let io = TokioIo::new(Heard::new(stream, Arc::clone(&pulse)));
        let streams = Streams::default();
        let builder = builder(&bounds, streams.clone());
        let mut served = Driver::new(builder.serve_connection(io, service), streams);
        let over = tokio::select! {
            // A connection that breaks concerns its client only.
            _ = &mut served => return,
            () = stop(stopped, opened + FRESH) => None,
            over = pulse.over(bounds.header_timeout, bounds.idle_timeout) => Some(over),
        };
        match over {
            Some(Over::Idle) => {
                served.connection().graceful_shutdown();
                drop(timeout(GOODBYE_TIMEOUT, served).await);
            }
            Some(Over::Way) if pulse.takes_goodbye() => {
                served.connection().graceful_shutdown();
                drop(timeout(WAY_TIMEOUT, served).await);
            }
            Some(Over::Head | Over::Way | Over::Untaken) => {}
            // What is in flight is finished, unless it is still on its way here.
            None => {
                served.connection().graceful_shutdown();
                tokio::select! {
                    _ = served => {}
                    _ = pulse.over(bounds.header_timeout, bounds.idle_timeout) => {}
                }
            }
        }
    }
}

/// Waits until the service stops and its clients have had the time to ask.
async fn stop(mut stopped: watch::Receiver<bool>, asked_by: Instant) {
    let _ = stopped.wait_for(|stop| *stop).await;
    sleep_until(asked_by).await;
}

/// Says why a request is not looked at, if it is not.
fn refusal<B>(request: &Request<B>, bounds: &Bounds, in_flight: &InFlight) -> Option<Problem> {
    let headers_max = bounds.headers_max;
    // HTTP/1 has been refused before, while it was read.
    if request.headers().len() > headers_max {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        let detail = format!("the request has more than {headers_max} headers");
        return Some(Problem::new(status, detail));
    }
    in_flight.is_one_too_many().then(|| {
        let detail = "too many requests are not answered yet: ask again, or another node";
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        problem.with_retry_after(Duration::from_secs(1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::sleep;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n";
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const SOON: Duration = Duration::from_millis(100);
    const MUCH_LATER: Duration = Duration::from_secs(30);

    const ROOMY: Bounds = Bounds {
        connections_max: 10,
        headers_max: 100,
        header_bytes_max: 64 << 10,
        stream_window: 64 << 10,
        header_timeout: MUCH_LATER,
        idle_timeout: MUCH_LATER,
        gives_way: false,
        awaits_others: |_| false,
    };

    async fn start(bounds: Bounds) -> (SocketAddr, watch::Sender<bool>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let router = Router::new().route("/", get(|| async { "hello" }));
        tokio::spawn(serve(listener, routed(router), bounds, None, Counter::default(), stopped));
        (address, stop)
    }

    async fn answer(connection: &mut TcpStream) -> String {
        let mut buffer = [0; 1024];
        let length = connection.read(&mut buffer).await.unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    /// Returns what a client reads that has sent `begun`, and how long it took until the end.
    async fn ended(address: SocketAddr, begun: &[u8]) -> (String, Duration) {
        let (mut connection, start) = (TcpStream::connect(address).await.unwrap(), Instant::now());
        connection.write_all(begun).await.unwrap();
        let mut rest = Vec::new();
        timeout(MUCH_LATER * 3, connection.read_to_end(&mut rest)).await.unwrap().unwrap();
        (String::from_utf8_lossy(&rest).into_owned(), start.elapsed())
    }

    #[tokio::test]
    async fn a_head_that_has_begun_must_come_in_time() {
        let (address, _stop) = start(Bounds { header_timeout: SOON, ..ROOMY }).await;
        for begun in [&b"PR"[..], &REQUEST[..20]] {
            let (answer, took) = ended(address, begun).await;
            assert_eq!(answer, "");
            assert!(took >= SOON, "{took:?}");
        }
        // The head of the next request is no different.
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(REQUEST).await.unwrap();
        assert!(answer(&mut connection).await.ends_with("hello"));
        sleep(SOON * 2).await;
        connection.write_all(&REQUEST[..20]).await.unwrap();
        assert_eq!(timeout(MUCH_LATER, answer(&mut connection)).await.unwrap(), "");
    }

    #[tokio::test]
    async fn a_connection_that_asks_nothing_ends_after_the_idle_timeout() {
        let (address, _stop) = start(Bounds { idle_timeout: SOON, ..ROOMY }).await;
        // Without anything, after a request, and after what HTTP/2 begins with.
        for begun in [&b""[..], REQUEST, PREFACE] {
            let (answer, took) = ended(address, begun).await;
            assert_eq!(answer.ends_with("hello"), begun == REQUEST);
            assert!(took >= SOON, "{took:?}");
        }
    }

    #[tokio::test]
    async fn an_idle_http2_connection_may_wait_longer_than_a_head() {
        let bounds = Bounds { header_timeout: SOON / 10, idle_timeout: SOON, ..ROOMY };
        let (address, _stop) = start(bounds).await;
        let (_, took) = ended(address, PREFACE).await;
        assert!(took >= SOON, "{took:?}");
    }

    /// A client of HTTP/2 that lets the service send nothing, and asks for a path of one letter.
    fn takes_nothing(path: u8) -> Vec<u8> {
        let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
        let head = [0x82, 0x86, 0x44, 2, b'/', path, 0x41, 1, b'x'];
        let frame = [0, 0, head.len() as u8, 1, 5, 0, 0, 0, 1];
        [&PREFACE[..24], &settings, &frame, &head].concat()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_take_its_answer_is_let_go_and_one_that_waits_for_more_is_not() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let lasting = get(|| async {
            Body::from_stream(futures_util::stream::pending::<Result<Bytes, Infallible>>())
        });
        let hello = get(|| async { "hello" });
        let router = Router::new().route("/a", hello).route("/b", lasting);
        let (_stop, stopped) = watch::channel(false);
        let bounds =
            Bounds { header_timeout: MUCH_LATER * 9, idle_timeout: MUCH_LATER * 9, ..ROOMY };
        tokio::spawn(serve(listener, routed(router), bounds, None, Counter::default(), stopped));
        let (_, took) = ended(address, &takes_nothing(b'a')).await;
        assert!((5..=11).contains(&took.as_secs()), "{took:?}");

        let mut waits = takes_nothing(b'b');
        waits[32 + 2] = 1; // The window has a byte, and the service waits for its own.
        let (_, took) = ended(address, &waits).await;
        assert!(took > MUCH_LATER, "until it is asked whether it still lives: {took:?}");
    }

    #[tokio::test]
    async fn a_request_in_flight_is_not_idle() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let slow = get(|| async {
            sleep(SOON * 3).await;
            "hello"
        });
        let bounds = Bounds { header_timeout: SOON, idle_timeout: SOON, ..ROOMY };
        let (_stop, stopped) = watch::channel(false);
        let router = Router::new().route("/", slow);
        tokio::spawn(serve(listener, routed(router), bounds, None, Counter::default(), stopped));
        let (answer, took) = ended(address, REQUEST).await;
        assert!(answer.ends_with("hello"), "{answer}");
        assert!(took >= SOON * 4, "idle only from the answer on: {took:?}");
    }

    #[tokio::test]
    async fn a_client_that_ends_its_side_is_answered_unless_its_request_may_wait_for_others() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let slow = || {
            get(|| async {
                sleep(SOON).await;
                "hello"
            })
        };
        let bounds = Bounds { awaits_others: |path| path == "/waits", ..ROOMY };
        let (_stop, stopped) = watch::channel(false);
        let never = get(std::future::pending::<&str>);
        let router =
            Router::new().route("/", slow()).route("/waits", slow()).route("/never", never);
        tokio::spawn(serve(listener, routed(router), bounds, None, Counter::default(), stopped));
        // Nobody waits for ever for one that may have gone away.
        for (path, answered) in [("/", true), ("/waits", false), ("/never", false)] {
            let mut client = TcpStream::connect(address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n");
            client.write_all(request.as_bytes()).await.unwrap();
            client.shutdown().await.unwrap();
            let mut rest = String::new();
            timeout(MUCH_LATER, client.read_to_string(&mut rest)).await.unwrap().unwrap();
            assert_eq!(rest.ends_with("hello"), answered, "{path}: {rest:?}");
        }
    }

    #[tokio::test]
    async fn a_request_beyond_the_most_of_a_listener_is_refused() {
        let pulse = Arc::new(Pulse::new(
            Instant::now(),
            Arc::new(Requests::new(1, Counter::default())),
            Arc::default(),
        ));
        let request = Request::new(());
        let (first, second) = (pulse.begin(false), pulse.begin(false));
        assert!(refusal(&request, &ROOMY, &first).is_none());
        let refused = refusal(&request, &ROOMY, &second).unwrap().into_response();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.headers()["retry-after"], "1");
        drop((first, second));
        assert!(!pulse.begin(false).is_one_too_many());
    }

    #[tokio::test]
    async fn a_client_that_does_not_shake_hands_in_time_is_let_go() {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = (folder.path().join("cert"), folder.path().join("key"));
        let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&cert, signed.cert.pem()).unwrap();
        std::fs::write(&key, signed.signing_key.serialize_pem()).unwrap();
        let files = tollgate_config::ListenerTls { cert, key, client_ca: None };
        let tls = Some(Arc::new(ListenerTls::new("http", &files).unwrap()));
        let bounds = Bounds { connections_max: 1, header_timeout: SOON, ..ROOMY };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_stop, stopped) = watch::channel(false);
        tokio::spawn(serve(
            listener,
            routed(Router::new()),
            bounds,
            tls,
            Counter::default(),
            stopped,
        ));
        for begun in [&b""[..], &[22, 3, 1]] {
            // The second is accepted only once the first has given its place back.
            let mut connection = TcpStream::connect(address).await.unwrap();
            connection.write_all(begun).await.unwrap();
            let closed = timeout(MUCH_LATER, answer(&mut connection)).await.unwrap();
            assert_eq!(closed, "");
        }
    }

    #[tokio::test]
    async fn a_connection_beyond_the_most_waits_for_a_place() {
        let bounds = Bounds { connections_max: 1, ..ROOMY };
        let (address, _stop) = start(bounds).await;
        let mut first = TcpStream::connect(address).await.unwrap();
        first.write_all(REQUEST).await.unwrap();
        assert!(answer(&mut first).await.ends_with("hello"));
        let mut second = TcpStream::connect(address).await.unwrap();
        second.write_all(REQUEST).await.unwrap();
        assert!(timeout(SOON, answer(&mut second)).await.is_err());
        drop(first);
        assert!(timeout(MUCH_LATER, answer(&mut second)).await.unwrap().ends_with("hello"));
    }

    #[tokio::test]
    async fn an_idle_connection_does_not_hold_up_the_stop() {
        let (address, stop) = start(ROOMY).await;
        let mut idle = TcpStream::connect(address).await.unwrap();
        idle.write_all(REQUEST).await.unwrap();
        assert!(answer(&mut idle).await.ends_with("hello"));
        stop.send_replace(true);
        let closed = timeout(MUCH_LATER, answer(&mut idle)).await.unwrap();
        assert_eq!(closed, "");
        assert!(TcpStream::connect(address).await.is_err());
    }
}
