//! The page of guarantees names tests; this one checks that they exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The names after `prefix` that begin with `g`, digits and `_`.
fn names_after(text: &str, prefix: &str) -> BTreeSet<String> {
    let is_name = |name: &&str| {
        let id = name.split('_').next().unwrap_or_default();
        id.len() > 1 && id.starts_with('g') && id[1..].bytes().all(|byte| byte.is_ascii_digit())
    };
    let names = text.split(prefix).skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        &rest[..end.unwrap_or(rest.len())]
    });
    names.filter(is_name).map(str::to_owned).collect()
}

#[test]
fn every_test_that_the_page_of_guarantees_names_exists() {
    let page = fs::read_to_string(root().join("docs/guarantees.md")).unwrap();
    let named = names_after(&page, "`");
    let mut files = Vec::new();
    rust_files(&root().join("crates"), &mut files);
    let tests: BTreeSet<_> = files
        .iter()
        .flat_map(|file| names_after(&fs::read_to_string(file).unwrap(), "fn "))
        .collect();
    let missing: Vec<_> = named.difference(&tests).collect();
    assert!(missing.is_empty(), "docs/guarantees.md names tests that are not there: {missing:?}");
    for id in 1..=11 {
        let prefix = format!("g{id}_");
        assert!(named.iter().any(|name| name.starts_with(&prefix)), "G{id} names no test");
    }
}
