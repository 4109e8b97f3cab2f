//! Spans of Envoy's calls.

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use tollgate_envoy::proto::rate_limit_descriptor::Entry;
use tollgate_envoy::proto::rate_limit_service_client::RateLimitServiceClient;
use tollgate_envoy::proto::{RateLimitDescriptor, RateLimitRequest};
use tonic::Request;
use tonic::transport::Channel;

use crate::collector::{Collector, attributes};
use crate::http::{PARENT, TRACE, places, traceparent};
use crate::support::Service;

const RULES: &str = "rules: [{ name: per-ip, domain: shop, key: ip, limit: 1/day }]";

fn asked(domain: &str, flags: &str) -> Request<RateLimitRequest> {
    let entry = Entry { key: "ip".to_owned(), value: "203.0.113.7".to_owned() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
    let mut request = Request::new(RateLimitRequest {
        domain: domain.to_owned(),
        descriptors: vec![descriptor],
        ..Default::default()
    });
    request.metadata_mut().insert("traceparent", traceparent(flags).parse().unwrap());
    request
}

#[tokio::test]
async fn a_call_of_envoy_is_a_span_under_envoys() {
    let collector = Collector::start().await;
    let service = Service::start(&format!("{}{RULES}", collector.section("0"))).await;
    let url = format!("http://{}", service.grpc);
    let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
    let mut client = RateLimitServiceClient::new(channel);
    client.should_rate_limit(asked("shop", "01")).await.unwrap();
    client.should_rate_limit(asked("shop", "00")).await.unwrap();
    client.should_rate_limit(asked("shop", "01")).await.unwrap();
    client.should_rate_limit(asked("", "01")).await.unwrap_err();
    let mut probe = asked("shop", "01");
    probe.get_mut().descriptors[0].hits_addend = Some(0);
    client.should_rate_limit(probe).await.unwrap();
    drop(client);

    let spans = collector.after(service).await;
    let place = (TRACE.to_owned(), PARENT.to_owned());
    assert_eq!(places(&spans), [place.clone(), place.clone(), place.clone(), place]);
    assert!(spans.iter().all(|span| span.kind() == SpanKind::Server));
    assert_eq!(spans[0].name, "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    let rpc = [
        "rpc.system=grpc",
        "rpc.service=envoy.service.ratelimit.v3.RateLimitService",
        "rpc.method=ShouldRateLimit",
    ];
    let of = |index: usize| attributes(&spans[index].attributes);
    assert_eq!(of(0)[..3], rpc);
    assert_eq!(
        of(0)[3..],
        [
            "rpc.grpc.status_code=0",
            "tollgate.store=memory",
            "tollgate.outcome=allow",
            "tollgate.mode=exact",
            "tollgate.domain=shop",
            "tollgate.rules=[per-ip]",
        ]
    );
    assert_eq!(of(1)[5], "tollgate.outcome=deny");
    assert_eq!(of(1).last().unwrap(), "tollgate.denied_by=per-ip");
    assert_eq!(of(2)[3..], ["rpc.grpc.status_code=3", "tollgate.store=memory"]);
    assert_eq!(of(3).last().unwrap(), "tollgate.denied_by=per-ip", "a probe tells what is");
    assert!(spans.iter().all(|span| span.status.as_ref().unwrap().code == 0));
    assert!(!format!("{:?}", collector.requests()).contains("203.0.113.7"));
}
