//! The private redis-server fixture, on real processes.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::env;
use std::io::{self, BufRead, BufReader, Read};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tollgate_testkit::RedisServer;
use tollgate_testkit::redis_server::Reply;

fn text(reply: &str) -> Reply {
    Reply::Text(reply.to_owned())
}

/// The directory that the server was told to work in.
fn directory(server: &RedisServer) -> PathBuf {
    let reply = server.command(&["CONFIG", "GET", "dir"]).unwrap();
    PathBuf::from(reply.items().unwrap()[1].text().unwrap())
}

#[test]
fn a_server_answers_on_its_own_port_and_persists_nothing() {
    let server = RedisServer::start().unwrap();
    assert_eq!(server.command(&["PING"]).unwrap(), text("PONG"));
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.address().port()));
    let info = server.command(&["INFO", "server"]).unwrap();
    let pid = format!("process_id:{}\r\n", server.pid().unwrap());
    assert!(info.text().unwrap().contains(&pid));
    let save = server.command(&["CONFIG", "GET", "save"]).unwrap();
    assert_eq!(save.items().unwrap()[1], text(""));
    let appendonly = server.command(&["CONFIG", "GET", "appendonly"]).unwrap();
    assert_eq!(appendonly.items().unwrap()[1], text("no"));
}

#[test]
fn two_servers_share_nothing() {
    let (one, other) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
    assert_ne!(one.port(), other.port());
    assert_eq!(one.command(&["SET", "key", "1"]).unwrap(), text("OK"));
    assert_eq!(other.command(&["GET", "key"]).unwrap(), Reply::Nil);
}

#[test]
fn a_dropped_server_leaves_no_process_and_no_directory() {
    let server = RedisServer::start().unwrap();
    let (dir, address) = (directory(&server), server.address());
    assert!(dir.is_dir());
    drop(server);
    assert!(!dir.exists());
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
}

/// Not a test of its own: the process that the next test kills.
#[test]
fn owner_that_is_killed() {
    if env::var_os("TOLLGATE_TESTKIT_OWNER").is_none() {
        return;
    }
    let server = RedisServer::start().unwrap();
    println!("server {} {}", server.port(), directory(&server).display());
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_server_whose_owner_is_killed_leaves_no_process_and_no_directory() {
    let mut owner = Command::new(env::current_exe().unwrap())
        .args(["--exact", "owner_that_is_killed", "--nocapture"])
        .env("TOLLGATE_TESTKIT_OWNER", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let line = BufReader::new(owner.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap)
        .find_map(|line| Some(line.split_once("server ")?.1.to_owned()))
        .unwrap();
    let (port, dir) = line.split_once(' ').unwrap();
    let dir = Path::new(dir);
    assert!(dir.is_dir());
    let mut connection = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(10))).unwrap();

    owner.kill().unwrap();
    assert!(!owner.wait().unwrap().success());
    let ended = connection.read(&mut [0; 16]);
    assert!(matches!(ended, Ok(0)) || ended.unwrap_err().kind() == io::ErrorKind::ConnectionReset);
    let deadline = Instant::now() + Duration::from_secs(10);
    while dir.exists() {
        assert!(Instant::now() < deadline, "{} is left", dir.display());
        thread::yield_now();
    }
}

#[test]
fn a_killed_server_refuses_and_an_empty_one_restarts_on_the_same_port() {
    let mut server = RedisServer::builder().arg("--maxmemory").arg("8mb").start().unwrap();
    let (port, pid) = (server.port(), server.pid());
    assert_eq!(server.command(&["SET", "key", "1"]).unwrap(), text("OK"));
    server.kill().unwrap();
    server.kill().unwrap();
    assert_eq!(server.pid(), None);
    assert_eq!(server.command(&["PING"]).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(
        server.pause().unwrap_err().to_string(),
        format!("the redis-server of port {port} was killed: restart it first")
    );

    server.restart().unwrap();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(server.command(&["GET", "key"]).unwrap(), Reply::Nil);
    let maxmemory = server.command(&["CONFIG", "GET", "maxmemory"]).unwrap();
    assert_eq!(maxmemory.items().unwrap()[1], text("8388608"));
}

#[test]
fn a_paused_server_is_stopped_until_it_is_resumed() {
    let server = RedisServer::start().unwrap();
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid().unwrap()));
        let stat = stat.unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    };
    server.pause().unwrap();
    assert_eq!(state(), 'T');
    server.resume().unwrap();
    assert_eq!(server.command(&["PING"]).unwrap(), text("PONG"));
    assert_ne!(state(), 'T');
}

#[test]
fn an_error_reply_is_an_error_with_the_text_of_redis() {
    let server = RedisServer::start().unwrap();
    let error = server.command(&["NOSUCHCOMMAND"]).unwrap_err();
    assert!(error.to_string().contains("unknown command"), "{error}");
}

#[test]
fn a_server_with_a_password_starts() {
    let server = RedisServer::builder().arg("--requirepass").arg("secret").start().unwrap();
    let error = server.command(&["PING"]).unwrap_err();
    assert!(error.to_string().contains("NOAUTH"), "{error}");
}

#[test]
fn a_missing_binary_says_what_to_install() {
    let error = RedisServer::builder().binary("no-such-redis-server").start().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert_eq!(
        error.to_string(),
        "cannot run no-such-redis-server: No such file or directory (os error 2). Install Redis \
         6.2 or later (Debian and Ubuntu: apt-get install redis-server; macOS: brew install redis) \
         or set TOLLGATE_REDIS_SERVER to the path of a redis-server or valkey-server"
    );
}

#[test]
fn a_server_that_ends_at_once_is_reported_with_its_log() {
    let error =
        RedisServer::builder().arg("--maxmemory-policy").arg("no-such-policy").start().unwrap_err();
    assert!(
        error.to_string().starts_with("redis-server ended before it answered on port "),
        "{error}"
    );
    assert!(error.to_string().contains("no-such-policy"), "{error}");
}
