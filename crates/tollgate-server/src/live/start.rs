//! Which rules a service starts with.

use std::sync::Mutex;

use tollgate::Limiter;
use tollgate_config::Config;

use crate::error::ServeError;
use crate::live::kept::Kept;
use crate::live::limits::LimitsInForce;
use crate::live::source::Source;
use crate::live::version::{Checked, Origin, Version};
use crate::live::{Live, State, Taken};

impl Live {
    /// Puts the first rules in force: those of the source; if it does not give any, those that
    /// were kept from it; and if there are none, those of the configuration.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if the source cannot be used as configured, or nothing can be kept in the
    /// state directory.
    pub(crate) async fn start(config: &Config, limiter: Limiter) -> Result<Self, ServeError> {
        let source = Source::new(config)?;
        let kept = match &config.state_dir {
            Some(folder) if source.is_elsewhere() => {
                let kept = Kept::open(folder);
                Some(kept.map_err(|error| ServeError::state_dir(folder.clone(), error))?)
            }
            _ => None,
        };
        let limits = LimitsInForce::start(config).await?;
        let live = Self::new(config, limiter, source, kept, limits);
        if live.source.is_elsewhere() {
            live.start_from_elsewhere().await;
        } else {
            live.start_from_config();
        }
        Ok(live)
    }

    /// Follows no source of rules: the application gives the limiter its rules.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if there are no limits for Envoy, though there is a directory of them.
    pub(crate) async fn unled(config: &Config, limiter: Limiter) -> Result<Self, ServeError> {
        let limits = LimitsInForce::start(config).await?;
        Ok(Self::new(config, limiter, Source::None, None, limits))
    }

    fn new(
        config: &Config,
        limiter: Limiter,
        source: Source,
        kept: Option<Kept>,
        limits: LimitsInForce,
    ) -> Self {
        Self {
            limiter,
            limits,
            source,
            started_with: config.clone(),
            kept,
            state: Mutex::new(State::default()),
            turn: tokio::sync::Mutex::new(()),
        }
    }

    fn start_from_config(&self) {
        let config = &self.started_with;
        let version = Version::of(config);
        self.limiter.replace_rules(config.rules.clone());
        self.state().history.push(Version { origin: Origin::Config, ..version });
    }

    async fn start_from_elsewhere(&self) {
        let mut kept = self.kept.as_ref().map(|kept| kept.read(&self.source)).unwrap_or_default();
        let taken = self.refresh().await;
        if !matches!(taken, Some(Taken::InForce)) {
            self.start_without_source(&mut kept).await;
        }
        self.join_history(kept);
        self.keep().await;
        if self.limiter.rules().is_empty() {
            tracing::warn!(
                source = %self.source,
                "there are no rules yet, so every request is allowed and the service is not ready"
            );
        }
    }

    /// Puts what was kept behind what is in force.
    fn join_history(&self, kept: Vec<Checked>) {
        let mut state = self.state();
        let current = state.history.current().map(|version| version.id.clone());
        let mut older: Vec<_> = kept.into_iter().map(|checked| checked.version).collect();
        // The version that was in force when the service ended is not one before it.
        if current.is_some() && older.first().map(|version| &version.id) == current.as_ref() {
            older.remove(0);
        }
        state.history.extend(older);
        state.is_whole = true;
    }

    async fn start_without_source(&self, kept: &mut Vec<Checked>) {
        if !kept.is_empty() {
            let last = kept.remove(0);
            return self.put_in_force(last, Origin::Kept, None).await;
        }
        if !self.started_with.rules.is_empty() {
            self.start_from_config();
        }
    }
}
