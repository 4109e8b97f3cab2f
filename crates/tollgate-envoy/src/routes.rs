//! The service with what every gRPC server has beside it.

use tonic::service::Routes;
use tonic_health::pb::FILE_DESCRIPTOR_SET as HEALTH_DESCRIPTORS;
use tonic_health::server::{HealthReporter, health_reporter};
use tonic_reflection::server::Builder;

use crate::proto::DESCRIPTORS;
use crate::proto::rate_limit_service_server::{RateLimitServiceServer, SERVICE_NAME};
use crate::service::RateLimiter;

/// Tells by `grpc.health.v1.Health` whether the service takes requests.
#[derive(Clone, Debug)]
pub struct Health {
    reporter: HealthReporter,
}

impl Health {
    /// Says that the service stops, and ends the streams of those who watch.
    pub async fn stop(mut self) {
        let services = ["", SERVICE_NAME];
        self.reporter.set_not_serving::<RateLimitServiceServer<RateLimiter>>().await;
        self.reporter.set_service_status("", tonic_health::ServingStatus::NotServing).await;
        for service in services {
            self.reporter.clear_service_status(service).await;
        }
    }
}

/// Puts the service together with `grpc.health.v1.Health`, which says that it serves, and with
/// gRPC reflection in its versions v1 and v1alpha. Requests of more than `request_len_max` bytes are
/// refused.
pub async fn routes(service: RateLimiter, request_len_max: usize) -> (Routes, Health) {
    let (reporter, health) = health_reporter();
    reporter.set_serving::<RateLimitServiceServer<RateLimiter>>().await;
    let mut routes = Routes::new(service.into_service(request_len_max)).add_service(health);
    let reflection = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(HEALTH_DESCRIPTORS)
    };
    // The descriptors are constant, and a test reads them.
    if let Ok(v1) = reflection().build_v1() {
        routes = routes.add_service(v1);
    }
    if let Ok(v1alpha) = reflection().build_v1alpha() {
        routes = routes.add_service(v1alpha);
    }
    (routes, Health { reporter })
}
