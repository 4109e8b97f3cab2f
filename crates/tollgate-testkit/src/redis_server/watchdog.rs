//! Ends a server whose owner died without doing so.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use std::os::unix::process::CommandExt;

/// A shell that waits for the end of a pipe, which is the end of the process that holds it.
///
/// The kernel's parent death signal would need unsafe code, and follows the thread that started
/// the server, not the process.
#[derive(Debug)]
pub(super) struct Watchdog(Child);

impl Watchdog {
    /// Watches this process, to kill `pid` and to remove `dir` when it is gone.
    pub(super) fn start(pid: u32, dir: &Path) -> io::Result<Self> {
        let child = Command::new("sh")
            .arg("-c")
            .arg("trap '' HUP INT TERM; read -r _; kill -KILL \"$1\"; rm -rf -- \"$2\"")
            .arg("tollgate-redis-watchdog")
            .arg(pid.to_string())
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self(child))
    }

    /// Ends the watch without doing anything.
    pub(super) fn dismiss(&mut self) {
        // Neither can fail but for a watchdog that somebody else ended, which is as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
