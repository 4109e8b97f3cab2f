//! A running service with Envoy's side of the protocol.

use tollgate::{Limiter, ManualClock};
use tollgate_config::EnvoyLimits;
use tollgate_envoy::proto::rate_limit_service_client::RateLimitServiceClient;
use tollgate_envoy::proto::{RateLimitRequest, RateLimitResponse};
use tollgate_server::Server;
use tonic::Status;
use tonic::transport::Channel;

use crate::support::{Service, parse};
use crate::text;

/// A configuration whose rules concern nobody here.
pub(crate) const NO_RULES: &str = "rules: [{ name: unused, domain: unused, limit: 1/s }]";

/// A service with a clock that the test owns, and a client of it.
pub(crate) struct Rls {
    pub(crate) service: Service,
    pub(crate) clock: ManualClock,
    client: RateLimitServiceClient<Channel>,
}

impl Rls {
    /// Starts a service of a configuration and of files in the format of envoyproxy/ratelimit.
    pub(crate) async fn start(config: &str, files: &[&str]) -> Self {
        let mut config = parse(config);
        for file in files {
            let limits = EnvoyLimits::parse(file, "limits.yaml");
            let limits = limits.unwrap_or_else(|errors| panic!("{errors}"));
            config.envoy_limits.domains.extend(limits.domains);
        }
        let clock = ManualClock::new();
        let limiter = Limiter::builder().clock(clock.clone()).build().unwrap();
        limiter.replace_rules(config.rules.clone());
        let server = Server::bind_with_limiter(&config, limiter).await.unwrap();
        Self::of(Service::run(server), clock).await
    }

    pub(crate) async fn of(service: Service, clock: ManualClock) -> Self {
        let client = RateLimitServiceClient::new(channel(&service).await);
        Self { service, clock, client }
    }

    pub(crate) async fn send(
        &self,
        request: RateLimitRequest,
    ) -> Result<RateLimitResponse, Status> {
        self.client.clone().should_rate_limit(request).await.map(tonic::Response::into_inner)
    }

    /// Sends a request as [`text::request`] reads it.
    pub(crate) async fn ask(&self, request: &str) -> RateLimitResponse {
        self.send(text::request(request)).await.unwrap_or_else(|status| panic!("{status}"))
    }
}

pub(crate) async fn channel(service: &Service) -> Channel {
    Channel::from_shared(format!("http://{}", service.grpc)).unwrap().connect().await.unwrap()
}
