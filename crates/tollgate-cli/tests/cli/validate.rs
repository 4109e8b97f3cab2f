//! `tollgate validate` and `tollgate example`.

use std::fs;
use std::path::Path;

use crate::process::{run, run_into_a_full_disk};

fn written(dir: &Path, name: &str, text: &str) -> String {
    let file = dir.join(name);
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn the_example_is_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let example = run(&["example"]);
    assert_eq!((example.status, example.stderr.as_str()), (0, ""));
    let file = written(dir.path(), "tollgate.yaml", &example.stdout);
    let ran = run(&["validate", &file]);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    assert_eq!(ran.stdout, format!("{file}: ok (3 rules)\n"));
}

#[test]
#[cfg(target_os = "linux")]
fn output_that_cannot_be_written_is_no_success() {
    for args in [&["example"][..], &["check", "--domain", "nobody", "ip=x"]] {
        let (status, said) = run_into_a_full_disk(args);
        assert_eq!(status, 2, "{args:?}");
        assert!(said.contains("error: the output cannot be written: No space left"), "{said}");
    }
}

#[test]
fn every_mistake_is_shown_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let text = "rules:\n  - name: login\n    limit: 20\n    brust: 5\n";
    let file = written(dir.path(), "tollgate.yaml", text);
    let ran = run(&["validate", &file]);
    assert_eq!((ran.status, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.contains(&format!("{file}:3:12\n")), "{}", ran.stderr);
    assert!(ran.stderr.contains("error: rate \"20\" has no '/'\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("{file}:4:5\n")), "{}", ran.stderr);
    assert!(ran.stderr.contains("4 |     brust: 5\n"), "{}", ran.stderr);
    assert!(!ran.stderr.contains('\u{1b}'), "no colours into a pipe");
}

#[test]
fn the_worst_file_makes_the_exit_status() {
    let dir = tempfile::tempdir().unwrap();
    let good = written(dir.path(), "good.toml", "[[rules]]\nname = \"all\"\nlimit = \"9/s\"\n");
    let bad = written(dir.path(), "bad.yaml", "rules: [{ name: all, limit: 9/fortnight }]\n");
    let absent = dir.path().join("absent.yaml");
    let (good, bad, absent) = (good.as_str(), bad.as_str(), absent.to_str().unwrap());

    assert_eq!(run(&["validate", good, good]).status, 0);
    let mixed = run(&["validate", bad, good]);
    assert_eq!(mixed.status, 1);
    assert_eq!(mixed.stdout, format!("{good}: ok (1 rule)\n"), "the others are validated too");
    let unreadable = run(&["validate", bad, absent, good]);
    assert_eq!(unreadable.status, 2);
    assert!(unreadable.stderr.contains("error: the file cannot be read: "));
    assert_eq!(run(&["validate", dir.path().to_str().unwrap()]).status, 2);
    assert_eq!(run(&["validate"]).status, 2);
}

#[test]
fn a_directory_of_limits_for_envoy_is_validated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let limit = "descriptors: [{ key: a, rate_limit: { unit: day, requests_per_unit: 5 } }]";
    written(dir.path(), "a.yaml", &format!("domain: a\n{limit}\n"));
    let ran = run(&["validate", "--envoy-config", path]);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    assert_eq!(ran.stdout, format!("{path}: ok (1 limit)\n"));
    let other = tempfile::tempdir().unwrap();
    let beside = written(other.path(), "tollgate.yaml", "store: { kind: memory }\n");
    let ran = run(&["validate", &beside, "--envoy-config", path]);
    assert_eq!(ran.stdout, format!("{beside}: ok (0 rules)\n{path}: ok (1 limit)\n"));
    assert_eq!(run(&["validate", &beside]).status, 1, "alone it needs rules");

    let file =
        written(dir.path(), "b.yaml", &format!("domain: b\n{}\n", limit.replace("day", "dya")));
    let ran = run(&["validate", "--envoy-config", path]);
    assert_eq!((ran.status, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.contains(&format!("{file}:2:")), "{}", ran.stderr);
    assert!(ran.stderr.contains("error: `unit` cannot be `dya`\n"), "{}", ran.stderr);

    let none = format!("{path}/none");
    assert_eq!(run(&["validate", "--envoy-config", &none]).status, 2);
    assert_eq!(run(&["validate"]).status, 2);
}
