//! One server process, from its start to its end.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, PipeReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::BINARY_VARIABLE;
use super::resp;
use super::watchdog::Watchdog;

const START_DEADLINE: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A child process that is killed on drop.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    watchdog: Option<Watchdog>,
}

/// Why a server did not start.
#[derive(Debug)]
pub(super) enum StartError {
    /// Somebody else holds the port; another one may do.
    PortTaken(io::Error),
    /// Another attempt would fail as well.
    Other(io::Error),
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::Other(error)
    }
}

/// What is started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch<'a> {
    pub(super) binary: &'a OsStr,
    /// A file that comes before all arguments.
    pub(super) config: Option<&'a Path>,
    pub(super) args: &'a [OsString],
    pub(super) dir: &'a Path,
    pub(super) port: u16,
}

impl Process {
    /// Starts a server and waits until it answers.
    pub(super) fn start(launch: Launch<'_>) -> Result<Self, StartError> {
        let Launch { binary, config, args, dir, port } = launch;
        let (log, writer) = io::pipe()?;
        let child = Command::new(binary)
            .args(config)
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(dir)
            .args(args)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            // A Ctrl-C at the terminal is for the test alone, which ends the server itself.
            .process_group(0)
            .spawn()
            .map_err(|error| explain_spawn(binary, error))?;
        let mut process = Self { child, watchdog: None };
        process.watchdog = Some(Watchdog::start(process.id(), dir)?);
        process.wait_until_ready(port, &follow(log))?;
        Ok(process)
    }

    /// As [`start`](Self::start), waiting for the port to become free.
    pub(super) fn start_again(launch: Launch<'_>) -> io::Result<Self> {
        let deadline = Instant::now() + START_DEADLINE;
        loop {
            match Self::start(launch) {
                Ok(process) => return Ok(process),
                Err(StartError::PortTaken(_)) if Instant::now() < deadline => {}
                Err(StartError::PortTaken(error) | StartError::Other(error)) => return Err(error),
            }
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops the process and waits until it is stopped.
    pub(super) fn pause(&self) -> io::Result<()> {
        kill_process(self.pid(), Signal::STOP)?;
        let events = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.pid()), events)?;
        Ok(())
    }

    pub(super) fn resume(&self) -> io::Result<()> {
        Ok(kill_process(self.pid(), Signal::CONT)?)
    }

    fn pid(&self) -> Pid {
        // The child is not reaped while this value lives, so its id cannot be somebody else's.
        Pid::from_child(&self.child)
    }

    /// Kills the process and waits for its end.
    pub(super) fn end(&mut self) -> io::Result<()> {
        // First, because the process id is free for others as soon as the child is reaped.
        if let Some(mut watchdog) = self.watchdog.take() {
            watchdog.dismiss();
        }
        self.child.kill()?;
        self.child.wait().map(|_| ())
    }

    fn wait_until_ready(&self, port: u16, log: &Receiver<String>) -> Result<(), StartError> {
        let deadline = Instant::now() + START_DEADLINE;
        let mut lines = Vec::new();
        while Instant::now() < deadline {
            match log.recv_timeout(POLL_INTERVAL) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Timeout) => {
                    if self.answers(port) {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let text = tail(&lines);
                    let error = io::Error::other(format!(
                        "redis-server ended before it answered on port {port}; it logged:\n{text}"
                    ));
                    return Err(if text.contains("Address already in use") {
                        StartError::PortTaken(error)
                    } else {
                        StartError::Other(error)
                    });
                }
            }
        }
        Err(StartError::Other(io::Error::new(
            io::ErrorKind::TimedOut,
            format!(
                "redis-server did not answer on port {port} within {START_DEADLINE:?}; \
                 it logged:\n{}",
                tail(&lines)
            ),
        )))
    }

    /// Tells whether this process, and not another one on its port, answers.
    fn answers(&self, port: u16) -> bool {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let ask = |words: &[&str]| resp::call(address, None, words, Duration::from_secs(1));
        match ask(&["PING"]) {
            Ok(_) => ask(&["INFO", "server"]).is_ok_and(|info| {
                let own = format!("process_id:{}", self.id());
                info.text().is_some_and(|text| text.lines().any(|line| line == own))
            }),
            // A server that was started with a password is ready, too.
            Err(error) => error.to_string().contains("NOAUTH"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = self.end();
    }
}

/// Reads the log in a thread, so that the pipe never fills. The channel disconnects when the
/// process ends.
fn follow(log: PipeReader) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut log = BufReader::new(log);
        let mut line = Vec::new();
        while matches!(log.read_until(b'\n', &mut line), Ok(1..)) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if sender.send(text).is_err() {
                // Nobody reads the log of a server that runs, but it must be drained.
                let _ = io::copy(&mut log, &mut io::sink());
                return;
            }
            line.clear();
        }
    });
    receiver
}

fn explain_spawn(binary: &OsStr, error: io::Error) -> StartError {
    let kind = error.kind();
    StartError::Other(io::Error::new(
        kind,
        format!(
            "cannot run {}: {error}. Install Redis 6.2 or later (Debian and Ubuntu: apt-get install \
             redis-server; macOS: brew install redis) or set {BINARY_VARIABLE} to the path of a \
             redis-server or valkey-server",
            binary.display()
        ),
    ))
}

fn tail(lines: &[String]) -> String {
    lines[lines.len().saturating_sub(20)..].join("\n")
}
