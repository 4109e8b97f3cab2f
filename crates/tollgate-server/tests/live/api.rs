//! `/v1/rules` on the admin listener.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use serde_json::json;

use crate::folder::{Folder, configured};
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
    for body in ["{\"ids\":1}", ""] {
        assert_eq!(roll_back(&service, body).await.status, 400, "{body}");
    }
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

#[tokio::test]
async fn what_is_doubtful_in_rules_is_told_to_whoever_writes_them() {
    let (_folder, service) = on_a_file(10).await;
    let many: String =
        (0..65).map(|n| format!("  - {{ name: r{n}, key: ip, limit: 5/min }}\n")).collect();
    let reply = put(&service, "*", &format!("rules:\n{many}")).await;
    assert_eq!(reply.status, 200);
    let warnings = reply.json()["warnings"].clone();
    let warnings = warnings.as_array().unwrap();
    assert!(warnings[0].as_str().unwrap().contains("64"), "{warnings:?}");
    assert_eq!(put(&service, "*", &rules(20)).await.json().get("warnings"), None);
}

#[tokio::test]
async fn a_whole_configuration_is_never_replaced_by_rules() {
    let folder =
        Folder::new("rules_from: { kind: file, path: rules.yaml, poll_interval: 100ms }\n");
    let whole = configured(&rules(10));
    folder.write("rules.yaml", &whole);
    let service = folder.serve().await;
    let refused = put(&service, "*", &rules(20)).await;
    assert_eq!(refused.status, 409);
    assert!(refused.json()["detail"].as_str().unwrap().contains("whole configuration"));
    assert_eq!(std::fs::read_to_string(folder.path("rules.yaml")).unwrap(), whole);
}

#[tokio::test]
async fn what_is_in_the_file_is_replaced_whatever_it_is_if_it_is_no_configuration() {
    let (folder, service) = on_a_file(10).await;
    for (garbage, limit) in [("rules: [".to_owned(), 20), ("x".repeat(1_100_000), 30)] {
        folder.write("rules.yaml", &garbage);
        let id = id_in_force(&service).await;
        assert_eq!(put(&service, &format!("\"{id}\""), &rules(limit)).await.status, 200);
        assert_eq!(std::fs::read_to_string(folder.path("rules.yaml")).unwrap(), rules(limit));
        assert_eq!(check(&service, "1.2.3.4").await.0, u64::from(limit));
    }
}

#[tokio::test]
async fn a_text_that_says_the_same_in_other_words_is_written_too() {
    let (folder, service) = on_a_file(10).await;
    let text = format!("# reviewed\n{}", rules(10));
    let reply = put(&service, "*", &text).await;
    assert_eq!((reply.status, reply.json()["document"].as_str()), (200, Some(text.as_str())));
    assert_eq!(std::fs::read_to_string(folder.path("rules.yaml")).unwrap(), text);
}

#[tokio::test]
async fn entity_tags_are_compared_as_lists_and_for_reading_too() {
    let (_folder, service) = on_a_file(10).await;
    let id = id_in_force(&service).await;
    let show = async |tags: &str| {
        let headers = [("if-none-match", tags.as_bytes())];
        request(service.admin, "GET", "/v1/rules", &headers, b"").await
    };
    let known = show(&format!("\"0123456789abcdef\", W/\"{id}\"")).await;
    assert_eq!((known.status, known.body.as_str()), (304, ""));
    assert_eq!(known.header("etag"), Some(format!("\"{id}\"").as_str()));
    assert_eq!(show("\"0123456789abcdef\"").await.status, 200);
    let either = format!("\"0123456789abcdef\", \"{id}\"");
    assert_eq!(put(&service, &either, &rules(20)).await.status, 200);
    assert_eq!(put(&service, &either, &rules(30)).await.status, 412);
}

#[tokio::test]
async fn whoever_replaces_whatever_is_there_is_not_told_of_a_conflict() {
    let (_folder, service) = on_a_file(10).await;
    let writers = (0..8).map(|writer| {
        let service = &service;
        async move {
            for number in 0..10 {
                let reply = put(service, "*", &rules(100 * writer + number + 1)).await;
                assert_eq!(reply.status, 200, "{reply:?}");
            }
        }
    });
    futures_util::future::join_all(writers).await;
}

#[tokio::test]
async fn a_file_that_is_written_keeps_its_owner_and_its_mode() {
    let (folder, service) = on_a_file(10).await;
    let path = folder.path("rules.yaml");
    // Only a privileged process may; for others the file is their own, before and after.
    let _ = chown(&path, Some(12_345), Some(12_345));
    std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    let of = || {
        let metadata = std::fs::metadata(&path).unwrap();
        (metadata.uid(), metadata.gid(), metadata.mode() & 0o777)
    };
    let before = of();
    assert_eq!(put(&service, "*", &rules(20)).await.status, 200);
    assert_eq!((of(), before.2), (before, 0o640));
}
