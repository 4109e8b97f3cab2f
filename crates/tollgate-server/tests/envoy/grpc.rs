//! What every gRPC service has: errors, health, reflection, bounds, and an end.

use std::time::Duration;

use tokio::time::timeout;
use tollgate_envoy::proto::RateLimitRequest;
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::rls::{NO_RULES, Rls, channel};
use crate::support::{Service, request};
use crate::text;

const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
const PATIENCE: Duration = Duration::from_secs(10);
const LIMITS: &str = "
domain: d
descriptors: [{ key: a, rate_limit: { unit: minute, requests_per_unit: 1 } }]
";

#[tokio::test]
async fn requests_that_cannot_be_judged_are_told_why() {
    let rls = Rls::start(NO_RULES, &[LIMITS]).await;
    let no_domain = RateLimitRequest { domain: String::new(), ..text::request("a=1") };
    let no_descriptors = RateLimitRequest { descriptors: vec![], ..text::request("a=1") };
    let mut no_unit = text::request("a=1 + a=2 [limit 5 DAY]");
    no_unit.descriptors[1].limit.as_mut().unwrap().unit = 0;
    let many = text::request(&vec!["a=1"; 65].join(" + "));
    let buckets = |count: usize| {
        let one = |index| text::request(&format!("a={index}")).descriptors.remove(0);
        RateLimitRequest { descriptors: (0..count).map(one).collect(), ..text::request("a=1") }
    };
    for (request, message) in [
        (no_domain, "domain is empty: set `domain` in Envoy's rate limit filter"),
        (no_descriptors, "there are no descriptors: a request needs at least one"),
        (
            no_unit,
            "descriptors[1].limit has no unit: give SECOND, MINUTE, HOUR, DAY, MONTH or YEAR",
        ),
        (
            text::request(&vec!["a=1"; 1_001].join(" + ")),
            "there are 1001 descriptors: the most is 1000",
        ),
        (
            text::request(&format!("a=1 + {}", vec!["a=1"; 65].join(","))),
            "descriptors[1] has 65 entries: the most is 64",
        ),
        (buckets(65), "the descriptors are charged to 65 buckets: the most is 64"),
    ] {
        let status = rls.send(request).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, message));
    }
    assert!(rls.send(many).await.is_ok(), "they share one bucket");
    assert!(rls.send(buckets(64)).await.is_ok());
    let requests = r#"tollgate_requests_total{endpoint="envoy",status="400"}"#;
    assert_eq!(rls.service.metric(requests).await, Some(6.0));
}

#[tokio::test]
async fn what_is_decided_is_counted_by_the_path_of_the_limit() {
    let rls = Rls::start(NO_RULES, &[LIMITS]).await;
    let denials = r#"tollgate_decisions_total{domain="d",rule="a",outcome="deny",mode="exact"}"#;
    assert_eq!(rls.service.metric(denials).await, Some(0.0), "a first denial shows as a rise");
    for _ in 0..3 {
        rls.ask("a=secret").await;
    }
    rls.ask("b=1").await;
    rls.ask("other: a=1").await;
    let count = async |rest: &str| rls.service.metric(&format!("tollgate_{rest}")).await;
    let decisions = |outcome| {
        format!(r#"decisions_total{{domain="d",rule="a",outcome="{outcome}",mode="exact"}}"#)
    };
    assert_eq!(count(&decisions("allow")).await, Some(1.0));
    assert_eq!(count(&decisions("deny")).await, Some(2.0));
    let unlimited = r#"decisions_total{domain="",rule="",outcome="allow",mode="unlimited"}"#;
    assert_eq!(count(unlimited).await, Some(2.0));
    assert_eq!(count(r#"requests_total{endpoint="envoy",status="200"}"#).await, Some(5.0));
    let page = rls.service.admin("/metrics").await.body;
    assert!(!page.contains("secret"), "{page}");
}

#[tokio::test]
async fn health_is_told_until_the_service_stops() {
    let mut rls = Rls::start(NO_RULES, &[]).await;
    let mut health = HealthClient::new(channel(&rls.service).await);
    for service in ["", SERVICE] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let answer = health.check(request).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
    }
    let unknown = HealthCheckRequest { service: "other".to_owned() };
    assert_eq!(health.check(unknown).await.unwrap_err().code(), Code::NotFound);

    let request = HealthCheckRequest { service: SERVICE.to_owned() };
    let mut watch = health.watch(request).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    rls.service.stop();
    let next = timeout(PATIENCE, watch.message()).await.unwrap().unwrap().unwrap();
    assert_eq!(next.status(), ServingStatus::NotServing);
    assert!(timeout(PATIENCE, watch.message()).await.unwrap().unwrap().is_none());
}

#[tokio::test]
async fn those_who_watch_health_keep_nobody_from_checking_it() {
    let rls = Rls::start(NO_RULES, &[]).await;
    let (mut watches, mut refused) = (Vec::new(), None);
    // 819 watches are granted, and 128 requests at a time to a connection.
    while refused.is_none() && watches.len() < 1_200 {
        let health = HealthClient::new(channel(&rls.service).await);
        for _ in 0..120 {
            match health.clone().watch(HealthCheckRequest::default()).await {
                Ok(watch) => watches.push(watch),
                Err(status) => refused = Some(status.code()),
            }
        }
    }
    assert_eq!((watches.len() > 700, refused), (true, Some(Code::ResourceExhausted)));
    let mut health = HealthClient::new(channel(&rls.service).await);
    let answer = health.check(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(answer.status(), ServingStatus::Serving);
}

#[tokio::test]
async fn a_connection_that_envoy_keeps_does_not_hold_up_the_stop() {
    let rls = Rls::start(NO_RULES, &[LIMITS]).await;
    rls.ask("a=1").await;
    let Rls { service, .. } = rls;
    service.stopped().await;
}

#[tokio::test]
async fn reflection_names_the_services_and_their_messages() {
    let service = Service::start(NO_RULES).await;
    let mut client = ServerReflectionClient::new(channel(&service).await);
    let mut ask = async |message: MessageRequest| {
        let request =
            ServerReflectionRequest { host: String::new(), message_request: Some(message) };
        let once = tokio_stream(request);
        let mut answers = client.server_reflection_info(once).await.unwrap().into_inner();
        answers.message().await.unwrap().unwrap().message_response.unwrap()
    };
    let MessageResponse::ListServicesResponse(list) =
        ask(MessageRequest::ListServices(String::new())).await
    else {
        panic!("no list of services")
    };
    let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    assert!(names.contains(&SERVICE) && names.contains(&"grpc.health.v1.Health"), "{names:?}");
    for symbol in [
        SERVICE,
        "envoy.service.ratelimit.v3.RateLimitRequest",
        "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor",
        "google.protobuf.Struct",
    ] {
        let found = ask(MessageRequest::FileContainingSymbol(symbol.to_owned())).await;
        assert!(matches!(found, MessageResponse::FileDescriptorResponse(_)), "{symbol}: {found:?}");
    }
}

/// A stream of one message.
fn tokio_stream<T: Send + 'static>(one: T) -> impl tonic::IntoStreamingRequest<Message = T> {
    futures_util::stream::iter([one])
}

#[tokio::test]
async fn what_is_not_grpc_is_answered_too() {
    let rls = Rls::start(NO_RULES, &[]).await;
    let reply = request(rls.service.grpc, "GET", "/", &[], b"").await;
    assert_eq!((reply.status, reply.header("grpc-status")), (200, Some("12")));
}
