//! The layer: what is configured once and shared by all services made from it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tollgate::{Cost, Limiter};
use tower_layer::Layer;

use crate::extractor::Extractor;
use crate::headers::HeaderFormat;
use crate::peer_watch::PeerWatch;
use crate::response::ProblemResponse;
use crate::service::RateLimit;

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
}

/// What one request costs.
#[derive(Clone)]
pub(crate) enum RequestCost {
    Fixed(Cost),
    Of(Arc<CostOf>),
}

type CostOf = dyn Fn(&Parts) -> Cost + Send + Sync;

impl RequestCost {
    pub(crate) fn of(&self, request: &Parts) -> Cost {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Of(cost) => cost(request),
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
            .finish_non_exhaustive()
    }
}
