//! `/v1/rules` on the admin listener.

use serde_json::json;

use crate::folder::Folder;
use crate::support::{Reply, Service, request};
use crate::{check, id_in_force, put, rules};

async fn on_a_file(limit: u32) -> (Folder, Service) {
    let folder = Folder::new("rules_from: { kind: file, path: rules.yaml }\n");
    folder.write("rules.yaml", &rules(limit));
    let service = folder.serve().await;
    (folder, service)
}

async fn roll_back(service: &Service, body: &str) -> Reply {
    let headers = [("content-type", &b"application/json"[..])];
    request(service.admin, "POST", "/v1/rules/rollback", &headers, body.as_bytes()).await
}

#[tokio::test]
async fn the_rules_in_force_are_shown_with_their_id_and_where_they_come_from() {
    let (folder, service) = on_a_file(10).await;
    let reply = service.admin("/v1/rules").await;
    let mut shown = reply.json();
    let id = shown["id"].as_str().unwrap().to_owned();
    assert_eq!(reply.header("etag"), Some(format!("\"{id}\"").as_str()));
    assert_eq!(shown["applied_at"].as_str().unwrap().len(), "2026-01-01T00:00:00Z".len());
    shown["applied_at"] = json!(null);
    assert_eq!(
        shown,
        json!({
            "id": id,
            "rules": 1,
            "source": {
                "kind": "file",
                "location": folder.path("rules.yaml"),
                "writable": true,
            },
            "origin": "source",
            "applied_at": null,
            "error": null,
            "needs_restart": [],
            "format": "yaml",
            "document": rules(10),
        })
    );
}

#[tokio::test]
async fn a_file_is_written_as_it_was_sent_and_others_are_told_of_a_conflict() {
    let (folder, service) = on_a_file(10).await;
    let first = id_in_force(&service).await;
    let text = format!("# why\n{}", rules(20));
    assert_eq!(put(&service, &format!("\"{first}\""), &text).await.status, 200);
    assert_eq!(std::fs::read_to_string(folder.path("rules.yaml")).unwrap(), text);
    assert_eq!(check(&service, "1.2.3.4").await, (20, 19));
    assert_eq!(put(&service, &format!("\"{first}\""), &rules(30)).await.status, 412);

    // Somebody edits the file, and the service has not seen it yet: the edit is not lost.
    let second = id_in_force(&service).await;
    folder.write("rules.yaml", &rules(40));
    assert_eq!(put(&service, &second, &rules(30)).await.status, 412);
    assert_eq!(check(&service, "1.2.3.4").await.0, 40);
}

#[tokio::test]
async fn a_write_says_what_it_replaces() {
    let (_folder, service) = on_a_file(10).await;
    let blind = request(service.admin, "PUT", "/v1/rules", &[], rules(20).as_bytes()).await;
    assert_eq!(blind.status, 428);
    for (value, text) in [("\"x\"", "the id of rules has 16 digits"), ("", "`If-Match` is not")] {
        let reply = put(&service, value, &rules(20)).await;
        assert_eq!(reply.status, 400);
        assert!(reply.json()["detail"].as_str().unwrap().contains(text), "{reply:?}");
    }
    let large = "#".repeat((1 << 20) + 1);
    assert_eq!(put(&service, "*", &large).await.status, 413);
    assert_eq!(check(&service, "1.2.3.4").await.0, 10);
}

#[tokio::test]
async fn a_rollback_puts_the_version_before_or_one_of_the_history_in_force() {
    let (folder, service) = on_a_file(10).await;
    assert_eq!(roll_back(&service, "{}").await.status, 404, "there is none before");
    let first = id_in_force(&service).await;
    for limit in [20, 30] {
        assert_eq!(put(&service, "*", &rules(limit)).await.status, 200);
    }
    let back = roll_back(&service, "{}").await;
    assert_eq!((back.status, &back.json()["origin"]), (200, &json!("rollback")));
    assert_eq!(check(&service, "1.2.3.4").await.0, 20);
    assert_eq!(roll_back(&service, &json!({ "id": first }).to_string()).await.status, 200);
    assert_eq!(check(&service, "1.2.3.4").await.0, 10);
    assert_eq!(std::fs::read_to_string(folder.path("rules.yaml")).unwrap(), rules(10));

    let history = service.admin("/v1/rules/history").await.json();
    let origins: Vec<_> =
        history["versions"].as_array().unwrap().iter().map(|one| one["origin"].clone()).collect();
    assert_eq!(origins, ["rollback", "rollback", "push", "push", "source"]);

    for body in [r#"{"id":"0123456789abcdef"}"#, r#"{"id":"../x"}"#] {
        assert_eq!(roll_back(&service, body).await.status, 404);
    }
    assert_eq!(roll_back(&service, "{\"ids\":1}").await.status, 400);
    let untyped = request(service.admin, "POST", "/v1/rules/rollback", &[], b"{}").await;
    assert_eq!(untyped.status, 415);
}

#[tokio::test]
async fn the_configuration_of_a_service_is_shown_by_its_rules_alone_and_not_written() {
    let folder = Folder::new(&format!(
        "store: {{ kind: redis, url: \"redis://u:hidden@127.0.0.1:9\" }}\n{}",
        rules(10)
    ));
    let service = folder.serve().await;
    let shown = service.admin("/v1/rules").await;
    assert!(!shown.body.contains("hidden"), "{}", shown.body);
    assert_eq!(
        shown.json()["document"],
        "rules:\n- {\"name\": \"per-ip\", \"key\": \"ip\", \"limit\": \"10/day\"}\n"
    );
    assert_eq!(shown.json()["source"]["writable"], false);
    assert_eq!(put(&service, "*", &rules(20)).await.status, 409);
    assert_eq!(roll_back(&service, "{}").await.status, 404);
}
