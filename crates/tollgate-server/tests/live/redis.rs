//! Rules in a key of Redis.

use serde_json::Value;
use tollgate_config::Config;
use tollgate_server::Server;
use tollgate_testkit::RedisServer;
use tollgate_testkit::certificates::{Certificates, ClientCertificate};

use crate::folder::{Folder, configured};
use crate::support::{Service, request};
use crate::{check, error_of_kind, id_in_force, limit_in_force, put, rules, until};

/// So long that only what is published is noticed within a test.
fn config(server: &RedisServer) -> String {
    format!(
        "rules_from: {{ kind: redis, url: \"{}\", poll_interval: 60min }}\nstate_dir: state\n",
        server.url()
    )
}

async fn two_that_follow(server: &RedisServer) -> ((Folder, Service), (Folder, Service)) {
    let start = async || {
        let folder = Folder::new(&config(server));
        let service = folder.serve().await;
        // It is subscribed when it hears what is published.
        until(async || subscribers(server) > 0).await;
        (folder, service)
    };
    let one = start().await;
    let two = start().await;
    until(async || subscribers(server) == 2).await;
    (one, two)
}

fn subscribers(server: &RedisServer) -> i64 {
    let reply = server.command(&["PUBSUB", "NUMSUB", "tollgate:rules:changed"]).unwrap();
    let text = format!("{reply:?}");
    let digits: String = text.chars().rev().filter(char::is_ascii_digit).take(1).collect();
    digits.parse().unwrap_or(0)
}

#[tokio::test]
async fn two_services_follow_one_key_at_once() {
    let server = RedisServer::start().unwrap();
    server.command(&["SET", "tollgate:rules", &rules(10)]).unwrap();
    let ((_one_folder, one), (_two_folder, two)) = two_that_follow(&server).await;
    assert_eq!(check(&one, "1.2.3.4").await.0, 10);
    assert_eq!(check(&two, "1.2.3.4").await.0, 10);
    let id = id_in_force(&one).await;
    assert_eq!(id_in_force(&two).await, id);

    let pushed = put(&one, &format!("\"{id}\""), &rules(20)).await;
    assert_eq!(pushed.status, 200, "{pushed:?}");
    let new = pushed.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(pushed.header("etag"), Some(format!("\"{new}\"").as_str()));
    limit_in_force(&two, 20).await;
    assert_eq!(id_in_force(&two).await, new);
    assert_eq!(two.admin("/v1/rules").await.json()["origin"], "source");
    let info = format!("tollgate_rules_info{{id=\"{new}\",source=\"redis\",envoy_limits=\"\"}}");
    assert_eq!(two.metric(&info).await, Some(1.0));

    // Whoever writes the key by hand publishes, or waits for the interval.
    server.command(&["SET", "tollgate:rules", &rules(30)]).unwrap();
    server.command(&["PUBLISH", "tollgate:rules:changed", "x"]).unwrap();
    limit_in_force(&one, 30).await;
    limit_in_force(&two, 30).await;
}

#[tokio::test]
async fn connections_that_redis_has_closed_are_made_anew() {
    let server = RedisServer::start().unwrap();
    server.command(&["SET", "tollgate:rules", &rules(10)]).unwrap();
    let ((_one_folder, one), (_two_folder, two)) = two_that_follow(&server).await;
    limit_in_force(&two, 10).await;
    // As with `timeout` in its configuration, which spares those who subscribe.
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    let id = id_in_force(&one).await;
    let pushed = put(&one, &format!("\"{id}\""), &rules(20)).await;
    assert_eq!(pushed.status, 200, "{pushed:?}");
    limit_in_force(&two, 20).await;
}

#[tokio::test]
async fn of_two_who_write_on_top_of_one_version_one_is_told_of_the_conflict() {
    let server = RedisServer::start().unwrap();
    server.command(&["SET", "tollgate:rules", &rules(10)]).unwrap();
    let ((_one_folder, one), (_two_folder, two)) = two_that_follow(&server).await;
    let id = format!("\"{}\"", id_in_force(&one).await);
    let (first, second) = (rules(20), rules(30));
    let (by_one, by_two) = tokio::join!(put(&one, &id, &first), put(&two, &id, &second));
    let mut statuses = [by_one.status, by_two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412], "{by_one:?} {by_two:?}");
    let winner = if by_one.status == 200 { 20 } else { 30 };
    limit_in_force(&one, winner).await;
    limit_in_force(&two, winner).await;

    let late = put(&one, &id, &rules(40)).await;
    assert_eq!(late.status, 412);
    let detail = late.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.starts_with("the rules have changed since: "), "{detail}");
}

#[tokio::test]
async fn a_broken_push_is_refused_before_it_is_written() {
    let server = RedisServer::start().unwrap();
    server.command(&["SET", "tollgate:rules", &rules(10)]).unwrap();
    let folder = Folder::new(&config(&server));
    let service = folder.serve().await;
    let refused = put(&service, "*", "rules: [{ name: a, limit: 20 }]").await;
    assert_eq!(refused.status, 400);
    assert_eq!(
        refused.json()["detail"],
        "tollgate:rules:1:27: rate \"20\" has no '/': write it as units/period, for example \"20/min\""
    );
    assert_eq!(check(&service, "1.2.3.4").await.0, 10);
    let shown = service.admin("/v1/rules").await.json();
    assert_eq!(shown["error"], Value::Null, "nobody else has seen it");

    // What is written past the service is refused by every node, and the rules stay.
    until(async || subscribers(&server) > 0).await;
    server.command(&["SET", "tollgate:rules", "rules: [{ name: a, limit: 20 }]"]).unwrap();
    server.command(&["PUBLISH", "tollgate:rules:changed", "x"]).unwrap();
    error_of_kind(&service, "invalid").await;
    assert_eq!(check(&service, "1.2.3.4").await.0, 10);
    // A good version can be pushed on top of it.
    let id = id_in_force(&service).await;
    assert_eq!(put(&service, &id, &rules(20)).await.status, 200);
    assert_eq!(check(&service, "1.2.3.4").await.0, 20);
}

#[tokio::test]
async fn the_first_rules_can_be_pushed() {
    let server = RedisServer::start().unwrap();
    let folder = Folder::new(&config(&server));
    let service = folder.serve().await;
    assert_eq!(service.admin("/readyz").await.status, 503);
    assert_eq!(put(&service, "0123456789abcdef", &rules(10)).await.status, 412);
    let push = async |text: &str| {
        let headers = [("if-none-match", &b"*"[..])];
        request(service.admin, "PUT", "/v1/rules", &headers, text.as_bytes()).await
    };
    assert_eq!(push(&rules(10)).await.status, 200);
    assert_eq!(service.admin("/readyz").await.status, 200);
    assert_eq!(push(&rules(20)).await.status, 412, "there are some now");
}

#[tokio::test]
async fn a_redis_that_is_away_leaves_the_rules_and_a_start_has_the_last_good() {
    let mut server = RedisServer::start().unwrap();
    let config = config(&server).replace("60min", "100ms");
    server.command(&["SET", "tollgate:rules", &rules(10)]).unwrap();
    let folder = Folder::new(&config);
    let service = folder.serve().await;
    server.kill().unwrap();
    error_of_kind(&service, "unavailable").await;
    assert_eq!(check(&service, "1.2.3.4").await, (10, 9));
    let failed = put(&service, "*", &rules(20)).await;
    assert_eq!(failed.status, 503, "{failed:?}");
    service.stopped().await;

    let service = folder.serve().await;
    assert_eq!(check(&service, "1.2.3.4").await, (10, 9));
    assert_eq!(service.admin("/v1/rules").await.json()["origin"], "kept");
    // It comes back without data: the rules stay, and what was lost is said.
    server.restart().unwrap();
    until(async || {
        let shown = service.admin("/v1/rules").await.json();
        shown["error"]["message"].as_str().is_some_and(|text| text.contains("does not exist"))
    })
    .await;
    assert_eq!(check(&service, "1.2.3.4").await.0, 10);
    server.command(&["SET", "tollgate:rules", &rules(20)]).unwrap();
    limit_in_force(&service, 20).await;
}

#[tokio::test]
async fn a_key_of_another_type_or_size_is_no_rules() {
    let server = RedisServer::start().unwrap();
    server.command(&["RPUSH", "tollgate:rules", "x"]).unwrap();
    let folder = Folder::new(&config(&server).replace("60min", "100ms"));
    let service = folder.serve().await;
    let message = error_of_kind(&service, "unavailable").await;
    assert!(message.contains("WRONGTYPE"), "{message}");
    server.command(&["DEL", "tollgate:rules"]).unwrap();
    server.command(&["SETRANGE", "tollgate:rules", "100000000", "x"]).unwrap();
    let message = error_of_kind(&service, "invalid").await;
    assert!(message.contains("is larger than 1048576 bytes"), "{message}");
}

/// A server that asks for a certificate and a password, and has an account for the rules alone. The
/// files that it takes are in the folder.
fn guarded(folder: &Folder) -> RedisServer {
    let certificates = Certificates::generate().unwrap();
    let tls = ClientCertificate::Needed;
    let server = RedisServer::builder().password("secret").tls(&certificates, tls).start().unwrap();
    let account = ["ACL", "SETUSER", "rules", "on", ">of-rules", "~tollgate:rules", "&*", "+@all"];
    server.command(&account).unwrap();
    server.command(&["SET", "tollgate:rules", &rules(10)]).unwrap();
    folder.write("ca.pem", certificates.ca());
    folder.write("client.pem", certificates.client().certificate());
    folder.write("client.key", certificates.client().private_key());
    folder.write("store-password", "secret\n");
    folder.write("rules-password", "of-rules\n");
    server
}

#[tokio::test]
async fn a_key_is_read_with_a_password_and_certificates_in_files_beside_the_configuration() {
    let folder = Folder::new("");
    let server = guarded(&folder);
    let url = format!("rediss://localhost:{}", server.tls_port().unwrap());
    let tls = "tls: { ca: ca.pem, cert: client.pem, key: client.key }";
    let own = format!("rules_from: {{ kind: redis, url: \"{url}\", {tls}, poll_interval: 100ms");
    let store =
        format!("store: {{ kind: redis, url: \"{url}\", password_file: store-password, {tls} }}");
    for config in [
        format!("{own}, password_file: store-password }}\n"),
        format!("{own}, username: rules, password_file: rules-password }}\n"),
        format!("{own}, password: secret }}\n"),
        // What the store is shown, and another account in its place.
        format!("{store}\nrules_from: {{ kind: redis }}\n"),
        format!("{store}\nrules_from: {{ kind: redis, username: rules, password: of-rules }}\n"),
    ] {
        folder.write("tollgate.yaml", &configured(&config));
        let service = folder.serve().await;
        assert_eq!(check(&service, "1.2.3.4").await.0, 10, "{config}");
        let shown = service.admin("/v1/rules").await;
        assert_eq!(
            (&shown.json()["origin"], &shown.json()["error"]),
            (&"source".into(), &Value::Null)
        );
        assert!(!shown.body.contains("secret"), "{}", shown.body);
        service.stopped().await;
    }
    folder.write("rules-password", "wrong");
    folder.write(
        "tollgate.yaml",
        &configured(&format!("{own}, username: rules, password_file: rules-password }}\n")),
    );
    let service = folder.serve().await;
    let message = error_of_kind(&service, "unavailable").await;
    assert!(message.starts_with("Redis does not give the rules: "), "{message}");
    assert!(!message.contains("wrong"), "{message}");
}

#[tokio::test]
async fn a_file_for_redis_that_is_missing_is_named_at_the_start() {
    let folder = Folder::new(
        "rules_from: { kind: redis, url: \"redis://127.0.0.1:9\", password_file: absent }\n",
    );
    let config = Config::read(folder.path("tollgate.yaml")).unwrap();
    let error = Server::bind(&config).await.unwrap_err().to_string();
    let path = folder.path("absent");
    let expected =
        format!("the file {} of rules_from.password_file cannot be read", path.display());
    assert!(error.contains(&expected), "{error}");
}

#[tokio::test]
async fn a_file_of_certificates_without_one_is_named_at_the_start() {
    let folder = Folder::new(
        "rules_from: { kind: redis, url: \"rediss://127.0.0.1:9\", tls: { ca: ca.pem } }\n",
    );
    folder.write("ca.pem", "these are not the certificates you are looking for\n");
    let config = Config::read(folder.path("tollgate.yaml")).unwrap();
    let error = Server::bind(&config).await.unwrap_err().to_string();
    let path = folder.path("ca.pem");
    let expected = format!(
        "the file {} of rules_from.tls.ca cannot be used: there is no -----BEGIN ... CERTIFICATE----- in it",
        path.display()
    );
    assert!(error.contains(&expected), "{error}");
}

#[tokio::test]
async fn a_value_that_is_too_large_can_be_replaced() {
    let server = RedisServer::start().unwrap();
    let folder = Folder::new(&config(&server));
    server.command(&["SET", "tollgate:rules", &rules(10)]).unwrap();
    let service = folder.serve().await;
    let id = id_in_force(&service).await;
    server.command(&["SET", "tollgate:rules", &"x".repeat(1_100_000)]).unwrap();
    assert_eq!(put(&service, &format!("\"{id}\""), &rules(20)).await.status, 200);
    assert_eq!(check(&service, "1.2.3.4").await.0, 20);
    // What another wrote behind the part that is read is not lost: the text is one that is read whole.
    assert_eq!(put(&service, &format!("\"{id}\""), &rules(30)).await.status, 412);
}

#[tokio::test]
async fn a_push_that_may_not_be_announced_is_written_and_is_no_failure() {
    let server = RedisServer::start().unwrap();
    let account = [
        "ACL",
        "SETUSER",
        "rules",
        "on",
        ">of-rules",
        "~tollgate:rules",
        "+@all",
        "-publish",
        "-subscribe",
    ];
    server.command(&account).unwrap();
    let config = format!(
        "rules_from: {{ kind: redis, url: \"{}\", username: rules, password: of-rules, poll_interval: 100ms }}\n",
        server.url()
    );
    server.command(&["SET", "tollgate:rules", &rules(10)]).unwrap();
    let (one, two) = (Folder::new(&config), Folder::new(&config));
    let (one, two) = (one.serve().await, two.serve().await);
    assert_eq!(put(&one, "*", &rules(20)).await.status, 200);
    assert_eq!(check(&one, "1.2.3.4").await.0, 20);
    limit_in_force(&two, 20).await;
}

/// What a user may do, as Redis says.
fn may(server: &RedisServer, user: &str, command: &[&str]) -> bool {
    let dry_run = [&["ACL", "DRYRUN", user][..], command].concat();
    format!("{:?}", server.command(&dry_run).unwrap()).to_uppercase().contains("OK")
}

#[tokio::test]
async fn the_users_of_the_page_on_security_suffice_and_only_one_of_them_writes_rules() {
    let server = RedisServer::start().unwrap();
    let page = include_str!("../../../../docs/security.md");
    let users: Vec<&str> = page.lines().filter(|line| line.starts_with("ACL SETUSER ")).collect();
    assert_eq!(users.len(), 2);
    for user in users {
        let _ = server.command(&user.split(' ').collect::<Vec<_>>()).unwrap();
    }
    server.command(&["SET", "tollgate-rules", &rules(10)]).unwrap();
    let url = |user: &str| server.url().replace("redis://", &format!("redis://{user}:password@"));
    let node = Folder::new(&format!(
        "store: {{ kind: redis, url: \"{}\" }}\n\
         rules_from: {{ kind: redis, key: tollgate-rules, poll_interval: 60min }}\n",
        url("tollgate")
    ));
    let pusher = Folder::new(&format!(
        "rules_from: {{ kind: redis, url: \"{}\", key: tollgate-rules, poll_interval: 60min }}\n",
        url("tollgate-push")
    ));
    let (node, pusher) = (node.serve().await, pusher.serve().await);
    until(async || {
        let reply = server.command(&["PUBSUB", "NUMSUB", "tollgate-rules:changed"]).unwrap();
        format!("{reply:?}").contains('2')
    })
    .await;
    assert_eq!(check(&node, "1.2.3.4").await.0, 10);
    assert_eq!(node.metric("tollgate_store_failing").await, Some(0.0));

    let id = format!("\"{}\"", id_in_force(&node).await);
    assert_eq!(put(&node, &id, &rules(20)).await.status, 503);
    assert_eq!(id_in_force(&pusher).await, id.trim_matches('"'));
    assert_eq!(put(&pusher, &id, &rules(20)).await.status, 200);
    limit_in_force(&node, 20).await;

    assert!(may(&server, "tollgate", &["SET", "tollgate:other", "x"]));
    assert!(!may(&server, "tollgate", &["SET", "tollgate-rules", "x"]));
    assert!(!may(&server, "tollgate", &["PUBLISH", "tollgate-rules:changed", "x"]));
    assert!(may(&server, "tollgate-push", &["SET", "tollgate-rules", "x"]));
    assert!(!may(&server, "tollgate-push", &["SET", "tollgate:other", "x"]));
}
