//! `tollgate_requests_total`.

use std::sync::OnceLock;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Requests that were answered, by endpoint and status.
#[derive(Debug)]
pub(super) struct Requests {
    all: Family<Labels, Counter>,
    frequent: [OnceLock<Counter>; FREQUENT.len()],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    endpoint: &'static str,
    status: u16,
}

/// What is answered all the time, whose counters are found without a lock and a hash.
const FREQUENT: [(&str, u16); 5] =
    [("check", 200), ("check", 429), ("envoy", 200), ("auth", 200), ("auth", 429)];

impl Requests {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let all = Family::default();
        registry.register("requests", "Requests answered", all.clone());
        Self { all, frequent: Default::default() }
    }

    pub(super) fn count(&self, endpoint: &'static str, status: u16) {
        let counter = || self.all.get_or_create(&Labels { endpoint, status }).clone();
        match FREQUENT.iter().position(|frequent| *frequent == (endpoint, status)) {
            Some(index) => self.frequent[index].get_or_init(counter).inc(),
            None => counter().inc(),
        };
    }
}
