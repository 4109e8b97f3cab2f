//! What is known of the decision on the request that is being answered.
//!
//! It is noted through a task-local: the handlers of the http listener and the adapter for Envoy know
//! the decision, the middleware around them makes the span.

use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry::{Array, KeyValue, StringValue, Value};
use tollgate::{CheckError, StoreErrorKind, Verdict};

tokio::task_local! {
    pub(super) static NOTED: Noted;
}

/// What has been noted. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Noted(Arc<Mutex<Option<Decided>>>);

/// What the rules said. It holds names of the configuration, nothing that a caller sent (G9).
#[derive(Clone, Debug)]
pub(super) struct Decided {
    domain: Option<String>,
    rules: Vec<StringValue>,
    denied_by: Option<StringValue>,
    shadow_denied_by: Option<StringValue>,
    mode: &'static str,
    is_denied: bool,
    store_failure: Option<StoreErrorKind>,
}

pub(super) fn note(decided: Result<&Verdict, &CheckError>) {
    let _ = NOTED.try_with(|noted| noted.set(Decided::of(decided)));
}

pub(super) fn note_first(decided: Result<&Verdict, &CheckError>) {
    let _ = NOTED.try_with(|noted| {
        let is_first = noted.0.lock().unwrap_or_else(PoisonError::into_inner).is_none();
        if is_first {
            noted.set(Decided::of(decided));
        }
    });
}

pub(super) fn note_denied(is_denied: bool) {
    let _ = NOTED.try_with(|noted| {
        if let Some(decided) = &mut *noted.0.lock().unwrap_or_else(PoisonError::into_inner) {
            decided.is_denied = is_denied;
        }
    });
}

impl Noted {
    fn set(&self, decided: Option<Decided>) {
        if decided.is_some() {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = decided;
        }
    }

    pub(super) fn take(&self) -> Option<Decided> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Decided {
    /// A mistake of the caller is no decision.
    fn of(decided: Result<&Verdict, &CheckError>) -> Option<Self> {
        let name = |name: &str| StringValue::from(name.to_owned());
        match decided {
            Ok(verdict) => {
                let rules = verdict.rules();
                let shadow =
                    rules.iter().find(|one| one.rule().is_shadow() && one.decision().is_deny());
                let is_denied = !verdict.is_allowed();
                Some(Self {
                    domain: rules.first().map(|one| one.rule().domain().to_owned()),
                    rules: rules.iter().map(|one| name(one.rule().name())).collect(),
                    denied_by: verdict.rule().filter(|_| is_denied).map(|rule| name(rule.name())),
                    shadow_denied_by: shadow.map(|one| name(one.rule().name())),
                    mode: verdict.mode().as_str(),
                    is_denied,
                    store_failure: verdict.store_failure(),
                })
            }
            Err(error) if error.is_store_failure() => {
                let rule = error.rule();
                let named = rule.map(|rule| name(rule.name()));
                Some(Self {
                    domain: rule.map(|rule| rule.domain().to_owned()),
                    rules: named.iter().cloned().collect(),
                    denied_by: named,
                    shadow_denied_by: None,
                    mode: tollgate::Mode::Closed.as_str(),
                    is_denied: true,
                    store_failure: error.store_failure(),
                })
            }
            Err(_) => None,
        }
    }

    /// Writes it with the words of the metrics.
    pub(super) fn write(self, attributes: &mut Vec<KeyValue>) {
        let outcome = match (self.is_denied, &self.shadow_denied_by) {
            (true, _) => "deny",
            (false, Some(_)) => "shadow_deny",
            (false, None) => "allow",
        };
        let named = if self.is_denied { self.denied_by } else { self.shadow_denied_by };
        attributes.push(KeyValue::new("tollgate.outcome", outcome));
        attributes.push(KeyValue::new("tollgate.mode", self.mode));
        if let Some(domain) = self.domain {
            attributes.push(KeyValue::new("tollgate.domain", domain));
        }
        if !self.rules.is_empty() {
            let rules = Value::Array(Array::String(self.rules));
            attributes.push(KeyValue::new("tollgate.rules", rules));
        }
        if let Some(rule) = named {
            attributes.push(KeyValue::new("tollgate.denied_by", Value::String(rule)));
        }
        if let Some(kind) = self.store_failure {
            attributes.push(KeyValue::new("tollgate.store_failure", kind.as_str()));
        }
    }
}
