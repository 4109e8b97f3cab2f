//! What goes wrong with Redis, in the words of a [`StoreError`].

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tollgate_core::{StoreError, StoreErrorKind};

/// What may be done about an error within the same deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Send the same call with the script's text; it was not executed.
    SendText,
    /// Send it to the node of the cluster that the error names; it was not executed.
    Follow,
    /// Send it to the node that takes over its slot and is named; it was not executed.
    Ask,
    /// Connect anew and send it once more; it was not executed.
    Reconnect,
    /// Send it once more a little later; it was not executed.
    Wait,
    /// The connection is broken: whether the call was executed is not known.
    GiveUpConnection,
    /// Nothing would change.
    GiveUp,
}

impl Remedy {
    pub(crate) fn of(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => Self::SendText,
            _ if is_function_unknown(error) => Self::SendText,
            ErrorKind::Server(ServerErrorKind::Moved) => Self::Follow,
            ErrorKind::Server(ServerErrorKind::Ask) => Self::Ask,
            ErrorKind::Server(ServerErrorKind::ReadOnly) => Self::Reconnect,
            _ if is_not_ready(error) => Self::Wait,
            _ if error.is_unrecoverable_error() || error.is_io_error() => Self::GiveUpConnection,
            _ => Self::GiveUp,
        }
    }
}

/// Tells whether the server has forgotten the library. That has no code of its own.
fn is_function_unknown(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.starts_with("Function not found"))
}

/// Tells whether the server answered that it cannot serve anybody now.
fn is_not_ready(error: &RedisError) -> bool {
    matches!(error.code(), Some("LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN"))
}

/// Tells whether the server's user may not do what the call does. Inside a script this has no code
/// of its own.
fn is_not_permitted(error: &RedisError) -> bool {
    error.code() == Some("NOPERM")
        || error.detail().is_some_and(|detail| detail.contains("The user executing the script"))
}

/// Tells whether a server was asked for its cluster and has none.
fn has_no_cluster(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains("cluster support disabled"))
}

/// Makes the error of a check that came when too many were waiting for their turn. It was not sent.
pub(crate) fn too_many_waiting(most: usize) -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        format!("{most} checks wait for redis, which is the most: it is too slow for this load"),
    )
}

/// Makes the error of a check whose call was given up with the runtime that made it.
pub(crate) fn interrupted() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        "the runtime that sent the call has ended, so its answer is lost",
    )
}

/// Makes the error of a deadline that passed while others were served. The check was not sent.
pub(crate) fn no_turn(server: &str, timeout: std::time::Duration) -> StoreError {
    StoreError::new(
        StoreErrorKind::Timeout,
        format!(
            "redis at {server} did not get to the check within {timeout:?}: see whether it is \
             overloaded or paused, or raise the timeout"
        ),
    )
}

/// Makes the error of a deadline that passed after the call was sent.
pub(crate) fn no_answer(server: &str, timeout: std::time::Duration) -> StoreError {
    StoreError::new(
        StoreErrorKind::Timeout,
        format!(
            "redis at {server} gave no answer within {timeout:?}, and may still execute the call: \
             see whether it is overloaded or paused, or raise the timeout"
        ),
    )
}

/// Makes the error of a deadline that passed before there was a connection to send on.
pub(crate) fn no_connection(server: &str, timeout: std::time::Duration) -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        format!(
            "no connection to redis at {server} within {timeout:?}: see whether it runs and \
             can be reached"
        ),
    )
}

/// Makes the error of an attempt to connect that failed.
pub(crate) fn not_connected(server: &str, error: &RedisError) -> StoreError {
    if error.is_io_error() {
        let cause = cause(error);
        let advice = if cause.contains("certificate") || cause.contains("alert") {
            "check the CA, the client's certificate and the host that the URL names"
        } else if cause.contains("in TLS") || cause.contains("corrupt message") {
            "see whether it speaks TLS on that port, or write redis://"
        } else {
            "see whether it runs and can be reached"
        };
        return StoreError::new(
            StoreErrorKind::Unavailable,
            format!("cannot connect to redis at {server} ({cause}): {advice}"),
        );
    }
    answered(server, error)
}

/// Makes the error of a connection that broke under a call.
pub(crate) fn broken(server: &str, error: &RedisError) -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        format!(
            "the connection to redis at {server} broke before the answer ({}), and the call may \
             have been executed: the next call connects anew",
            cause(error)
        ),
    )
}

/// Makes the error of a server that answered, but not with a reply.
pub(crate) fn answered(server: &str, error: &RedisError) -> StoreError {
    let (kind, advice) = match error.code() {
        _ if is_not_ready(error) => (StoreErrorKind::Unavailable, "wait until it is ready"),
        Some("READONLY") => {
            (StoreErrorKind::Refused, "it is a replica: let the URL name the primary")
        }
        Some("OOM") => (StoreErrorKind::Refused, "raise its maxmemory"),
        Some("WRONGTYPE") => (
            StoreErrorKind::Corrupt,
            "remove the key PREFIX:!nodes, which somebody else has written, or choose another prefix",
        ),
        Some("NOAUTH" | "WRONGPASS") => (StoreErrorKind::Refused, LOGIN_ADVICE),
        _ if error.kind() == ErrorKind::AuthenticationFailed => {
            (StoreErrorKind::Refused, LOGIN_ADVICE)
        }
        _ if is_not_permitted(error) => (StoreErrorKind::Refused, PERMISSION_ADVICE),
        Some("MOVED" | "ASK" | "CROSSSLOT") => {
            (StoreErrorKind::Refused, "it is a node of a Redis Cluster: write redis+cluster://")
        }
        _ if error.detail().is_some_and(|detail| detail.starts_with("No such master")) => {
            (StoreErrorKind::Refused, "check the name of the master")
        }
        _ if is_function_unknown(error) => {
            (StoreErrorKind::Refused, "allow its user FUNCTION LOAD")
        }
        _ if has_no_cluster(error) => {
            (StoreErrorKind::Refused, "it is not a node of a Redis Cluster: write redis://")
        }
        _ => (StoreErrorKind::Refused, "check the URL and the server's log"),
    };
    StoreError::new(
        kind,
        format!("redis at {server} refused the call ({}): {advice}", cause(error)),
    )
}

/// Makes the error of a reply that the script cannot have given.
pub(crate) fn unintelligible(server: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Refused,
        format!(
            "redis at {server} gave a reply that the script does not: see whether a proxy \
             between changes scripts or replies"
        ),
    )
}

/// The keys of one charge.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) bucket: String,
    pub(crate) record: Option<String>,
}

/// Makes the error of an operation or an algorithm that the script does not know.
pub(crate) fn unsupported() -> StoreError {
    StoreError::invalid(
        "the redis store knows less operations and algorithms than tollgate_core: \
         use versions of one release",
    )
}

/// Makes the error of a call that is one too many.
pub(crate) fn too_many(servers: &str, most: usize) -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        format!(
            "{most} calls to redis at {servers} are under way, which is the most there may be: \
             see whether it is overloaded, or raise in_flight_max"
        ),
    )
}

/// Makes the error of a runtime that ended before a call did.
pub(crate) fn cancelled(servers: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        format!(
            "the runtime ended before redis at {servers} had answered, and a part of the call may \
             have been executed"
        ),
    )
}

/// Makes the error of a key whose records a Redis Cluster would keep elsewhere.
pub(crate) fn records_elsewhere(key: &str) -> StoreError {
    StoreError::invalid(format!(
        "the key {key:?} has a '}}' outside of a hash tag, so its records cannot be in its slot of \
         a Redis Cluster: escape it as %7D"
    ))
}

/// Makes the error of a key that holds what is not ours, if `error` is one.
///
/// `keys_of` gives the keys of the charge at an index from 0.
pub(crate) fn corrupt(
    error: &RedisError,
    keys_of: impl FnOnce(usize) -> Option<Keys>,
) -> Option<StoreError> {
    let detail = error.detail().filter(|_| error.code() == Some("CORRUPT"))?;
    let mut words = detail.split(' ');
    let index: usize = words.next()?.parse().ok()?;
    let Keys { bucket, record } = keys_of(index.checked_sub(1)?)?;
    let (key, what) = match (words.next()?, words.next()) {
        ("type", Some(name)) => (bucket, format!("holds a {name}, so it is not a bucket")),
        ("field", Some(field)) => (
            bucket,
            format!(
                "is a hash whose field {field:?} is missing or not a bucket's, so it is not a bucket"
            ),
        ),
        ("member", _) => (
            bucket,
            "is a sorted set of other members than leases, so it is not a bucket".to_owned(),
        ),
        ("record", _) => (
            record?,
            "does not hold <units>:<since>:<queue end>:<end>, so it is not the note of a ticket"
                .to_owned(),
        ),
        _ => return None,
    };
    Some(StoreError::new(
        StoreErrorKind::Corrupt,
        format!("the redis key {key:?} {what}: remove the key, or choose another prefix"),
    ))
}

const PERMISSION_ADVICE: &str = "allow its user the commands that lua/README.md lists, on the keys \
                                 PREFIX:* and {PREFIX:*";

const LOGIN_ADVICE: &str = "check the user and the password";

/// The server's own words, or the system's.
pub(crate) fn cause(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        _ if error.kind() == ErrorKind::AuthenticationFailed => "wrong password".to_owned(),
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}
