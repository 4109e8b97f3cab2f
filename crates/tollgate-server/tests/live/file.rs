//! Rules in files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::folder::{Folder, configured};
use crate::support::Service;
use crate::{check, error_of_kind, id_in_force, limit_in_force, rules, until};

/// So long that nothing is noticed by polling within a test.
const SELDOM: &str = "rules_from: { kind: file, path: rules.yaml, poll_interval: 60min }\n";

async fn with_rules_file(config: &str, limit: u32) -> (Folder, Service) {
    let folder = Folder::new(config);
    folder.write("rules.yaml", &rules(limit));
    let service = folder.serve().await;
    (folder, service)
}

#[tokio::test]
async fn g11_an_edit_in_place_is_in_force_at_once_and_units_stay() {
    let folder = Folder::new(&rules(10));
    let service = folder.serve().await;
    for left in [9, 8, 7] {
        assert_eq!(check(&service, "1.2.3.4").await, (10, left));
    }
    folder.write("tollgate.yaml", &configured(&rules(100)));
    limit_in_force(&service, 100).await;
    // The seven that were left stay, and nothing is given for the higher burst.
    assert_eq!(check(&service, "1.2.3.4").await, (100, 6));
    folder.write("tollgate.yaml", &configured(&rules(5)));
    limit_in_force(&service, 5).await;
    assert_eq!(check(&service, "1.2.3.4").await, (5, 4), "capped at the new burst");
}

#[tokio::test]
async fn a_file_that_is_renamed_into_place_is_noticed_without_polling() {
    let (folder, service) = with_rules_file(SELDOM, 10).await;
    watched(&folder, &service).await;
    for limit in [20, 30, 40] {
        folder.replace("rules.yaml", &rules(limit));
        limit_in_force(&service, limit.into()).await;
    }
}

#[tokio::test]
async fn the_swap_of_a_link_above_a_mounted_file_is_noticed_without_polling() {
    let folder = Folder::new(SELDOM);
    // What Kubernetes makes of a ConfigMap: rules.yaml -> ..data/rules.yaml, ..data -> ..1
    let version = |number: u32, limit: u32| {
        let target = folder.path(&format!("..{number}"));
        fs::create_dir(&target).unwrap();
        fs::write(target.join("rules.yaml"), rules(limit)).unwrap();
        symlink(format!("..{number}"), folder.path("..data_tmp")).unwrap();
        fs::rename(folder.path("..data_tmp"), folder.path("..data")).unwrap();
    };
    version(1, 10);
    symlink("..data/rules.yaml", folder.path("rules.yaml")).unwrap();
    let service = folder.serve().await;
    assert_eq!(check(&service, "1.2.3.4").await, (10, 9));
    // The watch begins only when the service runs, which nothing but a change shows.
    let mut number = 1;
    until(async || {
        folder.write("..probe", "");
        service.admin("/healthz").await.status == 200
    })
    .await;
    for limit in [20, 30, 40] {
        number += 1;
        version(number, limit);
        fs::remove_dir_all(folder.path(&format!("..{}", number - 1))).unwrap();
        limit_in_force(&service, limit.into()).await;
    }
}

#[tokio::test]
async fn a_file_behind_a_link_may_be_edited_where_it_is() {
    let (elsewhere, folder) = (tempfile::tempdir().unwrap(), Folder::new(SELDOM));
    let target = elsewhere.path().join("rules.yaml");
    fs::write(&target, rules(10)).unwrap();
    symlink(&target, folder.path("rules.yaml")).unwrap();
    let service = folder.serve().await;
    rewritten_until(&target, &service, 20).await;
}

#[tokio::test]
async fn what_no_watch_tells_of_is_found_by_polling() {
    let folder =
        Folder::new("rules_from: { kind: file, path: rules.yaml, poll_interval: 100ms }\n");
    // A link to a link: the folder in the middle is not watched.
    for (name, limit) in [("one", 10), ("two", 20)] {
        fs::create_dir(folder.path(name)).unwrap();
        folder.write(&format!("{name}/rules.yaml"), &rules(limit));
    }
    fs::create_dir(folder.path("middle")).unwrap();
    symlink("../one/rules.yaml", folder.path("middle/rules.yaml")).unwrap();
    symlink("middle/rules.yaml", folder.path("rules.yaml")).unwrap();
    let service = folder.serve().await;
    assert_eq!(check(&service, "1.2.3.4").await.0, 10);
    fs::remove_file(folder.path("middle/rules.yaml")).unwrap();
    symlink("../two/rules.yaml", folder.path("middle/rules.yaml")).unwrap();
    limit_in_force(&service, 20).await;
}

/// Writes a file again and again until it is in force, for the first watch takes a moment.
async fn rewritten_until(path: &Path, service: &Service, limit: u32) {
    until(async || {
        fs::write(path, rules(limit)).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let rules = service.limiter.rules();
        rules.iter().next().map(|rule| rule.quota().rate().units()) == Some(limit.into())
    })
    .await;
}

/// Waits until the folder is watched.
async fn watched(folder: &Folder, service: &Service) {
    rewritten_until(&folder.path("rules.yaml"), service, 11).await;
}

#[tokio::test]
async fn a_broken_file_changes_nothing_and_is_shown() {
    let (folder, service) = with_rules_file(SELDOM, 10).await;
    watched(&folder, &service).await;
    let before = id_in_force(&service).await;
    folder.replace("rules.yaml", "rules:\n  - { name: per-ip, limit: 20 }\n");
    let message = error_of_kind(&service, "invalid").await;
    let file = folder.path("rules.yaml");
    assert_eq!(
        message,
        format!(
            "{}:2:28: rate \"20\" has no '/': write it as units/period, for example \"20/min\"",
            file.display()
        )
    );
    assert_eq!(id_in_force(&service).await, before);
    assert_eq!(check(&service, "1.2.3.4").await, (11, 10));
    assert_eq!(service.metric("tollgate_rules_stale").await, Some(1.0));
    assert_eq!(service.metric("tollgate_rules_refusals_total").await, Some(1.0));

    // What was there before the mistake is in force already, and the error is gone.
    folder.replace("rules.yaml", &rules(11));
    until(async || service.admin("/v1/rules").await.json()["error"].is_null()).await;
    assert_eq!(id_in_force(&service).await, before);
    assert_eq!(service.metric("tollgate_rules_stale").await, Some(0.0));
    assert_eq!(service.metric("tollgate_rules_changes_total").await, Some(1.0));
}

#[tokio::test]
async fn rules_of_a_file_of_their_own_name_no_address() {
    let (folder, service) = with_rules_file(SELDOM, 10).await;
    watched(&folder, &service).await;
    folder.replace("rules.yaml", &configured(&rules(20)));
    let message = error_of_kind(&service, "invalid").await;
    assert!(message.contains(":1:1: a file of rules has no field `listen`"), "{message}");
    assert_eq!(check(&service, "1.2.3.4").await.0, 11);
}

#[tokio::test]
async fn a_file_that_is_gone_leaves_the_rules_in_force() {
    let config = "rules_from: { kind: file, path: rules.yaml, poll_interval: 100ms }\n";
    let (folder, service) = with_rules_file(config, 10).await;
    fs::remove_file(folder.path("rules.yaml")).unwrap();
    let message = error_of_kind(&service, "unavailable").await;
    assert_eq!(message, format!("there is no file {}", folder.path("rules.yaml").display()));
    assert_eq!(check(&service, "1.2.3.4").await, (10, 9));
    folder.write("rules.yaml", &rules(10));
    until(async || service.admin("/v1/rules").await.json()["error"].is_null()).await;
}

#[tokio::test]
async fn other_sections_of_the_configuration_wait_for_a_restart() {
    let folder = Folder::new(&rules(10));
    let service = folder.serve().await;
    let changed = format!(
        "listen: {{ http: 127.0.0.1:1, grpc: 127.0.0.1:0, admin: 127.0.0.1:0 }}\nstore: {{ keys_max: 7 }}\n{}",
        rules(20)
    );
    folder.write("tollgate.yaml", &changed);
    limit_in_force(&service, 20).await;
    let shown = service.admin("/v1/rules").await.json();
    assert_eq!(shown["needs_restart"], serde_json::json!(["listen", "store"]));
    assert_eq!(shown["error"], Value::Null);
    assert_eq!(service.admin("/healthz").await.status, 200);

    folder.write("tollgate.yaml", &configured(&rules(30)));
    limit_in_force(&service, 30).await;
    let shown = service.admin("/v1/rules").await.json();
    assert_eq!(shown["needs_restart"], serde_json::json!([]));
}

#[tokio::test]
async fn the_rules_of_the_configuration_hold_until_the_source_has_some() {
    let folder = Folder::new(&format!(
        "rules_from: {{ kind: file, path: rules.yaml, poll_interval: 100ms }}\n{}",
        rules(7)
    ));
    let service = folder.serve().await;
    assert_eq!(check(&service, "1.2.3.4").await, (7, 6));
    assert_eq!(service.admin("/v1/rules").await.json()["origin"], "config");
    folder.write("rules.yaml", &rules(10));
    limit_in_force(&service, 10).await;
    assert_eq!(service.admin("/v1/rules").await.json()["origin"], "source");
}

#[tokio::test]
async fn a_service_that_has_never_had_rules_is_not_ready() {
    let folder =
        Folder::new("rules_from: { kind: file, path: rules.yaml, poll_interval: 100ms }\n");
    let service = folder.serve().await;
    let reply = service.admin("/readyz").await;
    assert_eq!((reply.status, &reply.json()["reason"]), (503, &"no_rules".into()));
    folder.write("rules.yaml", &rules(10));
    until(async || service.admin("/readyz").await.status == 200).await;
}

#[tokio::test]
async fn the_last_good_rules_are_used_while_the_source_is_away_or_broken() {
    let config = format!("state_dir: state\n{SELDOM}{}", rules(7));
    let (folder, service) = with_rules_file(&config, 10).await;
    watched(&folder, &service).await;
    let id = id_in_force(&service).await;
    service.stopped().await;
    for broken in [None, Some("rules: [")] {
        match broken {
            None => fs::remove_file(folder.path("rules.yaml")).unwrap(),
            Some(text) => folder.write("rules.yaml", text),
        }
        let service = folder.serve().await;
        assert_eq!(check(&service, "1.2.3.4").await, (11, 10));
        let shown = service.admin("/v1/rules").await.json();
        assert_eq!((&shown["id"], &shown["origin"]), (&id.clone().into(), &"kept".into()));
        assert_ne!(shown["error"], Value::Null);
        let history = service.admin("/v1/rules/history").await.json();
        assert_eq!(history["versions"].as_array().unwrap().len(), 2, "at every start: {history}");
        service.stopped().await;
    }
    // What was changed on disk is not the last good.
    let kept = folder.path("state/rules.json");
    let text = fs::read_to_string(&kept).unwrap();
    fs::write(&kept, text.replace("limit: 1", "limit: 9")).unwrap();
    let service = folder.serve().await;
    assert_eq!(check(&service, "1.2.3.4").await, (7, 6));
}

#[tokio::test]
async fn a_state_directory_that_cannot_be_written_is_told_at_the_start() {
    let folder = Folder::new(&format!("state_dir: rules.yaml/state\n{SELDOM}"));
    folder.write("rules.yaml", &rules(1));
    let config = tollgate_config::Config::read(folder.path("tollgate.yaml")).unwrap();
    let error = tollgate_server::Server::bind(&config).await.unwrap_err().to_string();
    assert!(error.contains("(state_dir)"), "{error}");
}

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[tokio::test]
async fn a_pipe_in_the_place_of_the_file_is_not_waited_for() {
    let (folder, service) = with_rules_file(SELDOM, 10).await;
    watched(&folder, &service).await;
    fs::remove_file(folder.path("rules.yaml")).unwrap();
    make_pipe(&folder.path("rules.yaml"));
    until(async || {
        let shown = service.admin("/v1/rules").await.json();
        shown["error"]["message"].as_str().is_some_and(|text| text.ends_with("not a regular file"))
    })
    .await;
    assert_eq!(service.metric("tollgate_rules_stale").await, Some(1.0));
    fs::remove_file(folder.path("rules.yaml")).unwrap();
    folder.write("rules.yaml", &rules(20));
    limit_in_force(&service, 20).await;
    service.stopped().await;

    fs::create_dir(folder.path("state")).unwrap();
    make_pipe(&folder.path("state/rules.json"));
    folder.write("tollgate.yaml", &configured(&format!("state_dir: state\n{SELDOM}")));
    assert_eq!(check(&folder.serve().await, "1.2.3.4").await.0, 20);
}

#[tokio::test]
async fn a_configuration_that_came_by_a_pipe_is_not_followed() {
    let folder = Folder::new("");
    let pipe = folder.path("pipe.yaml");
    make_pipe(&pipe);
    let writer = {
        let pipe = pipe.clone();
        std::thread::spawn(move || fs::write(pipe, configured(&rules(10))).unwrap())
    };
    let service = folder.serve_file(&pipe).await;
    writer.join().unwrap();
    assert_eq!(check(&service, "1.2.3.4").await.0, 10);
    let shown = service.admin("/v1/rules").await.json();
    assert_eq!((&shown["source"]["kind"], &shown["error"]), (&"none".into(), &Value::Null));
}

#[tokio::test]
async fn a_link_that_leads_elsewhere_and_back_is_watched_all_the_time() {
    let folder = Folder::new(SELDOM);
    let link = |number: u32| {
        symlink(format!("v{number}"), folder.path("..data_tmp")).unwrap();
        fs::rename(folder.path("..data_tmp"), folder.path("..data")).unwrap();
    };
    for (number, limit) in [(1, 10), (2, 20)] {
        fs::create_dir(folder.path(&format!("v{number}"))).unwrap();
        folder.write(&format!("v{number}/rules.yaml"), &rules(limit));
    }
    link(1);
    symlink("..data/rules.yaml", folder.path("rules.yaml")).unwrap();
    let service = folder.serve().await;
    rewritten_until(&folder.path("v1/rules.yaml"), &service, 11).await;
    link(2);
    limit_in_force(&service, 20).await;
    folder.write("v2/rules.yaml", &rules(21));
    limit_in_force(&service, 21).await;
    // The link itself may become a file.
    folder.replace("rules.yaml", &rules(30));
    limit_in_force(&service, 30).await;
    folder.write("rules.yaml", &rules(31));
    limit_in_force(&service, 31).await;
    link(1);
    folder.replace("rules.yaml", &rules(32));
    limit_in_force(&service, 32).await;
}

#[tokio::test]
async fn a_folder_that_another_is_put_in_the_place_of_is_watched_again() {
    let config = "rules_from: { kind: file, path: fs/rules.yaml, poll_interval: 60min }\n";
    let folder = Folder::new(config);
    let make = |limit: u32| {
        fs::create_dir(folder.path("fs")).unwrap();
        folder.write("fs/rules.yaml", &rules(limit));
    };
    make(10);
    let service = folder.serve().await;
    rewritten_until(&folder.path("fs/rules.yaml"), &service, 11).await;
    fs::rename(folder.path("fs"), folder.path("fs_old")).unwrap();
    make(20);
    limit_in_force(&service, 20).await;
    for limit in [21, 22] {
        folder.write("fs/rules.yaml", &rules(limit));
        limit_in_force(&service, limit.into()).await;
    }
}
