//! One budget of several nodes in Redis.

use tollgate::ManualClock;
use tollgate_envoy::proto::rate_limit_response::Code;
use tollgate_server::Server;
use tollgate_testkit::RedisServer;
use tollgate_testkit::redis_server::Reply;

use crate::rls::{NO_RULES, Rls};
use crate::support::{Service, parse};

const LIMITS: &str = r#"
domain: shop
descriptors:
  - key: tenant
    rate_limit: { unit: year, requests_per_unit: 50 }
    descriptors:
      - { key: path, value: "/x*", share_threshold: true, rate_limit: { unit: year, requests_per_unit: 30 } }
"#;

async fn node(redis: &RedisServer) -> Rls {
    let store = format!("store: {{ kind: redis, url: \"{}\", timeout: 10s }}", redis.url());
    let mut config = parse(&format!("{store}\n{NO_RULES}"));
    config.envoy_limits = tollgate_config::EnvoyLimits::parse(LIMITS, "shop.yaml").unwrap();
    let service = Service::run(Server::bind(&config).await.unwrap());
    Rls::of(service, ManualClock::new()).await
}

#[tokio::test]
async fn two_nodes_share_one_budget_and_a_denied_request_spends_on_neither() {
    let redis = RedisServer::start().unwrap();
    let nodes = [node(&redis).await, node(&redis).await];
    let mut admitted = 0;
    for index in 0..80 {
        let request = format!("shop: tenant=a + tenant=a,path=/x/{index}");
        let answer = nodes[index % 2].ask(&request).await;
        admitted += usize::from(answer.overall_code() == Code::Ok);
    }
    assert_eq!(admitted, 30);
    let left = nodes[0].ask("shop: tenant=a [hits 0]").await.statuses[0].limit_remaining;
    assert_eq!(left, 20, "50 requests were denied and took nothing");
    let refunded = nodes[1].ask("shop: tenant=a [hits 100] [refund]").await;
    assert_eq!(refunded.statuses[0].limit_remaining, 50);

    let keys = redis.command(&["KEYS", "tollgate:shop:*"]).unwrap();
    let key = Reply::Text("tollgate:shop:@envoy:tenant=a:path=/x*:@fixed_window".to_owned());
    assert_eq!(keys, Reply::Array(vec![key]), "a full bucket has no key");
}
