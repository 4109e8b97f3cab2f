//! An nginx of the test's own, with the configuration of `examples/nginx`.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

const DOC: &str = include_str!("../../../../docs/forward-auth.md");
const RECIPE: &str = include_str!("../../../../examples/nginx/tollgate.conf");

/// Runs nginx until stdin ends, which it does when the test does, however that ends.
const RUN: &str =
    r#""$1" -p "$2" -c "$2/nginx.conf" & nginx=$!; cat >/dev/null; kill -KILL $nginx; wait"#;

/// A running nginx. It ends when it is dropped.
pub(crate) struct Gateway {
    address: SocketAddr,
    shell: Child,
    dir: TempDir,
}

impl Gateway {
    /// Starts the recipe with timeouts that a busy machine does not reach.
    pub(crate) async fn start(tollgate: SocketAddr, service: SocketAddr) -> Self {
        Self::run(&patient(RECIPE), tollgate, service).await
    }

    /// Starts the recipe as it stands.
    pub(crate) async fn start_as_it_stands(tollgate: SocketAddr, service: SocketAddr) -> Self {
        Self::run(RECIPE, tollgate, service).await
    }

    /// Starts the recipe with the change that the page names.
    pub(crate) async fn start_failing_closed(tollgate: SocketAddr, service: SocketAddr) -> Self {
        assert!(DOC.replace('\n', " ").contains("`return 204;` to `return 403;`"));
        let recipe = replaced(&patient(RECIPE), "return 204;", "return 403;");
        Self::run(&recipe, tollgate, service).await
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    async fn run(recipe: &str, tollgate: SocketAddr, service: SocketAddr) -> Self {
        let recipe = replaced(recipe, "127.0.0.1:8080", &tollgate.to_string());
        let recipe = replaced(&recipe, "127.0.0.1:3000", &service.to_string());
        // Somebody else may take the port between the look and the start.
        for _ in 0..8 {
            if let Some(gateway) = Self::try_run(&recipe).await {
                return gateway;
            }
        }
        panic!("nginx found eight ports in use");
    }

    /// Starts nginx and waits until it listens, or gives `None` if its port was taken.
    async fn try_run(recipe: &str) -> Option<Self> {
        let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let dir = tempfile::Builder::new().prefix("tollgate-nginx-").tempdir().unwrap();
        let recipe = replaced(recipe, "listen 80;", &format!("listen {address};"));
        fs::write(dir.path().join("nginx.conf"), configuration(dir.path(), &recipe)).unwrap();
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let shell = Command::new("sh")
            .args(["-c", RUN, "sh", &binary()])
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let gateway = Self { address, shell, dir };
        let dir = gateway.dir.path();
        for _ in 0..2_000 {
            let log = fs::read_to_string(dir.join("log")).unwrap();
            if log.contains("Address already in use") {
                return None;
            }
            assert!(!log.contains("[emerg]") && !log.contains("not found"), "{log}");
            // It is written once nginx listens.
            if fs::read_to_string(dir.join("pid")).is_ok_and(|pid| pid.ends_with('\n')) {
                return Some(gateway);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("nginx does not listen: {}", fs::read_to_string(dir.join("log")).unwrap());
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // The end of its stdin is the sign for the shell, which kills nginx and ends.
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

fn patient(recipe: &str) -> String {
    let recipe = replaced(recipe, "proxy_connect_timeout 100ms;", "proxy_connect_timeout 10s;");
    replaced(&recipe, "proxy_read_timeout    250ms;", "proxy_read_timeout 10s;")
}

/// Replaces what must stand there exactly once.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from} in the recipe");
    text.replace(from, to)
}

/// Puts what a packaged nginx has around the recipe, with every file inside `dir`.
fn configuration(dir: &Path, recipe: &str) -> String {
    let dir = dir.display();
    format!(
        "daemon off; master_process off; pid {dir}/pid; error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi; uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
{recipe}}}
"
    )
}

fn binary() -> String {
    if let Some(binary) = env::var("TOLLGATE_NGINX").ok().filter(|binary| !binary.is_empty()) {
        return binary;
    }
    let path = env::var("PATH").unwrap_or_default();
    let dirs = path.split(':').chain(["/usr/sbin", "/usr/local/sbin"]);
    let found = dirs.map(|dir| format!("{dir}/nginx")).find(|file| Path::new(file).is_file());
    found.unwrap_or_else(|| {
        panic!(
            "this test needs nginx 1.13 or later with auth_request: install the package `nginx` \
             (Debian: apt-get install nginx-light), or set TOLLGATE_NGINX to its binary"
        )
    })
}
