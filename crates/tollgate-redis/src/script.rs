//! The Lua script and how it is sent.

use std::sync::LazyLock;

use redis::Cmd;

/// The Lua script of the store: the second implementation of
/// [`decide_together`](tollgate_core::decide_together).
///
/// `lua/README.md` is its contract. The store loads it by itself; this is for those who want to read
/// it, or to run it by hand.
pub const SCRIPT: &str = concat!(
    include_str!("../lua/parts/integer.lua"),
    // What follows is the body of one function, which is only called by a request that needs it: in
    // Redis every call of a script makes its functions anew.
    "local function make_parts(call, now, max_clock_skew)\nlocal parts = {}\n\n",
    include_str!("../lua/parts/exact.lua"),
    include_str!("../lua/parts/stored.lua"),
    include_str!("../lua/parts/carried_over.lua"),
    include_str!("../lua/parts/window.lua"),
    include_str!("../lua/parts/cells.lua"),
    include_str!("../lua/parts/slots.lua"),
    include_str!("../lua/parts/readers.lua"),
    include_str!("../lua/parts/record.lua"),
    "return parts\nend\n\n",
    include_str!("../lua/apply.lua"),
);

/// The script that spends for many requests in one call.
const BATCH_SCRIPT: &str =
    concat!(include_str!("../lua/parts/integer.lua"), include_str!("../lua/batch.lua"));

/// What applies an operation to the charges of one request.
pub(crate) static APPLY: LazyLock<Script> = LazyLock::new(|| Script::new(SCRIPT));

/// What spends for many requests.
pub(crate) static BATCH: LazyLock<Script> = LazyLock::new(|| Script::new(BATCH_SCRIPT));

/// A script with the SHA-1 by which Redis knows it.
#[derive(Debug)]
pub(crate) struct Script {
    text: &'static str,
    sha: String,
}

/// How one call names the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// By its SHA-1, which fails with `NOSCRIPT` if Redis has forgotten it.
    Sha,
    /// By its text, which also makes Redis remember it.
    Source,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, sha: sha1_smol::Sha1::from(text).digest().to_string() }
    }

    /// Starts a call of the script; the number of keys, the keys and the arguments follow.
    pub(crate) fn call(&self, form: Form, arg_count: usize, arg_bytes: usize) -> Cmd {
        let (name, script) = match form {
            Form::Sha => ("EVALSHA", self.sha.as_str()),
            Form::Source => ("EVAL", self.text),
        };
        let mut command = Cmd::with_capacity(arg_count + 2, arg_bytes + name.len() + script.len());
        command.arg(name).arg(script);
        command
    }

    /// Makes the command that has Redis remember the script.
    pub(crate) fn load(&self) -> Cmd {
        let mut command = Cmd::new();
        command.arg("SCRIPT").arg("LOAD").arg(self.text);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_names_the_script_by_sha_or_by_text() {
        let script = &*APPLY;
        assert_eq!(script.sha.len(), 40);
        let by_sha = script.call(Form::Sha, 0, 0).get_packed_command();
        assert_eq!(by_sha, format!("*2\r\n$7\r\nEVALSHA\r\n$40\r\n{}\r\n", script.sha).as_bytes());
        let by_source = script.call(Form::Source, 0, 0).get_packed_command();
        assert!(by_source.starts_with(b"*2\r\n$4\r\nEVAL\r\n"));
        assert!(by_source.windows(SCRIPT.len()).any(|window| window == SCRIPT.as_bytes()));
    }
}
