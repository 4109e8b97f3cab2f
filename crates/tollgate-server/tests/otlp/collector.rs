//! A collector that keeps what it receives.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::metadata::MetadataMap;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::support::Service;

/// A collector on a free port. It stops when it is dropped.
pub(crate) struct Collector {
    address: SocketAddr,
    received: Received,
    serving: JoinHandle<()>,
}

#[derive(Clone, Debug, Default)]
struct Received(Arc<Mutex<Vec<(MetadataMap, ExportTraceServiceRequest)>>>);

#[tonic::async_trait]
impl TraceService for Received {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        self.0.lock().unwrap().push((metadata, request));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, received) = (listener.local_addr().unwrap(), Received::default());
        let routes = Routes::new(TraceServiceServer::new(received.clone()));
        let router = routes.prepare().into_axum_router();
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, received, serving }
    }

    /// Returns a section of a configuration that sends this part of the roots here.
    pub(crate) fn section(&self, sample: &str) -> String {
        section(self.address, sample)
    }

    /// Stops a service, which sends what it has, and returns all spans.
    pub(crate) async fn after(&self, service: Service) -> Vec<Span> {
        service.stopped().await;
        self.requests()
            .into_iter()
            .flat_map(|(_, request)| request.resource_spans)
            .flat_map(|of_resource| of_resource.scope_spans)
            .flat_map(|of_scope| of_scope.spans)
            .collect()
    }

    pub(crate) fn requests(&self) -> Vec<(MetadataMap, ExportTraceServiceRequest)> {
        self.received.0.lock().unwrap().clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Returns a section of a configuration that sends this part of the roots to `address`.
pub(crate) fn section(address: SocketAddr, sample: &str) -> String {
    format!("tracing: {{ otlp: {{ endpoint: \"http://{address}\", sample: {sample} }} }}\n")
}

/// Returns the attributes, in the order sent, as `name=value`.
pub(crate) fn attributes(attributes: &[KeyValue]) -> Vec<String> {
    let text = |value: &Option<AnyValue>| written(value.as_ref().unwrap());
    attributes.iter().map(|one| format!("{}={}", one.key, text(&one.value))).collect()
}

fn written(value: &AnyValue) -> String {
    match value.value.as_ref().unwrap() {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::ArrayValue(values) => {
            let values: Vec<_> = values.values.iter().map(written).collect();
            format!("[{}]", values.join(","))
        }
        other => panic!("{other:?}"),
    }
}

/// Returns bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
