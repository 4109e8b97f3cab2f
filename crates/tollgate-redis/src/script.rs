//! The Lua script and how it is sent.

use redis::Cmd;

/// The Lua script of the store: the second implementation of
/// [`decide_together`](tollgate_core::decide_together).
///
/// `lua/README.md` is its contract. The store loads it by itself; this is for those who want to read
/// it, or to run it by hand.
pub const SCRIPT: &str = concat!(
    include_str!("../lua/parts/integer.lua"),
    "if ARGV[1] == 'batch' then\n\n",
    include_str!("../lua/batch.lua"),
    "end\n\n",
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

/// The script with the names by which Redis knows it.
#[derive(Debug)]
pub(crate) struct Script {
    sha: String,
    /// The name of the function, and of the library that holds it alone. It says which script it is,
    /// so that processes of two versions do not replace each other's.
    function: String,
}

/// How one call names the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// By its SHA-1, which fails with `NOSCRIPT` if Redis has forgotten it.
    Sha,
    /// By its text, which also makes Redis remember it.
    Source,
    /// By the name of a function, which fails if Redis has forgotten the library.
    Function,
    /// By the name of a function, after its library.
    Library,
}

impl Form {
    /// Returns the form that needs nothing to be remembered.
    pub(crate) const fn with_text(self) -> Self {
        match self {
            Self::Sha | Self::Source => Self::Source,
            Self::Function | Self::Library => Self::Library,
        }
    }
}

impl Script {
    pub(crate) fn new() -> Self {
        let sha = sha1_smol::Sha1::from(SCRIPT).digest().to_string();
        let function = format!("tollgate_{}", &sha[..16]);
        Self { sha, function }
    }

    /// Starts a call of the script; the number of keys, the keys and the arguments follow.
    pub(crate) fn call(&self, form: Form, arg_count: usize, arg_bytes: usize) -> Cmd {
        let (name, script) = match form {
            Form::Sha => ("EVALSHA", self.sha.as_str()),
            Form::Source => ("EVAL", SCRIPT),
            Form::Function | Form::Library => ("FCALL", self.function.as_str()),
        };
        let mut command = Cmd::with_capacity(arg_count + 2, arg_bytes + name.len() + script.len());
        command.arg(name).arg(script);
        command
    }

    /// Makes the command that is sent ahead of a call, if one is.
    pub(crate) fn ahead_of(&self, form: Form) -> Option<Cmd> {
        (form == Form::Library).then(|| self.load(form))
    }

    /// Makes the command that has Redis remember the script, or the library.
    pub(crate) fn load(&self, form: Form) -> Cmd {
        let mut command = Cmd::new();
        match form {
            Form::Sha | Form::Source => command.arg("SCRIPT").arg("LOAD").arg(SCRIPT),
            Form::Function | Form::Library => {
                // Without REPLACE, so that a server which has it writes and replicates nothing.
                command.arg("FUNCTION").arg("LOAD").arg(self.library())
            }
        };
        command
    }

    /// Makes a library of the script: its body is that of a function whose parameters have the names
    /// that a script finds its keys and arguments under.
    fn library(&self) -> String {
        let name = &self.function;
        format!(
            "#!lua name={name}\nredis.register_function('{name}', function(KEYS, ARGV)\n{SCRIPT}\nend)\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_names_the_script_by_sha_or_by_text() {
        let script = Script::new();
        assert_eq!(script.sha.len(), 40);
        let by_sha = script.call(Form::Sha, 0, 0).get_packed_command();
        assert_eq!(by_sha, format!("*2\r\n$7\r\nEVALSHA\r\n$40\r\n{}\r\n", script.sha).as_bytes());
        let by_source = script.call(Form::Source, 0, 0).get_packed_command();
        assert!(by_source.starts_with(b"*2\r\n$4\r\nEVAL\r\n"));
        assert!(by_source.windows(SCRIPT.len()).any(|window| window == SCRIPT.as_bytes()));
    }

    #[test]
    fn a_function_is_named_after_the_text_of_its_library() {
        let script = Script::new();
        let by_function = script.call(Form::Function, 0, 0).get_packed_command();
        let name = format!("tollgate_{}", &script.sha[..16]);
        assert_eq!(by_function, format!("*2\r\n$5\r\nFCALL\r\n$25\r\n{name}\r\n").as_bytes());
        assert!(script.library().starts_with(&format!("#!lua name={name}\n")));
        assert!(script.ahead_of(Form::Function).is_none());
        assert!(script.ahead_of(Form::Sha.with_text()).is_none());
        assert!(script.ahead_of(Form::Function.with_text()).is_some());
    }
}
