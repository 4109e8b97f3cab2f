//! What the admin API tells of the rules.

use serde::{Deserialize, Serialize};

/// The rules in force on one node, as `GET /v1/rules` tells of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RulesStatus {
    /// The id of the rules in force; `None` while there have never been any.
    pub id: Option<String>,
    /// How many they are.
    pub rules: usize,
    /// Where they come from.
    pub source: RulesSource,
    /// How they came to be in force: `config`, `source`, `kept`, `push` or `rollback`.
    pub origin: Option<String>,
    /// Whose token put them in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Since when, in UTC (RFC 3339).
    pub applied_at: Option<String>,
    /// Why the newest rules are not in force, if they are not.
    pub error: Option<RulesError>,
    /// What is doubtful in the rules in force, at most ten lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The limits for Envoy in force, if there is a directory of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envoy_limits: Option<EnvoyLimitsStatus>,
    /// The sections of the configuration that have changed and wait for a restart.
    pub needs_restart: Vec<String>,
    /// What `document` is written in: `yaml` or `toml`.
    pub format: String,
    /// The text of the rules in force.
    pub document: Option<String>,
}

/// Where the rules of a node come from.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RulesSource {
    /// `config`, `file`, `redis`, `http` or `none`.
    pub kind: String,
    /// The file, the server and key, or the URL, without passwords.
    pub location: String,
    /// Whether the admin API can write to it.
    pub writable: bool,
}

/// The limits of a directory in the format of envoyproxy/ratelimit that are in force on one node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EnvoyLimitsStatus {
    /// Their id.
    pub id: String,
    /// How many domains have limits.
    pub domains: usize,
    /// How many limits they are.
    pub limits: usize,
    /// The directory.
    pub directory: String,
    /// How they came to be in force: `source` or `kept`.
    pub origin: String,
    /// Since when, in UTC (RFC 3339).
    pub applied_at: String,
    /// Why the newest limits are not in force, if they are not.
    pub error: Option<RulesError>,
}

/// Why the newest rules, or limits for Envoy, are not in force.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RulesError {
    /// `invalid` if they have mistakes, `unavailable` if the source gives none.
    pub kind: String,
    /// What is wrong; of rules with mistakes, one mistake a line.
    pub message: String,
    /// Since when, in UTC (RFC 3339).
    pub since: String,
}

/// One version of the rules that was in force.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RulesVersion {
    /// Its id.
    pub id: String,
    /// How many rules it has.
    pub rules: usize,
    /// How it came to be in force; see [`RulesStatus::origin`].
    pub origin: String,
    /// Whose token put it in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When that was, in UTC (RFC 3339).
    pub applied_at: String,
}

/// The answer of `GET /v1/rules/history`, the newest first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RulesHistory {
    pub(crate) versions: Vec<RulesVersion>,
}
