//! What every library is driven through.

use std::error;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub(crate) type Error = Box<dyn error::Error + Send + Sync>;

pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A rate limiting library in one set-up: a column of the table.
pub(crate) trait Library {
    /// The two lines of the column's head: the library and its store.
    fn name(&self) -> [&'static str; 2];

    /// The version and every setting that is not the library's default.
    fn settings(&self) -> String;

    /// Tells whether limiters of the same key share one budget.
    fn is_shared(&self) -> bool {
        false
    }

    /// Makes the limiter of one key, or `None` if the library cannot express the limit.
    ///
    /// A library that reads the system's time only ignores `time`.
    fn limiter<'a>(
        &'a self,
        limit: Limit,
        time: Time,
        key: &'a str,
    ) -> Answer<'a, Option<Arc<dyn Limiter>>>;
}

/// One budget.
pub(crate) trait Limiter: Send + Sync {
    /// Spends `cost` units if they fit now, and tells whether they did.
    fn spend(&self, cost: u32) -> Answer<'_, bool>;

    /// Moves the injected clock and tells whether there is one.
    fn advance(&self, _time: Duration) -> bool {
        false
    }
}

/// Lets time go by: on the injected clock at once, otherwise by waiting.
pub(crate) async fn pass(limiter: &dyn Limiter, time: Duration) {
    if !limiter.advance(time) {
        tokio::time::sleep(time).await;
    }
}

/// Whose time a limiter goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    /// A clock that the scenario moves, if the library takes one.
    Injected,
    System,
}

/// The period of a rate.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Per {
    Second,
    Minute,
    Hour,
}

impl Per {
    pub(crate) const fn seconds(self) -> u32 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
        }
    }
}

/// `units` per period, of which `burst` may pass at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) units: u32,
    pub(crate) per: Per,
    pub(crate) burst: u32,
}

impl Limit {
    /// Makes the limit whose burst is the units of one period, which windows can express too.
    pub(crate) const fn window(units: u32, per: Per) -> Self {
        Self { units, per, burst: units }
    }

    pub(crate) const fn is_window(self) -> bool {
        self.burst == self.units
    }

    /// The most whole units that a bucket can admit in an interval: `burst + rate * time`.
    pub(crate) fn most_in(self, time: Duration) -> u64 {
        let refill = u128::from(self.units) * time.as_nanos()
            / (u128::from(self.per.seconds()) * 1_000_000_000);
        u64::from(self.burst) + u64::try_from(refill).unwrap_or(u64::MAX - u64::from(u32::MAX))
    }
}
