//! How the binary is run.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::mem;
use std::net::{SocketAddr, TcpStream};
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

/// Runs the binary with a stdout that cannot be written to, and returns its status and stderr.
pub(crate) fn run_into_a_full_disk(args: &[&str]) -> (i32, String) {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran: Ran = command(args).stdout(full).stderr(Stdio::piped()).output().unwrap().into();
    (ran.status, ran.stderr)
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

/// Sends a request and returns the whole reply.
pub(crate) fn post(address: SocketAddr, path: &str, body: &str) -> String {
    let mut connection = begun(address, path, body.len());
    connection.write_all(body.as_bytes()).unwrap();
    let mut reply = String::new();
    connection.read_to_string(&mut reply).unwrap();
    reply
}

/// Opens a connection and sends the head of a request.
pub(crate) fn begun(address: SocketAddr, path: &str, body_len: usize) -> TcpStream {
    let mut connection = TcpStream::connect(address).unwrap();
    write!(
        connection,
        "POST {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {body_len}\r\n\r\n"
    )
    .unwrap();
    connection
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
    /// An address, or `off`.
    pub(crate) grpc: String,
    pub(crate) admin: SocketAddr,
}

impl Service {
    /// Starts `tollgate serve` on free ports and waits until it listens.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_with(&[], args)
    }

    /// As [`start`](Self::start), with these variables in its environment.
    pub(crate) fn start_with(variables: &[(&str, &str)], args: &[&str]) -> Self {
        let any = "127.0.0.1:0";
        let grpc = if args.contains(&"--grpc") { &[][..] } else { &["--grpc", any] };
        let ports = ["serve", "--http", any, "--admin", any];
        let mut child = command(&[&ports[..], grpc, args].concat())
            .envs(variables.iter().copied())
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
            rest.split([' ', '"']).next().unwrap().to_owned()
        };
        let (http, admin) = (address("http").parse().unwrap(), address("admin").parse().unwrap());
        Self { http, grpc: address("grpc"), admin, child, lines, said }
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
