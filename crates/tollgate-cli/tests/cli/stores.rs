//! Every kind of Redis store, as the configuration names it.

use std::fs;

use tempfile::TempDir;
use tollgate_testkit::certificates::{Certificates, ClientCertificate};
use tollgate_testkit::redis_sentinel::{MASTER, Passwords};
use tollgate_testkit::{RedisCluster, RedisSentinel, RedisServer};

use crate::process::{Ran, run};

const RULES: &str = "rules: [{ name: per-ip, key: ip, limit: 1/day }]";

/// Checks a request with the store that `fields` says.
fn check(dir: &TempDir, fields: &str, ip: &str) -> Ran {
    let file = dir.path().join("tollgate.yaml");
    fs::write(&file, format!("store: {{ {fields}, timeout: 10s }}\n{RULES}")).unwrap();
    run(&["check", "--config", file.to_str().unwrap(), &format!("ip={ip}")])
}

/// Checks that a store counts, and that what it counted is still there.
fn counts(fields: &str, ip: &str) {
    let dir = TempDir::new().unwrap();
    let ran = check(&dir, fields, ip);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{fields}");
    let ran = check(&dir, fields, ip);
    assert_eq!((ran.status, ran.stderr.as_str()), (1, ""), "{fields}");
}

#[test]
fn a_socket_with_a_password_and_a_database() {
    let server = RedisServer::builder().unix_socket().password("open-sesame").start().unwrap();
    let socket = server.socket().unwrap();
    let url = format!("url: \"redis+unix://{}\"", socket.display());
    counts(&format!("kind: redis, {url}, password: open-sesame, database: 3"), "192.0.2.1");
    let keyspace = server.command(&["INFO", "keyspace"]).unwrap();
    assert!(keyspace.text().unwrap().contains("db3:keys=1"), "{keyspace:?}");

    let dir = TempDir::new().unwrap();
    let ran = check(&dir, &format!("kind: redis, {url}, password: guessed-it"), "192.0.2.1");
    assert_eq!((ran.status, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("check the user and the password"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("guessed-it"), "{}", ran.stderr);
}

#[test]
fn tls_with_a_certificate_of_the_client_and_a_password_in_a_file() {
    let certificates = Certificates::generate().unwrap();
    let server = RedisServer::builder()
        .tls(&certificates, ClientCertificate::Needed)
        .password("open-sesame")
        .start()
        .unwrap();
    let dir = TempDir::new().unwrap();
    let client = certificates.client();
    for (name, text) in [
        ("ca.pem", certificates.ca()),
        ("client.pem", client.certificate()),
        ("client.key", client.private_key()),
        ("password", "open-sesame\n"),
    ] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let path = |name: &str| dir.path().join(name).display().to_string();
    let port = server.tls_port().unwrap();
    let redis = format!(
        "kind: redis, url: \"rediss://localhost:{port}\", functions: true, connections: 2, \
         password_file: {}",
        path("password")
    );
    let identity = format!("cert: {}, key: {}", path("client.pem"), path("client.key"));
    counts(&format!("{redis}, tls: {{ ca: {}, {identity} }}", path("ca.pem")), "192.0.2.1");

    let ran = check(&dir, &format!("{redis}, tls: {{ ca: {} }}", path("ca.pem")), "192.0.2.1");
    assert_eq!(ran.status, 2);
    assert!(ran.stderr.contains("check the CA, the client's certificate"), "{}", ran.stderr);

    let ran = check(&dir, &format!("{redis}, tls: {{ ca: {} }}", path("absent.pem")), "192.0.2.1");
    let expected = format!(
        "error: the store cannot be used: the file {} of store.tls.ca cannot be read (No such file \
         or directory (os error 2)): check the path and its owner\n",
        path("absent.pem")
    );
    assert_eq!((ran.status, ran.stderr), (2, expected));
}

#[test]
fn a_cluster() {
    let cluster = RedisCluster::start(3).unwrap();
    let fields = format!("kind: redis_cluster, urls: {:?}", cluster.urls());
    for ip in ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"] {
        counts(&fields, ip);
    }
}

#[test]
fn a_primary_that_sentinels_know() {
    let passwords = Passwords { servers: Some("for-redis"), sentinels: Some("for-sentinel") };
    let redis = RedisSentinel::start_with(passwords).unwrap();
    let urls: Vec<_> =
        redis.urls().iter().map(|url| url.replace("://", "://:for-sentinel@")).collect();
    let fields =
        format!("kind: redis_sentinel, urls: {urls:?}, master_name: {MASTER}, password: for-redis");
    counts(&fields, "192.0.2.1");
}
