//! `tollgate rules`, and changes of a running service.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use tollgate_testkit::RedisServer;

use crate::process::{Ran, Service, run};

fn rules(limit: u32) -> String {
    format!("rules:\n  # for each address\n  - {{ name: per-ip, key: ip, limit: {limit}/min }}\n")
}

fn line(limit: u32) -> String {
    format!("{{\"name\": \"per-ip\", \"key\": \"ip\", \"limit\": \"{limit}/min\"}}")
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let file = folder.join(name);
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

fn ask(service: &Service, args: &[&str]) -> Ran {
    let admin = format!("http://{}", service.admin);
    run(&[&["rules", "--admin", &admin], args].concat())
}

/// Returns the id that `rules show` tells of.
fn id(service: &Service) -> String {
    let shown = ask(service, &["show"]).stdout;
    shown.split(' ').nth(3).unwrap().to_owned()
}

#[test]
fn rules_are_compared_pushed_and_rolled_back_from_the_shell() {
    let server = RedisServer::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = format!("rules_from: {{ kind: redis, url: \"{}\" }}\n", server.url());
    let config = write(folder.path(), "tollgate.yaml", &config);
    let service = Service::start(&["--config", &config]);
    assert!(service.said.contains(" WARN there are no rules yet"), "{}", service.said);
    let shown = ask(&service, &["show"]);
    assert_eq!(shown.status, 0, "{shown:?}");
    assert!(shown.stdout.starts_with("in force  none yet (0 rules)\n"), "{}", shown.stdout);
    assert!(shown.stdout.contains("the key tollgate:rules does not exist"), "{}", shown.stdout);

    let first = write(folder.path(), "first.yaml", &rules(10));
    let pushed = ask(&service, &["push", &first]);
    assert_eq!(pushed.status, 0, "{pushed:?}");
    let first_id = id(&service);
    assert_eq!(pushed.stdout, format!("+ {}\nin force: {first_id} (1 rule)\n", line(10)));

    let second = write(folder.path(), "second.yaml", &rules(20));
    let difference = ask(&service, &["diff", &second]);
    assert_eq!(difference.status, 1);
    assert_eq!(difference.stdout, format!("- {}\n+ {}\n", line(10), line(20)));
    assert_eq!(ask(&service, &["push", &second]).status, 0);
    let same = ask(&service, &["diff", &second]);
    assert_eq!((same.status, same.stdout.as_str()), (0, "no difference\n"));
    assert_eq!(ask(&service, &["show", "--document"]).stdout, rules(20));

    let late = ask(&service, &["push", &first, "--if-match", &first_id]);
    assert_eq!(late.status, 1);
    assert!(late.stderr.starts_with("error: the rules have changed since: "), "{}", late.stderr);

    let back = ask(&service, &["rollback"]);
    assert_eq!(
        (back.status, back.stdout),
        (0, format!("- {}\n+ {}\nin force: {first_id} (1 rule)\n", line(20), line(10)))
    );
    let history = ask(&service, &["history"]).stdout;
    assert_eq!(history.lines().count(), 3, "{history}");
    assert!(history.lines().next().unwrap().ends_with("1 rule, rolled back"), "{history}");
    assert_eq!(ask(&service, &["push", &second, "--force"]).status, 0);

    let broken = write(folder.path(), "broken.yaml", "rules: [{ name: a, limit: 20 }]");
    let refused = ask(&service, &["push", &broken]);
    assert_eq!(refused.status, 1);
    assert!(refused.stderr.contains(&format!("{broken}:1:27\n")), "{}", refused.stderr);
}

#[test]
fn what_is_doubtful_and_what_is_wrong_is_told_before_and_after_a_push() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "rules.yaml", &rules(10));
    let text = "rules_from: { kind: file, path: rules.yaml }\n";
    let service = Service::start(&["--config", &write(folder.path(), "tollgate.yaml", text)]);
    let many: String =
        (0..65).map(|n| format!("  - {{ name: r{n}, key: ip, limit: 5/min }}\n")).collect();
    let many = write(folder.path(), "many.yaml", &format!("rules:\n{many}"));
    let compared = ask(&service, &["diff", &many]);
    assert_eq!(compared.status, 1);
    assert!(compared.stderr.starts_with("warning: "), "{}", compared.stderr);
    let pushed = ask(&service, &["push", &many]);
    assert_eq!(pushed.status, 0);
    assert!(pushed.stderr.starts_with("warning: "), "{}", pushed.stderr);
    assert!(ask(&service, &["show"]).stdout.contains("\nwarning   "));

    let broken = write(folder.path(), "broken.yaml", "rules: [{ name: a, limit: 20 }]");
    assert_eq!(ask(&service, &["diff", &broken]).status, 2);
    assert_eq!(ask(&service, &["diff", "absent.yaml"]).status, 2);
    let toml = write(folder.path(), "r.toml", "[[rules]]\nname = \"a\"\nlimit = \"20/min\"\n");
    let refused = ask(&service, &["push", &toml]);
    assert_eq!(refused.status, 1);
    let told = format!("error: {toml} is TOML and ");
    assert!(refused.stderr.starts_with(&told), "{}", refused.stderr);
    assert!(refused.stderr.ends_with("write the rules in YAML\n"), "{}", refused.stderr);
}

#[test]
fn a_service_that_is_not_there_is_named() {
    let ran = run(&["rules", "show", "--admin", "127.0.0.1:9"]);
    assert_eq!(ran.status, 2);
    assert!(ran.stderr.starts_with("error: cannot connect to 127.0.0.1:9: "), "{}", ran.stderr);
    let ran = run(&["rules", "show", "--admin", "ftp://x"]);
    assert!(ran.stderr.contains("for example http://127.0.0.1:9090"), "{}", ran.stderr);
}

#[test]
fn a_token_is_shown_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "rules.yaml", &rules(10));
    write(folder.path(), "token", "0123456789abcdef\n");
    let text = "rules_from: { kind: file, path: rules.yaml }\n\
                admin_tokens: [{ name: deploy, scope: write, token_file: token }]\n";
    let config = write(folder.path(), "tollgate.yaml", text);
    let service = Service::start(&["--config", &config]);
    let without = ask(&service, &["show"]);
    assert_eq!(without.status, 1);
    assert!(without.stderr.starts_with("error: show a token: "), "{}", without.stderr);
    let token = folder.path().join("token");
    let second = write(folder.path(), "second.yaml", &rules(20));
    let pushed = ask(&service, &["push", &second, "--token-file", token.to_str().unwrap()]);
    assert_eq!(pushed.status, 0, "{pushed:?}");
    let logged = service.next_line();
    assert!(logged.contains("rules in force"), "{logged}");
    assert!(logged.contains("origin=push") && logged.contains("by=deploy"), "{logged}");
}

#[test]
fn sighup_looks_for_new_rules_at_once() {
    let server = RedisServer::start().unwrap();
    let set = |limit| server.command(&["SET", "tollgate:rules", &rules(limit)]).unwrap();
    let _ = set(10);
    // A node that subscribes looks for rules when it has, which may be later than the next change.
    let _ = server.command(&["ACL", "SETUSER", "default", "-subscribe"]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = server.url();
    let text = format!("rules_from: {{ kind: redis, url: \"{url}\", poll_interval: 60min }}\n");
    let config = write(folder.path(), "tollgate.yaml", &text);
    let service = Service::start(&["--config", &config]);
    let before = id(&service);
    let _ = set(20);
    assert_eq!(id(&service), before, "nothing else has told of it");
    service.signal(Signal::HUP);
    loop {
        let logged = service.next_line();
        if logged.contains("rules in force") {
            assert!(logged.contains(&format!(" previous={before} ")), "{logged}");
            break;
        }
    }
    service.signal(Signal::TERM);
    assert_eq!(service.ended().0, 0);
}

#[test]
fn one_question_is_answered_by_the_rules_of_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let text = "rules_from: { kind: file, path: rules.yaml }\n";
    let config = write(folder.path(), "tollgate.yaml", text);
    let missing = run(&["check", "--config", &config, "ip=192.0.2.1"]);
    assert_eq!(missing.status, 2);
    assert!(
        missing.stderr.contains("error: the rules cannot be had: there is no file"),
        "{missing:?}"
    );
    write(folder.path(), "rules.yaml", &rules(10));
    let checked = run(&["check", "--config", &config, "ip=192.0.2.1"]);
    assert!(checked.stdout.contains("9 of 10 left"), "{checked:?}");
}
