//! The limits for Envoy in force, beside the rules.

mod kept;

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tollgate::{Clock, SystemClock, Timestamp};
use tollgate_config::{Config, ConfigWarnings, EnvoyFiles, EnvoyLimits, RulesId};
use tollgate_envoy::LiveLimits;

use crate::error::ServeError;
use crate::live::directory::Directory;
use crate::live::error::SourceError;
use crate::live::follow::news;
use crate::live::version::{Origin, listed, report};
use crate::live::{Counts, Trouble};

use self::kept::KeptLimits;

/// The limits of one service, and the directory that they come from.
#[derive(Debug)]
pub(crate) struct LimitsInForce {
    live: LiveLimits,
    directory: Option<Directory>,
    kept: Option<KeptLimits>,
    state: Mutex<State>,
}

/// What is in force, and what was found since.
#[derive(Debug, Default)]
struct State {
    /// `None` while there have never been any.
    current: Option<Current>,
    /// What the directory gave last, whether it is in force or was refused.
    seen: Option<EnvoyFiles>,
    refusal: Option<Trouble>,
    absence: Option<Trouble>,
    counts: Counts,
}

#[derive(Clone, Debug)]
struct Current {
    id: RulesId,
    domains: usize,
    limits: usize,
    origin: Origin,
    applied_at: Timestamp,
}

/// What is told of the limits.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) id: RulesId,
    pub(super) domains: usize,
    pub(super) limits: usize,
    pub(super) directory: String,
    pub(super) origin: Origin,
    pub(super) applied_at: Timestamp,
    pub(super) refusal: Option<Trouble>,
    pub(super) absence: Option<Trouble>,
}

impl LimitsInForce {
    /// Puts the first limits in force: those of the configuration; if the directory could not be
    /// read for it, those that were kept.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if there are none, or nothing can be kept in the state directory.
    pub(super) async fn start(config: &Config) -> Result<Self, ServeError> {
        let limits = &config.envoy_limits;
        let directory = limits.directory.as_ref();
        let kept = match (directory, &config.state_dir) {
            (Some(_), Some(folder)) => {
                let kept = KeptLimits::open(folder);
                Some(kept.map_err(|error| ServeError::state_dir(folder.clone(), error))?)
            }
            _ => None,
        };
        let is_known = !limits.is_unread();
        let current = is_known.then(|| Current::of(limits, Origin::Source));
        let started = Self {
            live: LiveLimits::new(limits),
            directory: directory.map(|path| Directory::new(path, config.envoy.poll_interval)),
            kept,
            state: Mutex::new(State { current, ..State::default() }),
        };
        started.start_from_directory().await?;
        Ok(started)
    }

    async fn start_from_directory(&self) -> Result<(), ServeError> {
        let Some(directory) = &self.directory else { return Ok(()) };
        self.refresh(directory).await;
        if self.state().current.is_some() {
            return Ok(());
        }
        if let Some(limits) = self.kept.as_ref().and_then(|kept| kept.read(directory.path())) {
            self.put_in_force(directory, &limits, Origin::Kept);
            return Ok(());
        }
        let state = self.state();
        let trouble = state.refusal.as_ref().or(state.absence.as_ref());
        let message = trouble.map_or("there are none", |trouble| &trouble.message);
        Err(ServeError::limits(SourceError::new(message)))
    }

    /// Returns the limits that requests are judged by.
    pub(crate) const fn live(&self) -> &LiveLimits {
        &self.live
    }

    /// Returns the number of limits.
    pub(crate) fn len(&self) -> usize {
        self.state().current.as_ref().map_or(0, |current| current.limits)
    }

    /// Tells of the limits, if they come from a directory.
    pub(super) fn told(&self) -> Option<Told> {
        let directory = self.directory.as_ref()?.path().display().to_string();
        let state = self.state();
        let Current { id, domains, limits, origin, applied_at } = state.current.clone()?;
        let (refusal, absence) = (state.refusal.clone(), state.absence.clone());
        Some(Told { id, domains, limits, directory, origin, applied_at, refusal, absence })
    }

    pub(super) fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Puts what the directory gives in force, whenever it changes, at intervals and when `reload`
    /// changes. It never ends by itself.
    pub(super) async fn follow(&self, mut reload: watch::Receiver<u64>) {
        let Some(directory) = &self.directory else { return std::future::pending().await };
        let asking = async {
            loop {
                news(directory.pace(), &mut reload).await;
                self.refresh(directory).await;
            }
        };
        tokio::join!(directory.watch(), asking);
    }

    /// Reads the directory once, and puts in force what it gives.
    async fn refresh(&self, directory: &Directory) {
        let files = match directory.fetch().await {
            Ok(files) => files,
            Err(error) => return self.fail(directory, &error),
        };
        self.note_answer(directory);
        if self.state().seen.as_ref() == Some(&files) {
            return;
        }
        match files.limits() {
            Ok(limits) => {
                self.state().refusal = None;
                self.put_in_force(directory, &limits, Origin::Source);
                if let Some(kept) = &self.kept {
                    kept.write(&limits.id, &files).await;
                }
            }
            Err(errors) => self.refuse(directory, &report(&errors)),
        }
        self.state().seen = Some(files);
    }

    fn put_in_force(&self, directory: &Directory, limits: &EnvoyLimits, origin: Origin) {
        let previous = {
            let mut state = self.state();
            let previous = state.current.as_ref().map(|current| current.id.clone());
            if previous.as_ref() == Some(&limits.id) {
                return;
            }
            // Under the lock, so that what is told and what is in force change in one order.
            self.live.replace(limits);
            state.counts.changes += u64::from(previous.is_some());
            state.current = Some(Current::of(limits, origin));
            previous
        };
        warn_of(&limits.warnings);
        tracing::info!(
            id = %limits.id,
            previous = previous.as_ref().map(tracing::field::display),
            limits = limits.len(),
            origin = origin.as_str(),
            directory = %directory.path().display(),
            "limits for Envoy in force"
        );
    }

    fn note_answer(&self, directory: &Directory) {
        if self.state().absence.take().is_some() {
            let directory = directory.path().display();
            tracing::info!(%directory, "the limits for Envoy can be read again");
        }
    }

    fn refuse(&self, directory: &Directory, message: &str) {
        let mut state = self.state();
        state.counts.refusals += 1;
        state.refusal = Some(Trouble::new(message));
        let in_force = state.current.as_ref().map(|current| current.id.clone());
        drop(state);
        tracing::warn!(
            in_force = in_force.as_ref().map(tracing::field::display),
            directory = %directory.path().display(),
            error = message.lines().next().unwrap_or_default(),
            "new limits for Envoy are refused, those in force stay"
        );
    }

    fn fail(&self, directory: &Directory, error: &SourceError) {
        let mut state = self.state();
        state.counts.source_errors += 1;
        let message = error.to_string();
        if state.absence.as_ref().is_some_and(|known| known.message == message) {
            return;
        }
        state.absence = Some(Trouble::new(&message));
        drop(state);
        tracing::warn!(
            directory = %directory.path().display(),
            %error,
            "the limits for Envoy cannot be read, those in force stay"
        );
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Current {
    fn of(limits: &EnvoyLimits, origin: Origin) -> Self {
        Self {
            id: limits.id.clone(),
            domains: limits.domains.len(),
            limits: limits.len(),
            origin,
            applied_at: SystemClock.now(),
        }
    }
}

impl Told {
    /// Tells whether the newest limits are not in force.
    pub(super) const fn is_stale(&self) -> bool {
        self.refusal.is_some() || self.absence.is_some()
    }
}

fn warn_of(warnings: &ConfigWarnings) {
    for warning in listed(warnings) {
        tracing::warn!(%warning, "doubtful in the limits for Envoy");
    }
}
