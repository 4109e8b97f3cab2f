//! How the binary is run.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::mem;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tollgate_testkit::RedisServer;

/// How long a line, or the end of a process, may take to come.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Runs the binary to its end.
pub(crate) fn run(args: &[&str]) -> Ran {
    command(args).output().unwrap().into()
}

/// Writes a configuration with these rules on a Redis store.
pub(crate) fn configured(server: &RedisServer, rules: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tollgate.yaml");
    let text = format!("store: {{ kind: redis, url: \"{}\", timeout: 1s }}\n{rules}", server.url());
    fs::write(&file, text).unwrap();
    (dir, file)
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// A command that runs, in a process group of its own. It is killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Running {
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut child = command(args)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (stdin, lines) = (child.stdin.take(), lines_of(child.stdout.take().unwrap()));
        Self { child, stdin, lines }
    }

    /// Returns the next line of stdout.
    pub(crate) fn next_line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends its input, waits until it has ended and returns its status and the rest of stdout.
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        drop(self.stdin.take());
        let rest = rest_of(&self.lines);
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running service. It is killed when it is dropped.
pub(crate) struct Service {
    child: Child,
    lines: Receiver<String>,
    /// What it has written to stderr until it listened.
    pub(crate) said: String,
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Service {
    /// Starts `tollgate serve` on free ports and waits until it listens.
    pub(crate) fn start(args: &[&str]) -> Self {
        let ports = ["serve", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let mut child = command(&[&ports[..], args].concat())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = lines_of(child.stderr.take().unwrap());
        let mut said = String::new();
        let listening = loop {
            let Ok(line) = lines.recv_timeout(PATIENCE) else {
                let _ = child.kill();
                panic!("it does not listen: {said}");
            };
            said += &line;
            if line.contains("serving") {
                break line;
            }
        };
        let address = |name: &str| {
            let (_, rest) = listening
                .split_once(&format!("{name}="))
                .or_else(|| listening.split_once(&format!("\"{name}\":\"")))
                .unwrap();
            rest.split([' ', '"']).next().unwrap().parse().unwrap()
        };
        Self { http: address("http"), admin: address("admin"), child, lines, said }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Returns the next line of stderr.
    pub(crate) fn next_line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap()
    }

    /// Waits until it has ended and returns its status and the rest of stderr.
    pub(crate) fn ended(mut self) -> (i32, String) {
        let rest = rest_of(&self.lines);
        (self.child.wait().unwrap().code().unwrap(), rest)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines in a thread, so that whoever waits for one can stop waiting.
fn lines_of(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = String::new();
        while output.read_line(&mut line).unwrap() > 0 && sender.send(mem::take(&mut line)).is_ok()
        {
        }
    });
    lines
}

/// Returns what is said until nobody is left to say anything.
fn rest_of(lines: &Receiver<String>) -> String {
    let mut rest = String::new();
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => rest += &line,
            Err(RecvTimeoutError::Disconnected) => return rest,
            Err(RecvTimeoutError::Timeout) => panic!("it does not end: {rest}"),
        }
    }
}
