//! `tollgate_refused_requests_total`.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Requests that a listener refused since too many were not answered in full.
#[derive(Debug)]
pub(crate) struct RefusedRequests {
    pub(crate) http: Counter,
    pub(crate) grpc: Counter,
    pub(crate) admin: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    listener: &'static str,
}

impl RefusedRequests {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let family = Family::<Labels, Counter>::default();
        let of = |listener| family.get_or_create(&Labels { listener }).clone();
        let refused = Self { http: of("http"), grpc: of("grpc"), admin: of("admin") };
        registry.register(
            "refused_requests",
            "Requests refused by a listener, since too many were not answered in full",
            family,
        );
        refused
    }
}
