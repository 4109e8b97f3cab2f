//! Every file under `fixtures/envoy` gives exactly what stands in the `.expected` file beside it.
//!
//! `BLESS=1 cargo test -p tollgate-config --test envoy_fixtures` writes them anew; read the
//! difference before it is committed.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "these are tests")]

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use tollgate_config::{EnvoyAmount, EnvoyDescriptor, EnvoyLimits};

#[test]
fn every_mistake_is_shown_with_its_line_and_what_to_write() {
    let count = compare("fixtures/envoy/bad", |text, name| {
        EnvoyLimits::parse(text, name).expect_err("the file is wrong").to_string()
    });
    assert!(count >= 12, "{count} files");
}

#[test]
fn good_files_give_what_they_say() {
    let count = compare("fixtures/envoy/good", |text, name| {
        let limits = EnvoyLimits::parse(text, name).unwrap_or_else(|errors| panic!("{errors}"));
        let mut dumped = String::new();
        for domain in &limits.domains {
            writeln!(dumped, "domain {}", domain.name).unwrap();
            dump(&domain.descriptors, 1, &mut dumped);
        }
        write!(dumped, "{}", limits.warnings).unwrap();
        dumped.trim_end().to_owned()
    });
    assert!(count >= 2, "{count} files");
}

#[test]
fn a_directory_is_read_file_by_file_and_a_domain_has_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    let errors = EnvoyLimits::read(dir.path()).unwrap_err();
    assert!(errors.to_string().starts_with("error: the directory has no file *.yaml"), "{errors}");

    write("a.yaml", "domain: a\ndescriptors: [{ key: k }]\n");
    write("b.yml", "domain: b\n");
    write(".hidden.yaml", "domain: a\n");
    write("notes.txt", "no YAML: [\n");
    fs::create_dir(dir.path().join("more.yaml")).unwrap();
    let limits = EnvoyLimits::read(dir.path()).unwrap();
    let names: Vec<_> = limits.domains.iter().map(|domain| domain.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let message = "not read in this directory: `more.yaml`, `notes.txt`";
    let warned: Vec<_> = limits.warnings.iter().map(|warning| warning.message()).collect();
    assert_eq!(warned, [message]);
    assert!(limits.warnings.iter().all(|warning| warning.is_warning()));
    assert!(limits.warnings.to_string().starts_with(&format!("warning: {message}\n")));

    write("c.yaml", "domain: b\ndescriptors: [{ kye: k }]\n");
    write("d.yaml", "domain: a\n");
    let errors = EnvoyLimits::read(dir.path()).unwrap_err();
    let lines: Vec<_> = errors
        .iter()
        .map(|error| {
            let file = error.file().rsplit('/').next().unwrap();
            format!("{file}:{}: {}", error.line(), error.message())
        })
        .collect();
    assert_eq!(
        lines,
        [
            "c.yaml:1: the domain `b` has a file already",
            "c.yaml:2: a descriptor has no field `kye`",
            "c.yaml:2: a descriptor has no `key`",
            "d.yaml:1: the domain `a` has a file already",
        ]
    );
    let missing = EnvoyLimits::read(dir.path().join("none")).unwrap_err();
    assert!(missing.to_string().contains("the directory cannot be read"), "{missing}");
}

fn dump(descriptors: &[EnvoyDescriptor], depth: usize, text: &mut String) {
    for one in descriptors {
        let indent = "  ".repeat(depth);
        let value = one.value.as_deref().unwrap_or("(any)");
        let switches = [
            ("shadow_mode", one.shadow_mode),
            ("quota_mode", one.quota_mode),
            ("share_threshold", one.share_threshold),
        ];
        let on: Vec<_> = switches.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
        writeln!(text, "{indent}{} = {value} {on:?}", one.key).unwrap();
        if let Some(limit) = &one.limit {
            let amount = match limit.amount {
                EnvoyAmount::Unlimited => "unlimited".to_owned(),
                EnvoyAmount::PerUnit { requests, unit, quota } => match quota {
                    Some(quota) => {
                        format!("{requests} per {unit:?}: {quota}, {:?}", quota.algorithm())
                    }
                    None => format!("{requests} per {unit:?}"),
                },
            };
            writeln!(text, "{indent}  limit {amount}").unwrap();
            let (name, policy) = (&limit.name, limit.on_store_failure);
            writeln!(text, "{indent}  name {name:?}, replaces {:?}, {policy:?}", limit.replaces)
                .unwrap();
        }
        if let Some(metadata) = &one.metadata {
            writeln!(text, "{indent}  metadata {metadata:?}").unwrap();
        }
        dump(&one.descriptors, depth + 1, text);
    }
}

/// Compares every file of a directory with its `.expected` file, and returns how many there were.
fn compare(directory: &str, actual: impl Fn(&str, &str) -> String) -> usize {
    let bless = std::env::var_os("BLESS").is_some();
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    paths.sort();
    let mut differing = Vec::new();
    for path in &paths {
        let expected = PathBuf::from(format!("{}.expected", path.display()));
        let name = path.file_name().unwrap().to_str().unwrap();
        let actual = actual(&fs::read_to_string(path).unwrap(), name) + "\n";
        if bless {
            fs::write(&expected, &actual).unwrap();
        }
        if fs::read_to_string(&expected).unwrap_or_default() != actual {
            differing.push(format!("{}:\n{actual}", path.display()));
        }
    }
    assert!(differing.is_empty(), "not as expected: {}", differing.join("\n"));
    paths.len()
}
