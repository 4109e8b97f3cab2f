//! What the service logs.

/// What the service logs of callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogConfig {
    /// How a log line names the bucket of a caller.
    pub keys: LoggedKeys,
}

/// How a log line names the bucket of a caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoggedKeys {
    /// By a hash that only this process can make, so that no address or account is in the log.
    #[default]
    Hashed,
    /// By its attributes and their values.
    Plain,
}
