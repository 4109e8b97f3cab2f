//! The service itself.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prost::bytes::Bytes;
use tollgate::{Charge, Clock, Limiter, SystemClock};
use tollgate_config::{EnvoyConfig, EnvoyLimits};
use tonic::{Code, Request, Response, Status};

use crate::answer::{Answer, answer, refused};
use crate::client_reply::ClientReply;
use crate::judge::Judge;
use crate::live_limits::LiveLimits;
use crate::mistake::Mistake;
use crate::observer::{Nobody, Observer};
use crate::patience::patience;
use crate::plan::{Plan, Planner};
use crate::proto::rate_limit_service_server::{RateLimitService, RateLimitServiceServer};
use crate::proto::{RateLimitRequest, RateLimitResponse};
use crate::received;

/// Envoy's RateLimitService v3 on a [`Limiter`].
///
/// See the [crate docs](crate) for an example. Clones share everything.
#[derive(Clone)]
pub struct RateLimiter {
    shared: Arc<Shared>,
}

struct Shared {
    limiter: Limiter,
    limits: LiveLimits,
    config: EnvoyConfig,
    reply: ClientReply,
    observer: Box<dyn Observer>,
}

impl RateLimiter {
    /// The path of the only method.
    pub const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

    /// The most descriptors that a request may have: 1,000.
    pub const DESCRIPTORS_MAX: usize = 1_000;

    /// The most entries that a descriptor may have: 64.
    pub const ENTRIES_MAX: usize = 64;

    /// Makes the service that answers by the rules of `limiter` and by `limits`.
    pub fn new(limiter: Limiter, limits: &EnvoyLimits, config: EnvoyConfig) -> Self {
        let limits = LiveLimits::new(limits);
        Self::with_observer(limiter, limits, config, ClientReply::default(), Nobody)
    }

    /// Makes the service, with limits that can be replaced, what clients are told, and somebody who
    /// watches what it decides.
    pub fn with_observer(
        limiter: Limiter,
        limits: LiveLimits,
        config: EnvoyConfig,
        reply: ClientReply,
        observer: impl Observer,
    ) -> Self {
        let observer = Box::new(observer);
        Self { shared: Arc::new(Shared { limiter, limits, config, reply, observer }) }
    }

    /// Makes the tonic service, which refuses requests of more than `request_len_max` bytes.
    pub fn into_service(self, request_len_max: usize) -> RateLimitServiceServer<Self> {
        RateLimitServiceServer::new(self).max_decoding_message_size(request_len_max)
    }

    /// Judges one request. `patience` is how long the caller can wait for the store, which has a
    /// deadline of its own; after the shorter of the two the failure policies decide.
    ///
    /// # Errors
    ///
    /// A [`Status`] of `INVALID_ARGUMENT` if the request cannot be judged: it has no domain or no
    /// descriptor or too many, an override without a unit, or is charged to too many buckets. A store that
    /// does not answer is not an error.
    pub async fn should_rate_limit(
        &self,
        request: &RateLimitRequest,
        patience: Option<Duration>,
    ) -> Result<RateLimitResponse, Status> {
        Ok(self.decide(&mut request.clone(), patience).await?.into_response())
    }

    /// Judges a request as [`should_rate_limit`](Self::should_rate_limit) does, from message to message as gRPC carries
    /// them: the request without, and the answer with the five bytes before it.
    ///
    /// # Errors
    ///
    /// As there, also if the bytes are no request. Those that are no text where text belongs are taken
    /// as Latin-1: Envoy copies headers of its clients as they are.
    pub async fn answer(
        &self,
        message: &[u8],
        patience: Option<Duration>,
    ) -> Result<Bytes, Status> {
        let mut request = received::decode(message)
            .map_err(|error| self.refused(&format!("the message is no request: {error}")))?;
        Ok(self.decide(&mut request, patience).await?.into_message())
    }

    async fn decide(
        &self,
        request: &mut RateLimitRequest,
        patience: Option<Duration>,
    ) -> Result<Answer, Status> {
        match self.judge(request, patience).await {
            Ok(answer) => {
                self.shared.observer.answered(Code::Ok);
                Ok(answer)
            }
            Err(mistake) => Err(self.refused(&mistake.to_string())),
        }
    }

    /// Tells of a request that cannot be judged.
    fn refused(&self, message: &str) -> Status {
        self.shared.observer.mistaken(message);
        self.shared.observer.answered(Code::InvalidArgument);
        Status::invalid_argument(message)
    }

    /// Finds out what a request is charged to.
    fn plan(&self, request: &mut RateLimitRequest) -> Result<Plan, Mistake> {
        let Shared { limiter, limits, config, observer, .. } = self.shared.as_ref();
        if request.domain.is_empty() {
            return Err(Mistake::no_domain());
        }
        if request.descriptors.is_empty() {
            return Err(Mistake::no_descriptors());
        }
        let count = request.descriptors.len();
        if count > Self::DESCRIPTORS_MAX {
            return Err(Mistake::too_many_descriptors(count, Self::DESCRIPTORS_MAX));
        }
        for (index, descriptor) in request.descriptors.iter().enumerate() {
            let count = descriptor.entries.len();
            if count > Self::ENTRIES_MAX {
                return Err(Mistake::too_many_entries(index, count, Self::ENTRIES_MAX));
            }
        }
        let (rules, limits) = (limiter.rules(), limits.load());
        let planner = Planner::new(&request.domain, &rules, &limits, config.spend_on_denial);
        if !planner.knows_domain() {
            observer.unknown_domain(&request.domain);
        }
        let plan = planner.plan(request)?;
        let most = plan.parts.iter().map(Vec::len).max().unwrap_or(0);
        if most > Charge::COUNT_MAX {
            return Err(Mistake::too_many_buckets(most));
        }
        Ok(plan)
    }

    async fn judge(
        &self,
        request: &mut RateLimitRequest,
        patience: Option<Duration>,
    ) -> Result<Answer, Mistake> {
        let Shared { limiter, config, reply, observer, .. } = self.shared.as_ref();
        let plan = self.plan(request)?;
        let judge = Judge {
            limiter,
            observer: observer.as_ref(),
            spend_on_denial: config.spend_on_denial,
            patience,
        };
        match judge.judge(&plan).await {
            Ok(judged) => {
                observer.judged(judged.is_denied);
                let now = SystemClock.now();
                Ok(answer(&request.domain, &plan, &judged, reply, config.headers, now))
            }
            Err(error) if error.is_store_failure() => {
                observer.judged(true);
                if let Some(part) = error.rule().and_then(|rule| plan.part_of(rule)) {
                    observer.refused(part);
                }
                Ok(refused(&request.domain, &plan, &error, config.headers))
            }
            Err(error) => Err(Mistake::of(&error)),
        }
    }
}

#[tonic::async_trait]
impl RateLimitService for RateLimiter {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let timeout = request.metadata().get("grpc-timeout");
        let patience = timeout.and_then(|timeout| patience(timeout.to_str().ok()?));
        let answer = self.decide(&mut request.into_inner(), patience).await?;
        Ok(Response::new(answer.into_response()))
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter")
            .field("limiter", &self.shared.limiter)
            .field("limits", &self.shared.limits)
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}
