//! Limits that change while they are in use.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tollgate_config::EnvoyLimits;
use tollgate_core::Rule;

use crate::limits::Limits;

/// The limits that a [`RateLimiter`](crate::RateLimiter) answers by, which can be replaced while it
/// does. Clones share them.
///
/// # Examples
///
/// ```
/// use tollgate_config::EnvoyLimits;
/// use tollgate_envoy::LiveLimits;
///
/// let limits = LiveLimits::default();
/// let text = "
/// domain: shop
/// descriptors:
///   - key: tenant
///     rate_limit: { unit: day, requests_per_unit: 5 }
/// ";
/// limits.replace(&EnvoyLimits::parse(text, "shop.yaml")?);
/// assert_eq!(limits.rules()[0].name(), "tenant");
/// # Ok::<(), tollgate_config::ConfigErrors>(())
/// ```
#[derive(Clone, Debug)]
pub struct LiveLimits(Arc<ArcSwap<Limits>>);

impl LiveLimits {
    /// Starts with `limits`.
    pub fn new(limits: &EnvoyLimits) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(Limits::new(limits))))
    }

    /// Puts other limits in force, from the next request on. What is counted for a descriptor that
    /// keeps its keys, its shared values and its algorithm stays, capped at its new limit (G11).
    pub fn replace(&self, limits: &EnvoyLimits) {
        self.0.store(Arc::new(Limits::new(limits)));
    }

    /// Returns the rules that the limits are counted as, each with the path of its descriptor as
    /// its name. The slice is another one whenever the limits have been replaced.
    pub fn rules(&self) -> Arc<[Arc<Rule>]> {
        Arc::clone(self.0.load().rules())
    }

    /// Returns those that one request is judged by.
    pub(crate) fn load(&self) -> Arc<Limits> {
        self.0.load_full()
    }
}

impl Default for LiveLimits {
    /// Starts without limits.
    fn default() -> Self {
        Self::new(&EnvoyLimits::default())
    }
}
