//! `GET /v1/status`: how it stands between this node, its store and its rules.

use std::time::Duration;

use serde::Serialize;
use tollgate::{Limiter, Rule, StatusChange, StoreErrorKind};

use crate::rules_status::{RulesError, RulesStatus};

/// What is told of a node.
#[derive(Serialize)]
pub(super) struct Status<'a> {
    store: StoreStatus,
    nodes: NodesStatus,
    local: LocalStatus,
    config: ConfigStatus,
    rules: Vec<RuleStatus<'a>>,
    changes: Vec<ChangeStatus>,
}

/// Which rules and limits are in force, and why newer ones are not.
#[derive(Serialize)]
struct ConfigStatus {
    rules_id: Option<String>,
    rules_error: Option<RulesError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    envoy_limits_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    envoy_limits_error: Option<RulesError>,
}

#[derive(Serialize)]
struct StoreStatus {
    kind: &'static str,
    answers: bool,
    failure: Option<&'static str>,
    breaker: &'static str,
    open_for_ms: Option<u64>,
    openings: u64,
    answered_ms_ago: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    redis: Option<RedisStatus>,
}

#[derive(Serialize)]
struct RedisStatus {
    servers: usize,
    connections: usize,
    in_flight: usize,
    reconnects: u64,
    connections_replaced: u64,
    script_reloads: u64,
    timeouts: u64,
    retries: u64,
    redirects: u64,
    failovers: u64,
}

#[derive(Serialize)]
struct NodesStatus {
    /// Among how many a quota is shared out.
    counted: u32,
    /// Whether the store told that number.
    known: bool,
}

#[derive(Serialize)]
struct LocalStatus {
    keys: usize,
    debts: usize,
    debts_charged: u64,
    debts_forgotten: u64,
}

#[derive(Serialize)]
struct RuleStatus<'a> {
    domain: &'a str,
    rule: &'a str,
    mode: &'static str,
    on_store_failure: &'static str,
    limit: String,
    burst: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    local_limit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    local_burst: Option<u32>,
}

#[derive(Serialize)]
struct ChangeStatus {
    ms_ago: u64,
    change: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<u32>,
}

/// Writes the status of a limiter with the rules in force.
pub(super) fn write(limiter: &Limiter, in_force: RulesStatus) -> Vec<u8> {
    let (status, rules) = (limiter.status(), limiter.rules());
    let store = StoreStatus {
        kind: limiter.store().kind(),
        answers: status.failure.is_none(),
        failure: status.failure.map(StoreErrorKind::as_str),
        breaker: if status.open_for.is_some() { "open" } else { "closed" },
        open_for_ms: status.open_for.map(millis),
        openings: status.openings,
        answered_ms_ago: status.since_answer.map(millis),
        redis: limiter.store().as_redis().map(|redis| {
            let redis = redis.status();
            RedisStatus {
                servers: redis.servers,
                connections: redis.connections,
                in_flight: redis.in_flight,
                reconnects: redis.reconnects,
                connections_replaced: redis.connections_replaced,
                script_reloads: redis.script_reloads,
                timeouts: redis.timeouts,
                retries: redis.retries,
                redirects: redis.redirects,
                failovers: redis.failovers,
            }
        }),
    };
    let nodes = NodesStatus { counted: status.nodes.get(), known: status.nodes_known.is_some() };
    let local = LocalStatus {
        keys: limiter.local_keys(),
        debts: status.debts,
        debts_charged: status.debts_charged,
        debts_forgotten: status.debts_forgotten,
    };
    let changes = status.changes.iter().map(|(ago, change)| ChangeStatus::of(*ago, *change));
    let mut rules: Vec<_> = rules.iter().map(|rule| RuleStatus::of(limiter, rule)).collect();
    rules.sort_by_key(|rule| rule.domain);
    let (limits_id, limits_error) =
        in_force.envoy_limits.map(|limits| (limits.id, limits.error)).unzip();
    let config = ConfigStatus {
        rules_id: in_force.id,
        rules_error: in_force.error,
        envoy_limits_id: limits_id,
        envoy_limits_error: limits_error.flatten(),
    };
    let told = Status { store, nodes, local, config, rules, changes: changes.collect() };
    // Writing words and numbers to memory cannot fail.
    let mut body = serde_json::to_vec(&told).unwrap_or_default();
    body.push(b'\n');
    body
}

impl<'a> RuleStatus<'a> {
    fn of(limiter: &Limiter, rule: &'a Rule) -> Self {
        let part = limiter.local_part_of(rule);
        Self {
            domain: rule.domain(),
            rule: rule.name(),
            mode: limiter.mode_of(rule).as_str(),
            on_store_failure: rule.failure_policy().as_str(),
            limit: rule.quota().rate().to_string(),
            burst: rule.quota().burst(),
            local_limit: part.map(|part| part.rate().to_string()),
            local_burst: part.map(|part| part.burst()),
        }
    }
}

impl ChangeStatus {
    fn of(ago: Duration, change: StatusChange) -> Self {
        let (reason, nodes) = match change {
            StatusChange::Fails(kind) | StatusChange::BreakerOpened(kind) => {
                (Some(kind.as_str()), None)
            }
            StatusChange::Nodes(nodes) => (None, Some(nodes.get())),
            _ => (None, None),
        };
        Self { ms_ago: millis(ago), change: change.as_str(), reason, nodes }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
