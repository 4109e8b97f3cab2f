//! Requests that the layer lets pass without a question.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use ipnet::IpNet;
use tollgate::{Attributes, Matcher};

use crate::extractor::Extractor;

/// Which requests are not limited. Any one of its entries is enough.
#[derive(Clone, Default)]
pub(crate) struct SkipList {
    matchers: Vec<Matcher>,
    networks: Vec<IpNet>,
    predicates: Vec<Arc<Predicate>>,
}

type Predicate = dyn Fn(&Parts) -> bool + Send + Sync;

impl SkipList {
    pub(crate) fn push_matcher(&mut self, matcher: Matcher) {
        self.matchers.push(matcher);
    }

    pub(crate) fn push_networks(&mut self, networks: impl IntoIterator<Item = IpNet>) {
        self.networks.extend(networks);
    }

    pub(crate) fn push_predicate(&mut self, predicate: Arc<Predicate>) {
        self.predicates.push(predicate);
    }

    /// Tells whether the head of a request is enough to skip it.
    pub(crate) fn has_head(&self, request: &Parts, extractor: &Extractor) -> bool {
        self.predicates.iter().any(|predicate| predicate(request))
            || (!self.networks.is_empty() && self.has_address(request, extractor))
    }

    /// Tells whether the attributes of a request are enough to skip it.
    pub(crate) fn has_attributes(&self, attributes: &Attributes) -> bool {
        self.matchers.iter().any(|matcher| matcher.matches(attributes))
    }

    fn has_address(&self, request: &Parts, extractor: &Extractor) -> bool {
        let Some(address) = extractor.address(request) else { return false };
        self.networks.iter().any(|network| network.contains(&address))
    }
}

impl fmt::Debug for SkipList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SkipList")
            .field("matchers", &self.matchers)
            .field("networks", &self.networks)
            .field("predicates", &self.predicates.len())
            .finish()
    }
}
