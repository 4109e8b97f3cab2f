//! `tollgate_requests_in_flight`.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Requests that are being answered, by listener.
#[derive(Debug)]
pub(super) struct Listeners {
    http: Gauge,
    grpc: Gauge,
}

/// A listener whose requests are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Listener {
    Http,
    Grpc,
}

/// One request in flight, until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight(Gauge);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    listener: &'static str,
}

impl Listeners {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let family = Family::<Labels, Gauge>::default();
        let of = |listener| family.get_or_create(&Labels { listener }).clone();
        let listeners = Self { http: of("http"), grpc: of("grpc") };
        registry.register("requests_in_flight", "Requests that are being answered", family);
        listeners
    }

    pub(super) fn begin(&self, listener: Listener) -> InFlight {
        let gauge = match listener {
            Listener::Http => &self.http,
            Listener::Grpc => &self.grpc,
        };
        gauge.inc();
        InFlight(gauge.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}
