//! A gateway of the test's own, with its configuration from `examples/`.

pub(crate) mod limit;

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpStream;

/// Runs a program until stdin ends, which it does when the test does, however that ends.
const RUN: &str = r#""$@" & gateway=$!; cat >/dev/null; kill -KILL $gateway; wait"#;

/// A running gateway. It ends when it is dropped.
pub(crate) struct Gateway {
    address: SocketAddr,
    shell: Child,
    dir: TempDir,
}

/// How a program is started.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
    /// A variable that names the binary.
    pub(crate) variable: &'static str,
    /// What stands before the path of the configuration.
    pub(crate) arguments: &'static [&'static str],
    /// The name that its configuration has.
    pub(crate) file: &'static str,
}

impl Gateway {
    /// Starts the program with the configuration that `configure` makes for an address and a
    /// directory, and waits until it accepts connections.
    pub(crate) async fn start(
        program: &Program,
        configure: impl Fn(SocketAddr, &Path) -> String,
    ) -> Self {
        // Somebody else may take the port between the look and the start.
        for _ in 0..8 {
            if let Some(gateway) = Self::try_start(program, &configure).await {
                return gateway;
            }
        }
        panic!("{} found eight ports in use", program.name);
    }

    async fn try_start(
        program: &Program,
        configure: &impl Fn(SocketAddr, &Path) -> String,
    ) -> Option<Self> {
        let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let dir = tempfile::Builder::new().prefix("tollgate-gateway-").tempdir().unwrap();
        let file = dir.path().join(program.file);
        fs::write(&file, configure(address, dir.path())).unwrap();
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let shell = Command::new("sh")
            .args(["-c", RUN, "sh"])
            .arg(binary(program))
            .args(program.arguments)
            .arg(&file)
            .env("HOME", dir.path())
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let gateway = Self { address, shell, dir };
        for _ in 0..2_000 {
            let log = fs::read_to_string(gateway.dir.path().join("log")).unwrap();
            if log.to_lowercase().contains("address already in use") {
                return None;
            }
            if TcpStream::connect(address).await.is_ok() {
                return Some(gateway);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let log = fs::read_to_string(gateway.dir.path().join("log")).unwrap();
        panic!("{} does not listen: {log}", program.name);
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // The end of its stdin is the sign for the shell, which kills the gateway and ends.
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// Replaces what must stand there exactly once.
pub(crate) fn replaced(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from} in the recipe");
    text.replace(from, to)
}

fn binary(program: &Program) -> PathBuf {
    let Program { name, package, variable, .. } = program;
    if let Some(binary) = env::var_os(variable).filter(|binary| !binary.is_empty()) {
        return binary.into();
    }
    let path = env::var("PATH").unwrap_or_default();
    let dirs = path.split(':').chain(["/usr/sbin", "/usr/local/sbin"]);
    let found = dirs.map(|dir| Path::new(dir).join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| {
        panic!(
            "this test needs {name}: install it (Debian: apt-get install {package}), or set \
             {variable} to its binary"
        )
    })
}
