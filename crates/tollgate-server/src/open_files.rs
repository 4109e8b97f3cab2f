//! How many files this process may have open, of which each connection takes one.

use tollgate_config::{Config, ListenLimits};

/// What is open beside the connections of the listeners: those to the store, and files.
const BESIDES: usize = 256;

/// Raises the limit of open files as far as this process may, and warns if that is not enough for the
/// connections that `config` grants. The default grants as many as can be had.
pub(crate) fn raise(config: &Config) {
    let limits = &config.listen.limits;
    let needed = needed(limits, config.listen.grpc.is_some());
    let is_wanted = limits.connections_max != ListenLimits::default().connections_max;
    if let Some(most) = raised().filter(|most| is_wanted && *most < needed as u64) {
        tracing::warn!(
            open_files_max = most,
            needed,
            "this process may have fewer files open than the connections that it grants can take: \
             raise its limit of open files, or lower `listen.limits.connections_max`"
        );
    }
}

const fn needed(limits: &ListenLimits, has_grpc: bool) -> usize {
    let listeners = if has_grpc { 2 } else { 1 };
    limits.connections_max * listeners + limits.admin_connections_max + BESIDES
}

/// Raises the limit to the most that this process may set, and returns it, unless there is none.
#[cfg(unix)]
fn raised() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return limit.current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        Ok(()) => limit.maximum,
        // Some systems know a lower limit than they tell.
        Err(error) => {
            tracing::debug!(%error, "cannot raise the limit of open files");
            limit.current
        }
    }
}

#[cfg(not(unix))]
const fn raised() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listener_is_counted() {
        let limits = ListenLimits::default();
        assert_eq!(needed(&limits, true), 20_512);
        assert_eq!(needed(&limits, false), 10_512);
    }
}
