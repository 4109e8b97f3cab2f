//! Limits for Envoy in a directory, asked over gRPC.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use serde_json::Value;
use tollgate_config::{Config, EnvoyLimits};
use tollgate_envoy::proto::rate_limit_descriptor::Entry;
use tollgate_envoy::proto::rate_limit_response::Code;
use tollgate_envoy::proto::rate_limit_service_client::RateLimitServiceClient;
use tollgate_envoy::proto::{RateLimitDescriptor, RateLimitRequest};
use tollgate_server::{ServeError, Server};
use tonic::transport::Channel;

use crate::folder::{Folder, configured};
use crate::support::Service;
use crate::{rules, until};

/// So long that nothing is noticed by polling within a test.
const SELDOM: &str = "envoy: { poll_interval: 60min }\n";

/// A file with a limit a day for each tenant of a domain.
fn limits(domain: &str, limit: u32) -> String {
    format!(
        "domain: {domain}\ndescriptors:\n  - key: tenant\n    rate_limit: {{ unit: day, \
         requests_per_unit: {limit} }}\n"
    )
}

/// A service with a directory of limits, and a client of it.
struct Rls {
    folder: Folder,
    service: Service,
    client: RateLimitServiceClient<Channel>,
}

impl Rls {
    /// Starts with a limit of 10 for the domain `shop`.
    async fn start(config: &str) -> Self {
        let folder = Folder::new(config);
        fs::create_dir(folder.path("limits")).unwrap();
        folder.write("limits/shop.yaml", &limits("shop", 10));
        Self::of(folder).await
    }

    async fn of(folder: Folder) -> Self {
        let service = Service::run(bind(&folder).await.unwrap_or_else(|error| panic!("{error}")));
        let channel = Channel::from_shared(format!("http://{}", service.grpc)).unwrap();
        let client = RateLimitServiceClient::new(channel.connect().await.unwrap());
        Self { folder, service, client }
    }

    /// Sends one hit, and returns whether it passes, the limit and what is left.
    async fn ask(&self, domain: &str, tenant: &str) -> (bool, u32, u32) {
        let entry = Entry { key: "tenant".into(), value: tenant.into() };
        let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
        let request = RateLimitRequest {
            domain: domain.into(),
            descriptors: vec![descriptor],
            hits_addend: 1,
        };
        let response = self.client.clone().should_rate_limit(request).await.unwrap().into_inner();
        let status = &response.statuses[0];
        let limit = status.current_limit.as_ref().map_or(0, |limit| limit.requests_per_unit);
        (response.overall_code() == Code::Ok, limit, status.limit_remaining)
    }

    /// Waits until the limit of the domain `shop` is this; no tenant of the test pays for it.
    async fn in_force(&self, limit: u32) {
        until(async || self.ask("shop", &format!("asks for {limit}")).await.1 == limit).await;
    }

    async fn shown(&self) -> Value {
        self.service.admin("/v1/rules").await.json()["envoy_limits"].clone()
    }

    async fn id(&self) -> String {
        self.shown().await["id"].as_str().unwrap().to_owned()
    }

    async fn error_of_kind(&self, kind: &str) -> String {
        until(async || self.shown().await["error"]["kind"] == kind).await;
        self.shown().await["error"]["message"].as_str().unwrap().to_owned()
    }

    /// Waits until the directory is watched, which leaves the limit at 11.
    async fn watched(&self) {
        until(async || {
            self.folder.write("limits/shop.yaml", &limits("shop", 11));
            tokio::time::sleep(Duration::from_millis(50)).await;
            self.ask("shop", "asks for 11").await.1 == 11
        })
        .await;
    }
}

/// Binds as `tollgate serve --config FILE --envoy-config limits` does.
async fn bind(folder: &Folder) -> Result<Server, ServeError> {
    let directory = folder.path("limits");
    let limits = EnvoyLimits::read(&directory);
    let limits = limits.unwrap_or_else(|_| EnvoyLimits::unread(&directory));
    let config = Config::read_beside(folder.path("tollgate.yaml"), limits);
    Server::bind(&config.unwrap_or_else(|errors| panic!("{errors}"))).await
}

#[tokio::test]
async fn g11_an_edit_in_place_is_in_force_at_once_and_counts_stay() {
    let rls = Rls::start(SELDOM).await;
    rls.watched().await;
    for left in [10, 9, 8] {
        assert_eq!(rls.ask("shop", "a").await, (true, 11, left));
    }
    rls.folder.write("limits/shop.yaml", &limits("shop", 20));
    rls.in_force(20).await;
    assert_eq!(rls.ask("shop", "a").await, (true, 20, 16), "three were counted before");
    rls.folder.write("limits/shop.yaml", &limits("shop", 4));
    rls.in_force(4).await;
    assert_eq!(rls.ask("shop", "a").await, (false, 4, 0), "four were counted before");
    assert_eq!(rls.ask("shop", "b").await, (true, 4, 3));
}

#[tokio::test]
async fn a_file_that_is_renamed_into_place_is_noticed_without_polling() {
    let rls = Rls::start(SELDOM).await;
    rls.watched().await;
    for limit in [20, 30, 40] {
        rls.folder.replace("limits/shop.yaml", &limits("shop", limit));
        rls.in_force(limit).await;
    }
}

#[tokio::test]
async fn files_come_and_go_with_their_domains() {
    let rls = Rls::start(SELDOM).await;
    rls.watched().await;
    assert_eq!(rls.ask("cart", "a").await, (true, 0, 0), "a domain that nobody knows");
    rls.folder.write("limits/cart.yaml", &limits("cart", 1));
    until(async || rls.ask("cart", "nobody").await.1 == 1).await;
    assert_eq!(rls.ask("cart", "a").await, (true, 1, 0));
    assert_eq!(rls.ask("cart", "a").await, (false, 1, 0));
    fs::remove_file(rls.folder.path("limits/cart.yaml")).unwrap();
    until(async || rls.ask("cart", "a").await == (true, 0, 0)).await;
    assert_eq!(rls.service.metric("tollgate_envoy_limits_in_force").await, Some(1.0));
}

#[tokio::test]
async fn the_swap_of_a_link_of_a_mounted_configmap_is_noticed_without_polling() {
    let folder = Folder::new(SELDOM);
    fs::create_dir(folder.path("limits")).unwrap();
    // What Kubernetes makes of a ConfigMap: shop.yaml -> ..data/shop.yaml, ..data -> ..1
    let version = |number: u32, limit: u32| {
        let target = folder.path(&format!("limits/..{number}"));
        fs::create_dir(&target).unwrap();
        for domain in ["shop", "cart"] {
            fs::write(target.join(format!("{domain}.yaml")), limits(domain, limit)).unwrap();
        }
        symlink(format!("..{number}"), folder.path("limits/..data_tmp")).unwrap();
        fs::rename(folder.path("limits/..data_tmp"), folder.path("limits/..data")).unwrap();
    };
    version(1, 10);
    for domain in ["shop", "cart"] {
        let link = folder.path(&format!("limits/{domain}.yaml"));
        symlink(format!("..data/{domain}.yaml"), link).unwrap();
    }
    let service = Service::run(bind(&folder).await.unwrap());
    let channel = Channel::from_shared(format!("http://{}", service.grpc)).unwrap();
    let client = RateLimitServiceClient::new(channel.connect().await.unwrap());
    let path = folder.path("limits");
    // The watch begins only when the service runs, which nothing but a change shows.
    let rls = Rls { folder: Folder::new(SELDOM), service, client };
    let mut number = 1;
    until(async || {
        fs::write(path.join("probe.yaml"), limits("probe", 1)).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        rls.ask("probe", "a").await.1 == 1
    })
    .await;
    for limit in [20, 30, 40] {
        number += 1;
        version(number, limit);
        fs::remove_dir_all(folder.path(&format!("limits/..{}", number - 1))).unwrap();
        rls.in_force(limit).await;
        assert_eq!(rls.ask("cart", &format!("asks for {limit}")).await.1, limit);
    }
}

#[tokio::test]
async fn a_directory_that_another_is_put_in_the_place_of_is_noticed_without_polling() {
    let rls = Rls::start(SELDOM).await;
    rls.watched().await;
    fs::create_dir(rls.folder.path("next")).unwrap();
    rls.folder.write("next/shop.yaml", &limits("shop", 20));
    fs::rename(rls.folder.path("limits"), rls.folder.path("before")).unwrap();
    fs::rename(rls.folder.path("next"), rls.folder.path("limits")).unwrap();
    rls.in_force(20).await;
}

#[tokio::test]
async fn a_broken_file_changes_nothing_and_is_shown() {
    let rls = Rls::start(SELDOM).await;
    rls.watched().await;
    let before = rls.id().await;
    rls.ask("shop", "a").await;
    // The other file is in order, and waits all the same.
    rls.folder.write("limits/cart.yaml", &limits("cart", 1));
    until(async || rls.id().await != before).await;
    let before = rls.id().await;
    rls.folder.replace("limits/shop.yaml", &limits("shop", 20).replace("day", "fortnight"));
    let message = rls.error_of_kind("invalid").await;
    let file = rls.folder.path("limits/shop.yaml");
    let mistake = format!("{}:4:25: `unit` cannot be `fortnight`: ", file.display());
    assert!(message.starts_with(&mistake), "{message}");
    rls.folder.write("limits/cart.yaml", &limits("cart", 2));
    until(async || rls.service.metric("tollgate_rules_refusals_total").await == Some(2.0)).await;
    assert_eq!(rls.id().await, before);
    assert_eq!(rls.ask("shop", "a").await, (true, 11, 9));
    assert_eq!(rls.ask("cart", "a").await, (true, 1, 0));
    assert_eq!(rls.service.metric("tollgate_rules_stale").await, Some(1.0));
    let status = rls.service.admin("/v1/status").await.json()["config"].clone();
    assert_eq!(status["envoy_limits_id"], before);
    assert_eq!(status["envoy_limits_error"]["kind"], "invalid");
    assert_eq!(status["rules_error"], Value::Null);

    rls.folder.replace("limits/shop.yaml", &limits("shop", 30));
    rls.in_force(30).await;
    assert_eq!(rls.ask("cart", "b").await, (true, 2, 1));
    assert_eq!(rls.shown().await["error"], Value::Null);
    assert_eq!(rls.service.metric("tollgate_rules_stale").await, Some(0.0));
}

#[tokio::test]
async fn a_directory_that_is_gone_or_empty_leaves_the_limits_in_force() {
    let rls = Rls::start("envoy: { poll_interval: 100ms }\n").await;
    fs::remove_file(rls.folder.path("limits/shop.yaml")).unwrap();
    let message = rls.error_of_kind("unavailable").await;
    assert!(message.contains("/limits: the directory has no file *.yaml"), "{message}");
    fs::remove_dir(rls.folder.path("limits")).unwrap();
    until(async || {
        let shown = rls.shown().await;
        shown["error"]["message"].as_str().is_some_and(|text| text.contains("cannot be read"))
    })
    .await;
    assert_eq!(rls.ask("shop", "a").await, (true, 10, 9));
    fs::create_dir(rls.folder.path("limits")).unwrap();
    rls.folder.write("limits/shop.yaml", &limits("shop", 20));
    rls.in_force(20).await;
    assert_eq!(rls.shown().await["error"], Value::Null);
}

#[tokio::test]
async fn the_id_tells_what_the_limits_say_and_not_how_it_is_written() {
    let rls = Rls::start("envoy: { poll_interval: 100ms }\n").await;
    let info = async || {
        let page = rls.service.admin("/metrics").await.body;
        let line = page.lines().find(|line| line.starts_with("tollgate_rules_info{"));
        line.unwrap().to_owned()
    };
    let first = rls.id().await;
    assert!(info().await.contains(&format!(r#"source="config",envoy_limits="{first}"}} 1"#)));
    // A comment, other quotes and another name of the file make no difference.
    let text = limits("shop", 10).replace("domain: shop", "# why\ndomain: \"shop\"");
    rls.folder.write("limits/cart.yaml", &limits("cart", 1));
    until(async || rls.id().await != first).await;
    fs::remove_file(rls.folder.path("limits/cart.yaml")).unwrap();
    fs::remove_file(rls.folder.path("limits/shop.yaml")).unwrap();
    rls.folder.write("limits/other.yml", &text);
    until(async || rls.id().await == first).await;
    assert!(info().await.contains(&first));
}

#[tokio::test]
async fn rules_and_limits_change_apart_from_each_other() {
    let rls = Rls::start(&format!("{SELDOM}{}", rules(7))).await;
    rls.watched().await;
    let before = rls.service.admin("/v1/rules").await.json()["id"].clone();
    rls.folder.write("tollgate.yaml", &configured(&format!("{SELDOM}{}", rules(8))));
    crate::limit_in_force(&rls.service, 8).await;
    assert_eq!(rls.ask("shop", "a").await, (true, 11, 10));
    let shown = rls.service.admin("/v1/rules").await.json();
    assert_ne!(shown["id"], before);
    assert_eq!(shown["needs_restart"], serde_json::json!([]));
    // Without rules of its own the configuration is still one.
    rls.folder.write("tollgate.yaml", &configured(SELDOM));
    until(async || rls.service.limiter.rules().is_empty()).await;
    assert_eq!(rls.ask("shop", "a").await, (true, 11, 9));
}

#[tokio::test]
async fn a_reload_that_was_asked_for_looks_at_the_limits_too() {
    let folder = Folder::new(SELDOM);
    fs::create_dir_all(folder.path("middle")).unwrap();
    for (name, limit) in [("one", 10), ("two", 20)] {
        fs::create_dir(folder.path(name)).unwrap();
        folder.write(&format!("{name}/shop.yaml"), &limits("shop", limit));
    }
    // A link to a link: the folder in the middle is not watched.
    symlink("../one", folder.path("middle/limits")).unwrap();
    symlink("middle/limits", folder.path("limits")).unwrap();
    let server = bind(&folder).await.unwrap();
    let reload = server.reload();
    let service = Service::run(server);
    assert_eq!(service.metric("tollgate_envoy_limits_in_force").await, Some(1.0));
    let id = async || service.admin("/v1/rules").await.json()["envoy_limits"]["id"].clone();
    let first = id().await;
    fs::remove_file(folder.path("middle/limits")).unwrap();
    symlink("../two", folder.path("middle/limits")).unwrap();
    reload.now();
    until(async || id().await != first).await;
}

#[tokio::test]
async fn the_last_good_limits_are_used_while_the_directory_is_away_or_broken() {
    let rls = Rls::start(&format!("state_dir: state\n{SELDOM}")).await;
    rls.watched().await;
    let id = rls.id().await;
    let Rls { mut folder, service, .. } = rls;
    service.stopped().await;
    for broken in [Some("domain: ["), None] {
        match broken {
            Some(text) => folder.write("limits/shop.yaml", text),
            None => fs::remove_dir_all(folder.path("limits")).unwrap(),
        }
        let rls = Rls::of(folder).await;
        assert_eq!(rls.ask("shop", "a").await, (true, 11, 10));
        let shown = rls.shown().await;
        assert_eq!((&shown["id"], &shown["origin"]), (&id.clone().into(), &"kept".into()));
        assert_ne!(shown["error"], Value::Null);
        folder = rls.folder;
        rls.service.stopped().await;
    }
    // What was changed on disk is not the last good, and a service without limits does not start.
    let kept = folder.path("state/envoy-limits.json");
    let text = fs::read_to_string(&kept).unwrap();
    fs::write(&kept, text.replace("requests_per_unit: 11", "requests_per_unit: 99")).unwrap();
    let error = bind(&folder).await.unwrap_err().to_string();
    assert!(error.starts_with("the limits for Envoy cannot be had, and none are kept"), "{error}");
    assert!(error.contains("the directory cannot be read"), "{error}");
}
