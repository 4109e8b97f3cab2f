//! Accepts connections, as many as there may be, and ends those that say nothing.

mod head_timer;
mod streams;

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::ConnectInfo;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt;

use self::head_timer::HeadTimer;
use self::streams::{Driver, Streams};
use crate::tls::ListenerTls;

/// What one listener grants its clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The most connections at a time. Those that come when there are so many wait.
    pub(crate) connections_max: usize,
    /// How long an HTTP/1 connection may take to send the head of its next request, and so stay
    /// idle.
    pub(crate) head_timeout: Duration,
}

/// How often a silent HTTP/2 connection is asked whether it still lives, and how long it has to
/// say so.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// How long no connection is accepted after that failed, for lack of file descriptors as a rule.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often such a failure is logged at most.
const ACCEPT_WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// The most headers of a request, and the most bytes of all of them.
const HEADERS_MAX: usize = 100;
const HEADERS_BYTES_MAX: u32 = 64 << 10;

/// The most requests at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;

/// Answers requests, of which each comes with the address of its peer.
pub(crate) trait Service:
    Fn(Request<Incoming>, SocketAddr) -> Self::Answering + Clone + Send + 'static
{
    type Answering: Future<Output = Response<Self::Body>> + Send + 'static;
    type Body: HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;
}

impl<S, F, B> Service for S
where
    S: Fn(Request<Incoming>, SocketAddr) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
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

/// Answers on `listener` by `service`, within `bounds`, by TLS if there is a `tls`, until `stopped` says `true` or its sender is
/// gone. Then it finishes what is in flight and returns.
pub(crate) async fn serve(
    listener: TcpListener,
    service: impl Service,
    bounds: Bounds,
    tls: Option<Arc<ListenerTls>>,
    mut stopped: watch::Receiver<bool>,
) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(bounds.connections_max));
    let mut door = Door { listener, warned: None };
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let place = Arc::clone(&places).acquire_owned().await.ok();
            (door.accept().await, place)
        };
        let ((connection, peer), place) = tokio::select! {
            accepted = accepted => accepted,
            _ = stopped.wait_for(|stop| *stop) => break,
        };
        let begun = Arc::new(Begun::default());
        let answerer = Answerer { service: service.clone(), peer, begun: Arc::clone(&begun) };
        let watcher = graceful.watcher();
        let acceptor = tls.as_ref().map(|tls| tls.acceptor());
        tokio::spawn(async move {
            let connection = async {
                match acceptor {
                    None => answerer.answer(connection, bounds, watcher).await,
                    Some(acceptor) => match acceptor.accept(connection).await {
                        Ok(encrypted) => answerer.answer(encrypted, bounds, watcher).await,
                        Err(error) => tracing::debug!(%error, %peer, "no TLS with a client"),
                    },
                }
            };
            tokio::select! {
                () = connection => {}
                () = begun.missing_after(bounds.head_timeout) => {}
            }
            drop(place);
        });
    }
    drop(door);
    graceful.shutdown().await;
}

/// Answers the requests of one connection.
struct Answerer<S> {
    service: S,
    peer: SocketAddr,
    begun: Arc<Begun>,
}

impl<S: Service> Answerer<S> {
    async fn answer(
        self,
        connection: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        bounds: Bounds,
        watcher: Watcher,
    ) {
        let Self { service, peer, begun } = self;
        let streams = Streams::default();
        let builder = builder(bounds, streams.clone());
        let service = service_fn(move |request| {
            begun.tell();
            let answering = service(request, peer);
            async move { Ok::<_, Infallible>(answering.await) }
        });
        let served = builder.serve_connection(TokioIo::new(connection), service);
        // A connection that breaks concerns its client only.
        drop(Driver::new(watcher.watch(served.into_owned()), streams).await);
    }
}

fn builder(bounds: Bounds, streams: Streams) -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(streams);
    builder
        .http1()
        .timer(HeadTimer::default())
        .header_read_timeout(bounds.head_timeout)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADERS_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL)
        .max_header_list_size(HEADERS_BYTES_MAX)
        .max_concurrent_streams(STREAMS_MAX);
    builder
}

/// Whether the first request of a connection has begun.
#[derive(Debug, Default)]
struct Begun {
    is_told: AtomicBool,
    told: Notify,
}

impl Begun {
    fn tell(&self) {
        if !self.is_told.load(Ordering::Relaxed) {
            self.is_told.store(true, Ordering::Relaxed);
            self.told.notify_one();
        }
    }

    /// Is done if no request has begun in time. The time for the head of a request counts only from
    /// when the protocol is known, which may never be.
    async fn missing_after(&self, head_timeout: Duration) {
        if timeout(head_timeout, self.told.notified()).await.is_ok() {
            std::future::pending().await
        }
    }
}

struct Door {
    listener: TcpListener,
    warned: Option<Instant>,
}

impl Door {
    /// Accepts the next connection, however often that fails before.
    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((connection, peer)) => {
                    // Nagle's algorithm would hold small answers back for up to 40 ms.
                    if let Err(error) = connection.set_nodelay(true) {
                        tracing::debug!(%error, "cannot set TCP_NODELAY");
                    }
                    return (connection, peer);
                }
                Err(error) => {
                    self.warn(&error);
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn warn(&mut self, error: &std::io::Error) {
        let now = Instant::now();
        let is_due = self.warned.is_none_or(|last| now - last >= ACCEPT_WARNING_INTERVAL);
        if is_due {
            self.warned = Some(now);
            tracing::warn!(%error, "cannot accept connections, raise the limit of open files");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n";
    const SOON: Duration = Duration::from_millis(100);
    const MUCH_LATER: Duration = Duration::from_secs(30);

    async fn start(bounds: Bounds) -> (SocketAddr, watch::Sender<bool>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let router = Router::new().route("/", get(|| async { "hello" }));
        tokio::spawn(serve(listener, routed(router), bounds, None, stopped));
        (address, stop)
    }

    async fn answer(connection: &mut TcpStream) -> String {
        let mut buffer = [0; 1024];
        let length = connection.read(&mut buffer).await.unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[tokio::test]
    async fn connections_that_do_not_send_a_whole_head_in_time_are_closed() {
        let bounds = Bounds { connections_max: 10, head_timeout: SOON };
        let (address, _stop) = start(bounds).await;
        for begun in [&b""[..], b"PR", &REQUEST[..20], REQUEST] {
            let mut connection = TcpStream::connect(address).await.unwrap();
            connection.write_all(begun).await.unwrap();
            let mut rest = Vec::new();
            timeout(MUCH_LATER, connection.read_to_end(&mut rest)).await.unwrap().unwrap();
            let answered = String::from_utf8_lossy(&rest).ends_with("hello");
            assert_eq!(answered, begun.len() == REQUEST.len());
        }
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
        let bounds = Bounds { connections_max: 1, head_timeout: SOON };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_stop, stopped) = watch::channel(false);
        tokio::spawn(serve(listener, routed(Router::new()), bounds, tls, stopped));
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
        let bounds = Bounds { connections_max: 1, head_timeout: MUCH_LATER };
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
        let bounds = Bounds { connections_max: 10, head_timeout: MUCH_LATER };
        let (address, stop) = start(bounds).await;
        let mut idle = TcpStream::connect(address).await.unwrap();
        idle.write_all(REQUEST).await.unwrap();
        assert!(answer(&mut idle).await.ends_with("hello"));
        stop.send_replace(true);
        let closed = timeout(MUCH_LATER, answer(&mut idle)).await.unwrap();
        assert_eq!(closed, "");
        assert!(TcpStream::connect(address).await.is_err());
    }
}
