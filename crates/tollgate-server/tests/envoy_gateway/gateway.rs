//! An Envoy of the test's own, with the configuration of `examples/envoy`.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::support::{Reply, request};

const EXAMPLE: &str = include_str!("../../../../examples/envoy/envoy.yaml");

/// Runs Envoy until stdin ends, which it does when the test does, however that ends.
const RUN: &str = r#"
"$1" -c "$2/envoy.yaml" --admin-address-path "$2/admin" --concurrency 1 --disable-hot-restart \
    --log-level warning --file-flush-interval-msec 50 & envoy=$!
echo $envoy >"$2/pid"
cat >/dev/null; kill -KILL $envoy; wait
"#;

/// A running Envoy. It ends when it is dropped.
pub(crate) struct Gateway {
    address: SocketAddr,
    admin: SocketAddr,
    shell: Child,
    dir: TempDir,
}

impl Gateway {
    /// Starts the example with a timeout that a busy machine does not reach.
    pub(crate) async fn start(tollgate: SocketAddr, service: SocketAddr) -> Self {
        Self::run(&patient(), tollgate, service).await
    }

    /// Starts the example with the change that it names.
    pub(crate) async fn start_failing_closed(tollgate: SocketAddr, service: SocketAddr) -> Self {
        let example = replaced(&patient(), "failure_mode_deny: false", "failure_mode_deny: true");
        Self::run(&example, tollgate, service).await
    }

    /// Starts the example with Envoy's own `Retry-After` beside Tollgate's.
    pub(crate) async fn start_with_retry_after(tollgate: SocketAddr, service: SocketAddr) -> Self {
        let line = "enable_x_ratelimit_headers: DRAFT_VERSION_03";
        let both = format!("{line}\n              enable_retry_after_header: true");
        Self::run(&replaced(&patient(), line, &both), tollgate, service).await
    }

    /// Starts the example with a hundred times its timeout.
    pub(crate) async fn start_with_2_s(tollgate: SocketAddr, service: SocketAddr) -> Self {
        Self::run(&replaced(EXAMPLE, "timeout: 0.02s", "timeout: 2s"), tollgate, service).await
    }

    /// Starts the example as it stands.
    pub(crate) async fn start_as_it_stands(tollgate: SocketAddr, service: SocketAddr) -> Self {
        Self::run(EXAMPLE, tollgate, service).await
    }

    async fn run(example: &str, tollgate: SocketAddr, service: SocketAddr) -> Self {
        let port = |port: u16| format!("port_value: {port} ");
        let example = replaced(example, &port(8081), &port(tollgate.port()));
        let example = replaced(&example, &port(3000), &port(service.port()));
        let example = replaced(&example, &port(10000), &port(0));
        let example = replaced(&example, &port(9901), &port(0));
        let dir = tempfile::Builder::new().prefix("tollgate-envoy-").tempdir().unwrap();
        let access = dir.path().join("access").display().to_string();
        let example = replaced(&example, "/dev/stdout", &access);
        fs::write(dir.path().join("envoy.yaml"), example).unwrap();
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let shell = Command::new("sh")
            .args(["-c", RUN, "sh", &binary()])
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut gateway = Self { address: nowhere, admin: nowhere, shell, dir };
        gateway.admin = gateway
            .wait("the admin address", async |gateway| {
                let written = fs::read_to_string(gateway.dir.path().join("admin")).ok()?;
                written.parse().ok()
            })
            .await;
        gateway
            .wait("a ready Envoy", async |gateway| {
                let ready = gateway.ask_admin("/ready").await;
                (ready.status == 200).then_some(())
            })
            .await;
        // The health check of the example has seen Tollgate, or that it is not there.
        gateway
            .wait("a checked cluster", async |gateway| {
                let attempts = gateway.stat("cluster.tollgate.health_check.attempt").await;
                let done = gateway.stat("cluster.tollgate.health_check.success").await
                    + gateway.stat("cluster.tollgate.health_check.failure").await;
                (attempts > 0 && done > 0).then_some(())
            })
            .await;
        // The page comes in chunks, which stand between its lines.
        let listeners = gateway.ask_admin("/listeners").await.body;
        let address = listeners.lines().find_map(|line| line.strip_prefix("edge::")).unwrap();
        gateway.address = address.parse().unwrap();
        gateway
    }

    /// Waits for so many lines in the access log, which Envoy writes now and then.
    pub(crate) async fn access_log(&self, count: usize) -> Vec<String> {
        self.wait("a whole access log", async |gateway| {
            let log = fs::read_to_string(gateway.dir.path().join("access")).unwrap();
            let lines: Vec<_> = log.lines().map(str::to_owned).collect();
            (lines.len() >= count).then_some(lines)
        })
        .await
    }

    async fn wait<T>(&self, what: &str, look: impl AsyncFn(&Self) -> Option<T>) -> T {
        for _ in 0..2_000 {
            if let Some(found) = look(self).await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("no {what}: {}", fs::read_to_string(self.dir.path().join("log")).unwrap());
    }

    async fn ask_admin(&self, path: &str) -> Reply {
        request(self.admin, "GET", path, &[], b"").await
    }

    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        self.get_with_bytes(path, &headers).await
    }

    pub(crate) async fn get_with_bytes(&self, path: &str, headers: &[(&str, &[u8])]) -> Reply {
        request(self.address, "GET", path, headers, b"").await
    }

    /// Returns for how long all threads of Envoy and of this process could have run and had no CPU,
    /// on a kernel that tells.
    pub(crate) fn waited_for_a_cpu(&self) -> Duration {
        let envoy = fs::read_to_string(self.dir.path().join("pid")).unwrap();
        waited_for_a_cpu(envoy.trim()) + waited_for_a_cpu("self")
    }

    /// Returns the value of one of Envoy's counters.
    pub(crate) async fn stat(&self, name: &str) -> u64 {
        let page = self.ask_admin(&format!("/stats?filter=^{name}$")).await.body;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.map_or(0, |value| value.trim().parse().unwrap())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // The end of its stdin is the sign for the shell, which kills Envoy and ends.
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// Adds up the second number of `schedstat` over the threads of a process.
fn waited_for_a_cpu(pid: &str) -> Duration {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Duration::ZERO };
    let nanos = |thread: fs::DirEntry| -> Option<u64> {
        // A thread may have ended since it was listed.
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').nth(1)?.parse().ok()
    };
    let nanos = threads.filter_map(|thread| nanos(thread.ok()?)).sum();
    Duration::from_nanos(nanos)
}

fn patient() -> String {
    replaced(EXAMPLE, "timeout: 0.02s", "timeout: 10s")
}

/// Replaces what must stand there exactly once.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from} in the example");
    text.replace(from, to)
}

fn binary() -> String {
    if let Some(binary) = env::var("TOLLGATE_ENVOY").ok().filter(|binary| !binary.is_empty()) {
        return binary;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let installed = root.join("target/tools/envoy/envoy/_bin/envoy");
    if installed.is_file() {
        return installed.display().to_string();
    }
    let path = env::var("PATH").unwrap_or_default();
    let found = path.split(':').map(|dir| format!("{dir}/envoy"));
    found.into_iter().find(|file| Path::new(file).is_file()).unwrap_or_else(|| {
        panic!(
            "this test needs Envoy: run `cargo xtask setup`, or set TOLLGATE_ENVOY to its binary"
        )
    })
}
