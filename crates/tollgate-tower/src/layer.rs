//! The layer: what is configured once and shared by all services made from it.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::response;
use ipnet::IpNet;
use tollgate::{Cost, Limiter, Matcher};
use tower_layer::Layer;

use crate::extractor::Extractor;
use crate::headers::HeaderFormat;
use crate::peer_watch::PeerWatch;
use crate::refund::RefundIf;
use crate::response::ProblemResponse;
use crate::service::RateLimit;
use crate::skip::SkipList;

/// Limits the requests to the services it wraps.
///
/// All services made from a layer and its clones share the limiter and so the budget. See the
/// [crate docs](crate) for the rules and examples.
#[derive(Clone)]
#[must_use]
pub struct RateLimitLayer<R = ProblemResponse> {
    limiter: Limiter,
    settings: Settings,
    rejection: R,
}

/// What a service needs to know beside its limiter.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) extractor: Extractor,
    pub(crate) cost: RequestCost,
    /// `None` waits for nothing but the delay of a leaky bucket.
    pub(crate) max_wait: Option<Duration>,
    pub(crate) headers: HeaderFormat,
    pub(crate) peers: PeerWatch,
    pub(crate) skipped: SkipList,
    pub(crate) refund_if: Option<RefundIf>,
}

/// What one request costs.
#[derive(Clone)]
pub(crate) enum RequestCost {
    Fixed(Cost),
    Of(Arc<CostOf>),
    Async(Arc<AsyncCostOf>),
}

type CostOf = dyn Fn(&Parts) -> Cost + Send + Sync;
type AsyncCostOf = dyn Fn(Parts) -> Pin<Box<dyn Future<Output = Cost> + Send>> + Send + Sync;

impl RequestCost {
    pub(crate) const fn is_async(&self) -> bool {
        matches!(self, Self::Async(_))
    }

    /// Returns the cost if that takes no time.
    pub(crate) fn at_once(&self, request: &Parts) -> Option<Cost> {
        match self {
            Self::Fixed(cost) => Some(*cost),
            Self::Of(cost) => Some(cost(request)),
            Self::Async(_) => None,
        }
    }

    pub(crate) async fn of(&self, request: Parts) -> Cost {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Of(cost) => cost(&request),
            Self::Async(cost) => cost(request).await,
        }
    }
}

impl RateLimitLayer {
    /// Makes the layer that judges requests by `limiter`.
    ///
    /// The attributes are `ip`, `path` and `method`, a request costs one unit and waits for nothing
    /// but the delay of a leaky bucket, and a rejection is answered by [`ProblemResponse`].
    pub fn new(limiter: Limiter) -> Self {
        let settings = Settings {
            extractor: Extractor::default(),
            cost: RequestCost::Fixed(Cost::ONE),
            max_wait: None,
            headers: HeaderFormat::default(),
            peers: PeerWatch::default(),
            skipped: SkipList::default(),
            refund_if: None,
        };
        Self { limiter, settings, rejection: ProblemResponse }
    }
}

impl<R> RateLimitLayer<R> {
    /// Sets how the attributes of a request are found.
    pub fn attributes(mut self, extractor: Extractor) -> Self {
        self.settings.extractor = extractor;
        self
    }

    /// Sets what every request costs. The default is one unit; 0 makes the layer report the limits
    /// without ever denying.
    pub fn cost(mut self, cost: Cost) -> Self {
        self.settings.cost = RequestCost::Fixed(cost);
        self
    }

    /// Sets what a request costs by its head: its method, URI, headers and extensions.
    ///
    /// A cost that a client can choose, such as the size of a batch from a header, must be checked
    /// against what it then asks for. One above the burst of a rule is answered with 422.
    pub fn cost_of<F>(mut self, cost: F) -> Self
    where
        F: Fn(&Parts) -> Cost + Send + Sync + 'static,
    {
        self.settings.cost = RequestCost::Of(Arc::new(cost));
        self
    }

    /// Sets what a request costs as [`cost_of`](Self::cost_of) does, by a future that is given a
    /// copy of the request's head. The request waits for it before it is judged.
    pub fn cost_of_async<F, T>(mut self, cost: F) -> Self
    where
        F: Fn(Parts) -> T + Send + Sync + 'static,
        T: Future<Output = Cost> + Send + 'static,
    {
        self.settings.cost = RequestCost::Async(Arc::new(move |request| Box::pin(cost(request))));
        self
    }

    /// Gives the requests of a route the attribute `route`, for rules that match or key on it. A
    /// layer and its clones share the budget, so each route can have one of its own name:
    ///
    /// ```
    /// use axum::Router;
    /// use axum::routing::{get, post};
    /// use tollgate::{Limiter, Quota, Rule};
    /// use tollgate_tower::RateLimitLayer;
    ///
    /// # fn app() -> Result<Router, Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder()
    ///     .rule(Rule::new("per-ip", Quota::from_rate("100/s".parse()?)?).with_key(["ip"]))
    ///     .rule(
    ///         Rule::new("exports", Quota::from_rate("5/min".parse()?)?)
    ///             .with_match("route", ["export"])
    ///             .with_key(["ip"]),
    ///     )
    ///     .build()?;
    /// let limit = RateLimitLayer::new(limiter);
    ///
    /// let app = Router::new()
    ///     .route("/export", post(|| async { "done" }).layer(limit.clone().for_route("export")))
    ///     .route("/cart", get(|| async { "cart" }).layer(limit.for_route("cart")));
    /// # Ok(app)
    /// # }
    /// # app().unwrap();
    /// ```
    ///
    /// `Extractor::route`, of the feature `axum`, does it for all routes of an axum router at once.
    pub fn for_route(mut self, route: impl Into<Cow<'static, str>>) -> Self {
        self.settings.extractor = self.settings.extractor.constant("route", route);
        self
    }

    /// Lets requests that match pass unlimited and unmarked, for instance
    /// `Matcher::new().with("path", ["/healthz", "/assets/*"])`. Of several calls each adds to the
    /// list. A store is not asked about such a request.
    pub fn skip(mut self, requests: Matcher) -> Self {
        self.settings.skipped.push_matcher(requests);
        self
    }

    /// Lets requests of clients in these networks pass unlimited and unmarked. The address is that
    /// of the attribute `ip` before IPv6 addresses are grouped, as its [`ClientIp`](crate::ClientIp)
    /// finds it.
    pub fn skip_networks(mut self, networks: impl IntoIterator<Item = IpNet>) -> Self {
        self.settings.skipped.push_networks(networks);
        self
    }

    /// Lets requests pass unlimited and unmarked of which `predicate` is true.
    pub fn skip_if<F>(mut self, predicate: F) -> Self
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        self.settings.skipped.push_predicate(Arc::new(predicate));
        self
    }

    /// Gives a request its cost back when `predicate` is true of the head of its response, or when
    /// the service fails. Without it what was spent stays spent.
    ///
    /// ```
    /// # use tollgate::Limiter;
    /// # use tollgate_tower::RateLimitLayer;
    /// # let limiter = Limiter::builder().build()?;
    /// let layer = RateLimitLayer::new(limiter)
    ///     .refund_if(|response| response.status.is_server_error());
    /// # let _ = layer;
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    ///
    /// The response waits for the refund, at most for the deadline of the store, and its headers
    /// tell what is left then. A refund that the store does not take is given up. If the store had
    /// not answered the check either, nothing was spent there and nothing is given back.
    pub fn refund_if<F>(mut self, predicate: F) -> Self
    where
        F: Fn(&response::Parts) -> bool + Send + Sync + 'static,
    {
        self.settings.refund_if = Some(Arc::new(predicate));
        self
    }

    /// Sets how long a request may wait until it may go on: for units, for a slot of a concurrency
    /// rule, and for the delay of a leaky bucket.
    ///
    /// Without it a request waits for the delay of a leaky bucket only, however long that is: at
    /// most the time in which its queue drains, burst / rate. Units and slots have to be there.
    ///
    /// With it a request whose wait would be longer is turned away at once, and `Retry-After` says
    /// when it would not have to wait. Those who wait are served first come, first served within
    /// this process. Each holds its connection and its request meanwhile, so keep it short where
    /// clients can make many; zero turns away whatever would have to wait.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.settings.max_wait = Some(max_wait);
        self
    }

    /// Sets which headers are written. The default is all of them.
    pub fn headers(mut self, format: HeaderFormat) -> Self {
        self.settings.headers = format;
        self
    }

    /// Sets what the client is told when its request is turned away: a
    /// [`RejectionResponse`](crate::RejectionResponse) for the body of the service, such as a
    /// closure `|rejection: &Rejection, request: &Parts| -> Response<B>`.
    pub fn on_rejection<T>(self, rejection: T) -> RateLimitLayer<T> {
        RateLimitLayer { limiter: self.limiter, settings: self.settings, rejection }
    }
}

impl<S, R: Clone> Layer<S> for RateLimitLayer<R> {
    type Service = RateLimit<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        let settings = Arc::new(self.settings.clone());
        RateLimit::new(inner, self.limiter.clone(), settings, self.rejection.clone())
    }
}

impl<R> fmt::Debug for RateLimitLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("limiter", &self.limiter)
            .field("extractor", &self.settings.extractor)
            .field("headers", &self.settings.headers)
            .field("skipped", &self.settings.skipped)
            .finish_non_exhaustive()
    }
}
