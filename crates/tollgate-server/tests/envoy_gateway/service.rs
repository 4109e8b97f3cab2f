//! A Tollgate with the files of `examples/envoy`, on a clock that the test owns.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tollgate::{AnyStore, Limiter, ManualClock};
use tollgate_config::{Config, EnvoyLimits};
use tollgate_core::{Charge, Decisions, Operation, RuleSet, Store, StoreError, Timestamp};
use tollgate_server::Server;

use crate::support::{Service, parse};

fn example(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/envoy").join(file)
}

/// Starts a service with the limits of the example.
pub(crate) async fn with_limits() -> (Service, ManualClock) {
    let mut config = Config::example();
    config.rules = RuleSet::default();
    config.envoy_limits = EnvoyLimits::read(example("limits")).unwrap();
    assert!(config.envoy_limits.warnings.is_empty());
    start(config).await
}

/// Starts a service with the rules of the example.
pub(crate) async fn with_rules() -> (Service, ManualClock) {
    let config = Config::read(example("tollgate.yaml")).unwrap();
    assert!(config.warnings.is_empty());
    start(config).await
}

/// Starts a service whose store never answers.
pub(crate) async fn with_silent_store() -> Service {
    let config = parse(
        "
rules:
  - { name: per-address, domain: shop, key: [remote_address], limit: 9/s, on_store_failure: open }
  - { name: per-tenant, domain: shop, key: [tenant], limit: 9/s, on_store_failure: closed }
",
    );
    let limiter = Limiter::builder().store(AnyStore::new(Silent));
    // The time that Envoy gives is shorter than the store's.
    let limiter = limiter.store_timeout(Duration::from_secs(60)).build().unwrap();
    limiter.replace_rules(config.rules.clone());
    Service::run(Server::bind_with_limiter(&config, limiter).await.unwrap())
}

/// Never answers.
struct Silent;

impl Store for Silent {
    async fn apply(
        &self,
        _: Operation,
        _: &[Charge<'_>],
        _: Timestamp,
    ) -> Result<Decisions, StoreError> {
        std::future::pending().await
    }

    async fn reset(&self, _: &[&str]) -> Result<(), StoreError> {
        std::future::pending().await
    }
}

async fn start(mut config: Config) -> (Service, ManualClock) {
    let any = ([127, 0, 0, 1], 0).into();
    (config.listen.http, config.listen.admin) = (any, any);
    config.listen.grpc = Some(any);
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).build().unwrap();
    limiter.replace_rules(config.rules.clone());
    let server = Server::bind_with_limiter(&config, limiter).await.unwrap();
    (Service::run(server), clock)
}
