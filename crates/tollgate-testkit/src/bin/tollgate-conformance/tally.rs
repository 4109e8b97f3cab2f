//! How many timelines were reproduced.

use std::fmt;
use std::process::ExitCode;

use tollgate_testkit::conformance::Failure;

/// The counts of the closing line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    ok: usize,
    different: usize,
    unsupported: usize,
}

impl Tally {
    pub(crate) fn count_ok(&mut self) {
        self.ok += 1;
    }

    pub(crate) fn count_failure(&mut self, failure: &Failure) {
        match failure {
            Failure::Unsupported { .. } => self.unsupported += 1,
            _ => self.different += 1,
        }
    }

    pub(crate) fn exit_code(self) -> ExitCode {
        if self.different + self.unsupported == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ok, different, unsupported } = self;
        let total = ok + different + unsupported;
        write!(f, "{total} timelines: {ok} ok, {different} different, {unsupported} unsupported")
    }
}
