//! The listener for Envoy.

use std::convert::Infallible;
use std::future::Future;
use std::mem;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::header::CONTENT_TYPE;
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use axum::body::{Body, Bytes, HttpBody};
use axum::{BoxError, Router};
use futures_util::future;
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Frame, Incoming};
use tokio::time::timeout;
use tollgate::{CheckError, Part, Verdict};
use tollgate_config::EnvoyConfig;
use tollgate_envoy::{Health, Observer, RateLimiter, routes};
use tonic::metadata::GRPC_CONTENT_TYPE;
use tonic::{Code, Status};

use crate::accept::{Service, route};
use crate::app::App;
use crate::arriving::Arriving;
use crate::body::{Lost, receive};
use crate::denials::Kind;
use crate::metrics::Listener;

/// How long a request may take to arrive and to be answered. The store has its own, shorter
/// deadline, so this one ends those who do not send what they began.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The most bytes of a request, as servers of gRPC take them unless told otherwise. Envoy puts headers of
/// its clients into each descriptor, and lets those pass whose requests are refused.
const REQUEST_LEN_MAX: usize = 4 << 20;

/// The name that the metrics give to Envoy's requests.
const ENDPOINT: &str = "envoy";

const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";

/// The most bytes that a health check or a reflection of services may send.
const OTHER_LEN_MAX: usize = 8 << 10;

/// The most bytes of all such calls.
const OTHERS_BYTES_MAX: usize = 32 << 20;

/// What tonic takes for such a call beside what it sends.
const OTHER_BYTES: usize = 20 << 10;

/// The bytes before a message: whether it is compressed, and its length.
const PREFIX_LEN: usize = 5;

pub(crate) fn rate_limiter(app: &Arc<App>, config: EnvoyConfig) -> RateLimiter {
    let (limits, watch) = (app.live.limits.live().clone(), Watch(Arc::clone(app)));
    RateLimiter::with_observer(app.limiter.clone(), limits, config, app.edge.envoy.clone(), watch)
}

pub(crate) async fn service(app: &Arc<App>, limiter: RateLimiter) -> (impl Service, Health) {
    let request_len_max = app.body_bytes_max.max(REQUEST_LEN_MAX);
    let (routes, health) = routes(limiter.clone(), request_len_max).await;
    let grpc = Arc::new(Grpc {
        app: Arc::clone(app),
        limiter,
        request_len_max,
        router: routes.prepare().into_axum_router(),
        others: Arc::new(Arriving::new(OTHERS_BYTES_MAX)),
    });
    let service = move |request: Request<Incoming>, peer| {
        let grpc = Arc::clone(&grpc);
        if request.uri().path() == RateLimiter::PATH && grpc.app.tracer.is_none() {
            return future::Either::Left(grpc.answer_call(Call::new(request), peer));
        }
        // Boxed, so that a call is not moved about with room for it.
        future::Either::Right(Box::pin(async move { grpc.answer(request, peer).await }))
    };
    (service, health)
}

/// Answers what comes over gRPC.
struct Grpc {
    app: Arc<App>,
    limiter: RateLimiter,
    /// The most bytes of the message of a request.
    request_len_max: usize,
    router: Router,
    /// The calls of other methods.
    others: Arc<Arriving>,
}

/// What is judged at once, or what the router answers.
type Answer = Either<Reply, Body>;

impl Grpc {
    /// Answers all but calls that are not traced.
    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> Response<Answer> {
        if request.uri().path() == RateLimiter::PATH {
            let span = self.app.tracer.as_ref().and_then(|tracer| tracer.grpc(request.headers()));
            let answering = self.answer_call(Call::new(request), peer);
            return match span {
                None => answering.await,
                Some(span) => span.answer(answering).await,
            };
        }
        let _in_flight = self.app.metrics.begin(Listener::Grpc);
        if request.uri().path() == HEALTH_CHECK {
            return self.check_health(request, peer).await.map(Either::Right);
        }
        self.route_other(request, peer).await.map(Either::Right)
    }

    /// Answers a call of Envoy. What the future needs it takes with it, and holds it once.
    #[expect(clippy::manual_async_fn, reason = "an async fn holds what it is given twice")]
    fn answer_call(
        self: Arc<Self>,
        mut call: Call,
        peer: SocketAddr,
    ) -> impl Future<Output = Response<Answer>> + Send + 'static {
        async move {
            let _in_flight = self.app.metrics.begin(Listener::Grpc);
            match self.judge(&mut call).await {
                Ok(response) => response,
                Err(body) => {
                    let request = Request::from_parts(*call.head, Full::new(body));
                    Box::pin(self.route(request, peer)).await.map(Either::Right)
                }
            }
        }
    }

    /// Judges a call, or gives back the body of one that is not plain.
    async fn judge(&self, call: &mut Call) -> Result<Response<Answer>, Bytes> {
        let head = &call.head;
        let received = receive(
            &mut call.body,
            self.request_len_max + PREFIX_LEN,
            REQUEST_TIMEOUT,
            head.version,
            &self.app.arriving,
            || header_bytes(&head.headers),
        );
        let body = match received.await {
            Ok(body) => body,
            Err(lost) => {
                let status = self.refused(lost);
                self.note_refused(lost, &status);
                return Ok(status.into_http().map(Either::Right));
            }
        };
        let (is_plain, patience) = said(&call.head);
        let Some(message) = message(&body).filter(|_| is_plain) else { return Err(body) };
        let answer = || self.limiter.answer(message, patience);
        let answered = match self.app.at_once(answer) {
            Some(answered) => answered,
            // Boxed, since it has some kilobytes and what holds it is moved several times.
            None => Box::pin(answer()).await,
        };
        Ok(match answered {
            Ok(answer) => replied(answer),
            Err(status) => status.into_http().map(Either::Right),
        })
    }

    /// Answers a health check, which does not last, whatever others do that may.
    async fn check_health(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<Body> {
        let (head, mut body) = request.into_parts();
        let (version, arriving) = (head.version, &self.app.arriving);
        let held_len = || header_bytes(&head.headers);
        let received =
            receive(&mut body, OTHER_LEN_MAX, REQUEST_TIMEOUT, version, arriving, held_len).await;
        match received {
            Ok(body) => self.route(Request::from_parts(head, Full::new(body)), peer).await,
            Err(lost) => self.refused(lost).into_http(),
        }
    }

    /// Answers watches of health and reflection, which may last. Each counts as the most that it may send
    /// for as long as it does.
    async fn route_other(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<Body> {
        let held_len = header_bytes(request.headers()) + OTHER_LEN_MAX + OTHER_BYTES;
        let Some(share) = self.others.begin(request.version(), held_len) else {
            return self.refused(Lost::NoRoom).into_http();
        };
        let request = request.map(|body| Limited::new(body, OTHER_LEN_MAX));
        let response = self.route(request, peer).await;
        // The closure holds the share until the body is dropped.
        response.map(|body| {
            Body::new(body.map_frame(move |frame| {
                let _held = &share;
                frame
            }))
        })
    }

    /// Answers by tonic, which knows all that gRPC can be.
    async fn route(
        &self,
        request: Request<impl HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static>,
        peer: SocketAddr,
    ) -> Response<Body> {
        match timeout(REQUEST_TIMEOUT, route(self.router.clone(), request, peer)).await {
            Ok(response) => response,
            Err(_) => self.refused(Lost::TooSlow).into_http(),
        }
    }

    /// Tells of a request of Envoy that gets an error, unless Envoy itself has broken it off.
    fn note_refused(&self, lost: Lost, status: &Status) {
        let code = match lost {
            Lost::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Lost::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Lost::NoRoom => StatusCode::SERVICE_UNAVAILABLE,
            Lost::BrokenOff => return,
        };
        self.app.hints.bad_envoy_request(status.message());
        self.app.metrics.count_request(ENDPOINT, code);
    }

    fn refused(&self, lost: Lost) -> Status {
        match lost {
            Lost::TooLarge => Status::out_of_range(format!(
                "the request is larger than {} bytes",
                self.request_len_max
            )),
            Lost::TooSlow => Status::deadline_exceeded(format!(
                "the request took longer than {} s",
                REQUEST_TIMEOUT.as_secs()
            )),
            Lost::NoRoom => Status::resource_exhausted(
                "too many requests have begun and not ended: send the message with the headers",
            ),
            Lost::BrokenOff => Status::cancelled("the request broke off"),
        }
    }
}

fn header_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// A call of Envoy that has not been read.
struct Call {
    /// Boxed, since it is moved several times on its way.
    head: Box<Parts>,
    body: Incoming,
}

impl Call {
    fn new(request: Request<Incoming>) -> Self {
        let (head, body) = request.into_parts();
        Self { head: Box::new(head), body }
    }
}

/// Tells whether a call is as Envoy makes it, and nothing is compressed; and how long the store may take.
fn said(head: &Parts) -> (bool, Option<Duration>) {
    let (mut content_type, mut timeout, mut is_compressed) = (None, None, false);
    // A look at each is less than looking for three. Of several with one name the first counts.
    for (name, value) in &head.headers {
        match name.as_str() {
            "content-type" => content_type = content_type.or(Some(value)),
            "grpc-timeout" => timeout = timeout.or(Some(value)),
            "grpc-encoding" => is_compressed = true,
            _ => {}
        }
    }
    let is_protobuf = content_type.is_some_and(|content_type| {
        matches!(content_type.as_bytes(), b"application/grpc" | b"application/grpc+proto")
    });
    let is_plain = head.method == Method::POST
        && head.version == Version::HTTP_2
        && is_protobuf
        && !is_compressed;
    let patience = timeout.and_then(|timeout| tollgate_envoy::patience(timeout.to_str().ok()?));
    (is_plain, patience)
}

/// Returns the message of a body, if that is one message that is not compressed.
fn message(body: &[u8]) -> Option<&[u8]> {
    let (prefix, message) = body.split_first_chunk::<PREFIX_LEN>()?;
    let [0, length @ ..] = *prefix else { return None };
    (u32::from_be_bytes(length) as usize == message.len()).then_some(message)
}

fn replied(message: Bytes) -> Response<Answer> {
    let mut response = Response::new(Either::Left(Reply::Message(message)));
    // With room for the date.
    let mut headers = HeaderMap::with_capacity(2);
    headers.insert(CONTENT_TYPE, GRPC_CONTENT_TYPE);
    *response.headers_mut() = headers;
    response
}

/// The body of an answer: a message, then trailers that say that this is all.
enum Reply {
    Message(Bytes),
    Trailers,
    Ended,
}

impl HttpBody for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(match mem::replace(&mut *self, Self::Ended) {
            Self::Message(message) => {
                *self = Self::Trailers;
                Some(Ok(Frame::data(message)))
            }
            Self::Trailers => {
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
                Some(Ok(Frame::trailers(trailers)))
            }
            Self::Ended => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Ended)
    }
}

/// Counts what Envoy is answered.
struct Watch(Arc<App>);

impl Observer for Watch {
    fn decided(&self, decided: Result<&Verdict, &CheckError>, took: Duration) {
        self.0.metrics.observe(decided, took);
        self.0.count_decisions(decided);
    }

    fn denied(&self, parts: &[Part], verdict: &Verdict) {
        for (part, decided) in parts.iter().zip(verdict.rules()) {
            if let Some(kind) = Kind::of(decided) {
                self.0.denials.note(kind, part.rule(), part.key());
            }
        }
    }

    fn refused(&self, part: &Part) {
        self.0.denials.note(Kind::Unavailable, part.rule(), part.key());
    }

    fn told(&self, told: Result<&Verdict, &CheckError>) {
        self.0.metrics.count_store_error(told);
        if let Some(tracer) = &self.0.tracer {
            tracer.note_first(told);
        }
    }

    fn judged(&self, is_denied: bool) {
        if let Some(tracer) = &self.0.tracer {
            tracer.note_denied(is_denied);
        }
    }

    fn unknown_domain(&self, domain: &str) {
        self.0.unknown_domain(domain);
    }

    fn mistaken(&self, message: &str) {
        self.0.hints.bad_envoy_request(message);
    }

    fn answered(&self, code: Code) {
        let status = match code {
            Code::Ok => StatusCode::OK,
            Code::InvalidArgument => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        self.0.metrics.count_request(ENDPOINT, status);
    }
}
