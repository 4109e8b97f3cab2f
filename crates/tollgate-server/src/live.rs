//! The rules in force while the service runs: where they come from, and what came before them.

mod api;
mod directory;
mod error;
mod file;
mod follow;
mod history;
mod http;
mod kept;
mod limits;
mod metrics;
mod reading;
mod redis;
mod source;
mod start;
mod version;
mod watch;

use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate::{Clock, Limiter, SystemClock, Timestamp};
use tollgate_config::Config;

use crate::error::ServeError;

use self::history::History;
use self::kept::Kept;
use self::limits::LimitsInForce;
use self::version::{Checked, Version};

pub(crate) use self::api::{router, status};
pub(crate) use self::error::SourceError;
pub(crate) use self::follow::follow;
pub(crate) use self::metrics::RulesInForce;
pub(crate) use self::reading::read_regular;
pub(crate) use self::source::Source;
pub(crate) use self::version::Origin;

/// The rules of one service, and where they come from.
#[derive(Debug)]
pub(crate) struct Live {
    limiter: Limiter,
    pub(crate) limits: LimitsInForce,
    source: Source,
    /// The configuration that the service was started with, which decides what needs a restart.
    started_with: Config,
    kept: Option<Kept>,
    state: Mutex<State>,
    /// Held while a version is fetched and put in force, so that none overtakes a later one.
    turn: tokio::sync::Mutex<()>,
}

/// What is in force, and what was found since.
#[derive(Debug, Default)]
struct State {
    history: History,
    /// Whether the history has all that was kept, so that it may take the place of that.
    is_whole: bool,
    /// The text that the source gave last, whether it is in force or was refused.
    seen: Option<Vec<u8>>,
    /// Why the text that was seen last is not in force.
    refusal: Option<Trouble>,
    /// Why the source gives none.
    absence: Option<Trouble>,
    needs_restart: Vec<String>,
    counts: Counts,
}

/// Why the newest rules are not in force.
#[derive(Clone, Debug)]
struct Trouble {
    message: String,
    since: Timestamp,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    changes: u64,
    refusals: u64,
    source_errors: u64,
}

/// What came of a text that a source gave.
enum Taken {
    /// It is in force, or was before.
    InForce,
    Refused,
}

impl Live {
    /// Takes part of a source's text: validates it whole, and puts it in force if it is in order.
    async fn take(&self, text: Vec<u8>, origin: Origin, by: Option<&str>) -> Taken {
        if self.state().seen.as_ref() == Some(&text) {
            return self.seen_again();
        }
        self.note_answer();
        match self.check(&text) {
            Ok(checked) => {
                self.state().seen = Some(text);
                self.put_in_force(checked, origin, by).await;
                Taken::InForce
            }
            Err(message) => {
                self.refuse(&message);
                self.state().seen = Some(text);
                Taken::Refused
            }
        }
    }

    /// The source answers with what is known.
    fn seen_again(&self) -> Taken {
        self.note_answer();
        match self.state().refusal {
            Some(_) => Taken::Refused,
            None => Taken::InForce,
        }
    }

    fn note_answer(&self) {
        if self.state().absence.take().is_some() {
            tracing::info!(source = %self.source, "the source of the rules answers again");
        }
    }

    fn check(&self, text: &[u8]) -> Result<Checked, String> {
        let checked = Checked::read(text, &self.source, &self.started_with.envoy_limits)?;
        if let Some(config) = &checked.config {
            self.note_restart(self.started_with.needs_restart(config));
        }
        Ok(checked)
    }

    fn note_restart(&self, sections: Vec<String>) {
        let mut state = self.state();
        if state.needs_restart == sections {
            return;
        }
        state.needs_restart.clone_from(&sections);
        drop(state);
        if !sections.is_empty() {
            let sections = sections.join(", ");
            tracing::warn!(
                %sections,
                "sections of the configuration have changed that take effect at the next start"
            );
        }
    }

    async fn put_in_force(&self, checked: Checked, origin: Origin, by: Option<&str>) {
        let Checked { rules, version, .. } = checked;
        let previous = {
            let mut state = self.state();
            // What was kept does not answer for what was refused.
            if origin != Origin::Kept {
                state.refusal = None;
            }
            let previous = state.history.current().map(|version| version.id.clone());
            if previous.as_ref() == Some(&version.id) {
                state.history.set_document(&version);
                return;
            }
            // Under the lock, so that the history and the limiter change in one order.
            self.limiter.replace_rules(rules);
            state.counts.changes += u64::from(previous.is_some());
            state.history.push(Version { origin, by: by.map(str::to_owned), ..version.clone() });
            previous
        };
        for warning in &version.warnings {
            tracing::warn!(%warning, "doubtful in the rules");
        }
        tracing::info!(
            id = %version.id,
            previous = previous.as_ref().map(tracing::field::display),
            rules = version.rules_count,
            origin = %origin.as_str(),
            source = %self.source,
            by = by.map(tracing::field::display),
            "rules in force"
        );
        self.keep().await;
    }

    /// Keeps what is in force for the next start. Where that was cut off by the end of the service,
    /// it is made up for.
    pub(crate) async fn keep(&self) {
        let Some(kept) = &self.kept else { return };
        let versions = {
            let state = self.state();
            state.is_whole.then(|| state.history.clone())
        };
        if let Some(versions) = versions {
            kept.write(&self.source, versions).await;
        }
    }

    fn refuse(&self, message: &str) {
        let mut state = self.state();
        state.counts.refusals += 1;
        state.refusal = Some(Trouble::new(message));
        let in_force = state.history.current().map(|version| version.id.to_string());
        drop(state);
        let error = message.lines().next().unwrap_or_default();
        let source = &self.source;
        match in_force {
            Some(in_force) => {
                tracing::warn!(%in_force, %source, error, "new rules are refused, those in force stay");
            }
            None => tracing::warn!(%source, error, "the rules are refused, and none are in force"),
        }
    }

    /// Notes that the source does not answer.
    fn fail(&self, error: &SourceError) {
        let mut state = self.state();
        state.counts.source_errors += 1;
        let message = error.to_string();
        if state.absence.as_ref().is_some_and(|known| known.message == message) {
            return;
        }
        state.absence = Some(Trouble::new(&message));
        let has_rules = state.history.current().is_some();
        drop(state);
        let source = &self.source;
        if has_rules {
            tracing::warn!(%source, %error, "the source of the rules does not answer, those in force stay");
        } else {
            tracing::warn!(%source, %error, "the source gives no rules, and none are in force");
        }
    }

    /// Returns where the rules come from, if that is outside of the configuration.
    pub(crate) fn elsewhere(&self) -> Option<String> {
        self.source.is_elsewhere().then(|| self.source.to_string())
    }

    /// Refuses to go on without rules, and says why there are none.
    pub(crate) fn require_rules(&self) -> Result<(), ServeError> {
        if !self.awaits_rules() {
            return Ok(());
        }
        let state = self.state();
        let trouble = state.refusal.as_ref().or(state.absence.as_ref());
        let message = trouble.map_or("there are none", |trouble| &trouble.message);
        Err(ServeError::rules(SourceError::new(message)))
    }

    /// Tells whether rules are expected from elsewhere and have never come.
    pub(crate) fn awaits_rules(&self) -> bool {
        self.source.is_elsewhere() && self.limiter.rules().is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trouble {
    fn new(message: &str) -> Self {
        Self { message: message.to_owned(), since: SystemClock.now() }
    }
}
