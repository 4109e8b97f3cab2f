//! `tollgate_admin_refusals_total`.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Requests that the admin listener refused for their tokens, by reason.
#[derive(Debug)]
pub(super) struct AdminRefusals(Family<Labels, Counter>);

/// Why such a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdminRefusal {
    NoToken,
    UnknownToken,
    Scope,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    reason: &'static str,
}

impl AdminRefusals {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let refusals = Self(Family::default());
        for reason in [AdminRefusal::NoToken, AdminRefusal::UnknownToken, AdminRefusal::Scope] {
            refusals.0.get_or_create(&reason.labels()).inc_by(0);
        }
        registry.register(
            "admin_refusals",
            "Requests that the admin listener refused for their tokens",
            refusals.0.clone(),
        );
        refusals
    }

    pub(super) fn count(&self, reason: AdminRefusal) {
        self.0.get_or_create(&reason.labels()).inc();
    }
}

impl AdminRefusal {
    const fn labels(self) -> Labels {
        let reason = match self {
            Self::NoToken => "no_token",
            Self::UnknownToken => "unknown_token",
            Self::Scope => "scope",
        };
        Labels { reason }
    }
}
