//! Tokens of the admin listener.

use std::fs;

use tempfile::TempDir;
use tollgate_server::{Reload, Server};

use crate::log::Log;
use crate::support::{Reply, Service, parse, request};

const READER: &str = "reader-0123456789abcdef";
const WRITER: &str = "writer-0123456789abcdef";

async fn guarded() -> (TempDir, Service, Reload) {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().display();
    fs::write(folder.path().join("writer"), format!("{WRITER}\n")).unwrap();
    fs::write(folder.path().join("rules.yaml"), "rules: [{ name: a, limit: 1/day }]").unwrap();
    let config = format!(
        "admin_tokens:\n  - {{ name: prometheus, scope: read, token: {READER} }}\n  \
         - {{ name: deploy, scope: write, token_file: {dir}/writer }}\n\
         rules_from: {{ kind: file, path: {dir}/rules.yaml }}\n"
    );
    let server = Server::bind(&parse(&config)).await.unwrap();
    let reload = server.reload();
    (folder, Service::run(server), reload)
}

async fn ask(service: &Service, method: &str, path: &str, token: Option<&str>) -> Reply {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let mut headers = vec![("if-match", &b"*"[..]), ("content-type", &b"application/json"[..])];
    headers.extend(bearer.as_ref().map(|bearer| ("authorization", bearer.as_bytes())));
    let body = match method {
        "PUT" => &b"rules: [{ name: a, limit: 2/day }]"[..],
        "POST" => b"{}",
        _ => b"",
    };
    request(service.admin, method, path, &headers, body).await
}

#[tokio::test]
async fn each_scope_may_do_what_it_says() {
    let (_folder, service, _reload) = guarded().await;
    for (method, path, without, read, write) in [
        ("GET", "/healthz", 200, 200, 200),
        ("GET", "/readyz", 200, 200, 200),
        ("GET", "/metrics", 401, 200, 200),
        ("GET", "/v1/rules", 401, 200, 200),
        ("GET", "/v1/rules/history", 401, 200, 200),
        ("GET", "/nowhere", 401, 404, 404),
        ("PUT", "/v1/rules", 401, 403, 200),
        ("POST", "/v1/rules/rollback", 401, 403, 200),
        ("DELETE", "/v1/rules", 401, 403, 405),
    ] {
        let statuses = [
            ask(&service, method, path, None).await.status,
            ask(&service, method, path, Some(READER)).await.status,
            ask(&service, method, path, Some(WRITER)).await.status,
        ];
        assert_eq!(statuses, [without, read, write], "{method} {path}");
    }
    let shown = ask(&service, "GET", "/v1/rules", Some(READER)).await;
    assert_eq!(shown.json()["by"], "deploy");
    assert!(!shown.body.contains(WRITER), "{}", shown.body);
}

#[tokio::test]
async fn what_is_not_a_token_is_told_how_to_show_one() {
    let (_folder, service, _reload) = guarded().await;
    for value in ["", "Bearer", "Bearer ", "Basic eDp5", READER] {
        let headers = [("authorization", value.as_bytes())];
        let reply = request(service.admin, "GET", "/metrics", &headers, b"").await;
        assert_eq!(reply.status, 401, "{value}");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer realm=\"tollgate admin\""));
        assert_eq!(
            reply.json()["detail"],
            "show a token: `Authorization: Bearer TOKEN`, one of `admin_tokens`"
        );
    }
    // The check API asks for none.
    assert_eq!(service.post("/v1/check", r#"{"attributes":{"ip":"1.2.3.4"}}"#).await.status, 200);
}

#[tokio::test]
async fn an_unknown_token_is_told_apart_from_none_counted_and_logged_without_it() {
    let log = Log::default();
    // All tasks of this runtime run on this thread.
    let _guard = log.listen();
    let (_folder, service, _reload) = guarded().await;
    let (wrong, refused) = (format!("{READER}x"), "tollgate_admin_refusals_total");
    for _ in 0..3 {
        let reply = ask(&service, "PUT", "/v1/rules", Some(&wrong)).await;
        assert_eq!(reply.status, 401);
        assert_eq!(reply.header("www-authenticate"), Some("Bearer error=\"invalid_token\""));
        let detail = reply.json()["detail"].to_string();
        assert!(detail.starts_with("\"this token is unknown"), "{detail}");
    }
    assert_eq!(ask(&service, "PUT", "/v1/rules", None).await.status, 401);
    assert_eq!(ask(&service, "PUT", "/v1/rules", Some(READER)).await.status, 403);
    let page = ask(&service, "GET", "/metrics", Some(READER)).await.body;
    for (reason, count) in [("unknown_token", 3), ("no_token", 1), ("scope", 1)] {
        let line = format!("{refused}{{reason=\"{reason}\"}} {count}\n");
        assert!(page.contains(&line), "{line}");
    }
    let text = log.text();
    let lines: Vec<_> = text.lines().filter(|line| line.contains("admin_tokens")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(lines[0].contains(" WARN ") && lines[0].contains("peer=127.0.0.1"), "{text}");
    assert!(!text.contains(&wrong), "{text}");
}

#[tokio::test]
async fn a_rotated_token_replaces_the_one_before() {
    let (folder, service, reload) = guarded().await;
    let file = folder.path().join("writer");
    let status = async |token| ask(&service, "GET", "/metrics", Some(token)).await.status;
    fs::write(&file, "short").unwrap();
    reload.now();
    assert_eq!(status(WRITER).await, 200, "an unusable one changes nothing");
    let rotated = "rotated-0123456789abcdef";
    fs::write(&file, rotated).unwrap();
    reload.now();
    let mut tries = 0;
    while status(rotated).await != 200 {
        tries += 1;
        assert!(tries < 1_000);
    }
    assert_eq!(status(WRITER).await, 401);
}

#[tokio::test]
async fn a_token_file_that_is_not_there_is_told_at_the_start() {
    let config = "admin_tokens: [{ name: deploy, scope: write, token_file: /nonexistent/token }]\n\
                  rules: [{ name: a, limit: 1/day }]";
    let error = Server::bind(&parse(config)).await.unwrap_err().to_string();
    assert!(
        error.starts_with(
            "the admin token deploy cannot be used: /nonexistent/token cannot be read"
        ),
        "{error}"
    );
}

#[tokio::test]
async fn without_tokens_rules_change_only_by_requests_of_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.yaml");
    fs::write(&rules, "rules: [{ name: a, limit: 1/day }]").unwrap();
    let config = format!("rules_from: {{ kind: file, path: {} }}\n", rules.display());
    let private = Service::run(Server::bind(&parse(&config)).await.unwrap());
    assert_eq!(ask(&private, "PUT", "/v1/rules", None).await.status, 200);
    // A web page in a browser on this machine, by a name that was made to lead here.
    let page = b"PUT /v1/rules HTTP/1.1\r\nhost: attacker.example\r\nconnection: close\r\n\
                 if-match: *\r\ncontent-length: 0\r\n\r\n";
    let mut connection = tokio::net::TcpStream::connect(private.admin).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut connection, page).await.unwrap();
    assert_eq!(crate::support::reply(&mut connection).await.status, 403);
    for (path, host, expected) in [
        ("/v1/rules", "attacker.example", 403),
        ("/v1/rules", "127.0.0.1:9090", 200),
        ("/v1/status", "attacker.example", 403),
        ("/metrics", "attacker.example", 403),
        ("/metrics", "LOCALHOST:9090", 200),
        ("/healthz", "probe.example", 200),
    ] {
        assert_eq!(for_host(private.admin, path, host).await.status, expected, "{path} {host}");
    }

    let open =
        format!("listen: {{ http: 127.0.0.1:0, grpc: 127.0.0.1:0, admin: 0.0.0.0:0 }}\n{config}");
    let open = tollgate_config::Config::parse(&open, "t.yaml").unwrap();
    let open = Service::run(Server::bind(&open).await.unwrap());
    let address = (std::net::Ipv4Addr::LOCALHOST, open.admin.port()).into();
    let headers = [("if-match", &b"*"[..])];
    let refused = request(address, "PUT", "/v1/rules", &headers, b"").await;
    assert_eq!(refused.status, 403);
    assert!(refused.json()["detail"].as_str().unwrap().ends_with("configure `admin_tokens`"));
    assert_eq!(request(address, "GET", "/v1/rules", &[], b"").await.status, 200);
    assert_eq!(for_host(address, "/metrics", "tollgate.internal").await.status, 200);
}

async fn for_host(address: std::net::SocketAddr, path: &str, host: &str) -> Reply {
    let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut connection, head.as_bytes()).await.unwrap();
    crate::support::reply(&mut connection).await
}
