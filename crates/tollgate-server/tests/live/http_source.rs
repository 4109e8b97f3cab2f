//! Rules behind a URL.

use tokio::net::TcpListener;

use crate::folder::Folder;
use crate::origin::{Answers, Origin};
use crate::support::Service;
use crate::{check, error_of_kind, id_in_force, limit_in_force, put, rules, until};

fn config(origin: &Origin, poll_interval: &str) -> String {
    format!(
        "rules_from: {{ kind: http, url: \"http://{}/rules.yaml?key=secret\", token_file: token, \
         poll_interval: {poll_interval} }}\nstate_dir: state\n",
        origin.address
    )
}

async fn follow(origin: &Origin, poll_interval: &str) -> (Folder, Service) {
    let folder = Folder::new(&config(origin, poll_interval));
    folder.write("token", "a-token-of-the-service\n");
    let service = folder.serve().await;
    (folder, service)
}

#[tokio::test]
async fn a_url_is_asked_for_what_has_changed_only() {
    let origin = Origin::start(Answers::Text(rules(10))).await;
    let (_folder, service) = follow(&origin, "100ms").await;
    assert_eq!(check(&service, "1.2.3.4").await, (10, 9));
    let not_modified =
        |origin: &Origin| origin.seen().iter().filter(|(_, status)| *status == 304).count();
    until(async || not_modified(&origin) >= 2).await;
    let seen = origin.seen();
    assert_eq!(seen.iter().filter(|(_, status)| *status == 200).count(), 1, "{seen:?}");
    for (head, _) in &seen {
        assert!(head.starts_with("get /rules.yaml?key=secret http/1.1\r\n"), "{head}");
        assert!(head.contains(&format!("host: {}\r\n", origin.address)), "{head}");
        assert!(head.contains("authorization: bearer a-token-of-the-service\r\n"), "{head}");
    }
    origin.answer(Answers::Text(rules(20)));
    limit_in_force(&service, 20).await;
    assert_eq!(check(&service, "1.2.3.4").await, (20, 8), "units stay");
    let shown = service.admin("/v1/rules").await;
    assert!(!shown.body.contains("secret"), "{}", shown.body);
}

#[tokio::test]
async fn what_is_wrong_with_an_answer_leaves_the_rules_and_is_shown() {
    let origin = Origin::start(Answers::Text(rules(10))).await;
    let (_folder, service) = follow(&origin, "100ms").await;
    let id = id_in_force(&service).await;
    for (answers, kind, text) in [
        (Answers::Status(500), "unavailable", "the server answers 500"),
        (Answers::Status(404), "unavailable", "the server answers 404"),
        (Answers::Status(302), "unavailable", "give the URL that it leads to"),
        (Answers::Garbage, "unavailable", "does not answer by HTTP"),
        (Answers::Endless, "unavailable", "the answer is larger than 1048576 bytes"),
        (Answers::Text("<html>".to_owned()), "invalid", "a file of rules must be a mapping"),
        (Answers::Text(String::new()), "invalid", "has no `rules`"),
    ] {
        origin.answer(answers);
        until(async || {
            let error = service.admin("/v1/rules").await.json()["error"].clone();
            error["kind"] == kind && error["message"].as_str().unwrap().contains(text)
        })
        .await;
        assert_eq!(id_in_force(&service).await, id);
    }
    assert_eq!(check(&service, "1.2.3.4").await, (10, 9));
    assert!(service.metric("tollgate_rules_source_errors_total").await >= Some(5.0));
    assert_eq!(service.metric("tollgate_rules_refusals_total").await, Some(2.0));
    origin.answer(Answers::Text(rules(10)));
    until(async || service.admin("/v1/rules").await.json()["error"].is_null()).await;
}

#[tokio::test]
async fn a_server_that_waits_for_changes_is_followed_without_polling() {
    let origin = Origin::start(Answers::Waiting(rules(10))).await;
    // The first answer tells that the server can, and the second is asked for after this time.
    let (_folder, service) = follow(&origin, "200ms").await;
    until(async || origin.seen().len() == 1).await;
    for limit in [20, 30, 40] {
        // Let it wait.
        until(async || check(&service, "1.2.3.4").await.0 == u64::from(limit) - 10).await;
        origin.answer(Answers::Waiting(rules(limit)));
        limit_in_force(&service, limit.into()).await;
    }
    let seen = origin.seen();
    assert!(seen.len() <= 5, "it does not poll: {seen:?}");
    assert!(seen[1..].iter().all(|(head, _)| head.contains("prefer: wait=30")));
}

#[tokio::test]
async fn a_start_while_the_server_is_away_has_the_last_good_rules() {
    let origin = Origin::start(Answers::Text(rules(10))).await;
    let (folder, service) = follow(&origin, "100ms").await;
    let id = id_in_force(&service).await;
    service.stopped().await;
    let address = origin.address;
    drop(origin);

    let service = folder.serve().await;
    assert_eq!(id_in_force(&service).await, id);
    assert_eq!(service.admin("/v1/rules").await.json()["origin"], "kept");
    assert_eq!(check(&service, "1.2.3.4").await, (10, 9));
    let message = error_of_kind(&service, "unavailable").await;
    assert!(message.starts_with(&format!("cannot connect to {address}: ")), "{message}");

    let listener = TcpListener::bind(address).await.unwrap();
    let _origin = Origin::on(listener, Answers::Text(rules(20)));
    limit_in_force(&service, 20).await;
}

#[tokio::test]
async fn rules_behind_a_url_cannot_be_written() {
    let origin = Origin::start(Answers::Text(rules(10))).await;
    let (_folder, service) = follow(&origin, "10s").await;
    let refused = put(&service, "*", &rules(20)).await;
    assert_eq!(refused.status, 409);
    assert_eq!(
        refused.json()["detail"],
        "the rules come from an HTTP server: change them there, this service reads"
    );
}
