//! Files that are large, deep, damaged or not text at all.

use std::fs;

use proptest::prelude::*;

use super::errors;
use crate::config::text_from;
use crate::{Config, ConfigErrors};

#[test]
fn a_hundred_mistakes_are_shown_and_the_rest_is_counted() {
    let rules = |count: usize| -> String {
        (0..count).fold("rules:\n".to_owned(), |text, i| {
            text + &format!("  - {{ name: r{i}, limit: 0/s }}\n")
        })
    };
    let shown = errors(&rules(100));
    assert_eq!((shown.len(), shown.render(false).contains("not shown")), (100, false));
    let shown = errors(&rules(103));
    assert_eq!(shown.len(), 100);
    assert!(shown.to_string().ends_with("\n\nerror: 3 more mistakes not shown"));
}

#[test]
fn an_alias_that_repeats_a_mistake_reports_it_once() {
    let text = "rules:\n  - { name: a, limit: &l 0/s }\n  - { name: b, limit: *l }\n";
    assert_eq!(errors(text).len(), 1);
}

#[test]
fn aliases_cannot_blow_up_a_file() {
    // The billion laughs: nine levels of nine aliases each.
    let mut text = "a: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        text += &format!("k{level}: &a{level} [{aliases}]\n");
    }
    let shown = errors(&text);
    let last = shown.iter().last().unwrap();
    assert_eq!(last.message(), "the aliases up to this one repeat too much");
    assert_eq!(last.line(), 5);

    // A chain of aliases nests deeper than any bracket.
    let mut text = "a: &a0 [x]\n".to_owned();
    for level in 1..100 {
        text += &format!("k{level}: &a{level} [*a{}]\n", level - 1);
    }
    let shown = errors(&text);
    assert_eq!(shown.iter().last().unwrap().message(), "nested more than 32 levels deep");
}

#[test]
fn depth_is_bounded_in_both_formats() {
    for depth in [33, 1_000, 100_000] {
        for text in ["[", "{ a: ", "- ", "? ", "[{ a: "].map(|open| open.repeat(depth)) {
            let shown = errors(&text[..text.len().min(Config::SIZE_MAX)]);
            assert_eq!(shown.len(), 1, "{}", &text[..10]);
            assert_eq!(shown.iter().next().unwrap().message(), "nested more than 32 levels deep");
        }
        let block: String = (0..depth.min(1_000)).map(|i| " ".repeat(i) + "a:\n").collect();
        assert_eq!(errors(&block).iter().next().unwrap().line(), 33);
        for toml in [format!("a = {}", "[".repeat(depth)), "a.".repeat(depth) + "a = 1"] {
            assert!(Config::parse(&toml, "t.toml").is_err());
        }
    }
}

#[test]
fn a_file_has_at_most_1_mib() {
    let rule = "rules: [{ name: a, limit: 1/s }]\n#";
    let largest = rule.to_owned() + &"x".repeat(Config::SIZE_MAX - rule.len());
    assert!(Config::parse(&largest, "t.yaml").is_ok());
    let directory = tempfile::tempdir().unwrap();
    for size in [Config::SIZE_MAX + 1, 10 << 20] {
        let text = largest.clone() + &"x".repeat(size - largest.len());
        let path = directory.path().join("large.yaml");
        fs::write(&path, &text).unwrap();
        for error in [errors(&text), Config::read(&path).unwrap_err()] {
            assert_eq!(
                error.iter().next().unwrap().message(),
                "the file is larger than 1048576 bytes"
            );
        }
    }
}

#[test]
fn long_lines_are_cut() {
    let mistakes = "{ name: a, limit: 0/s, brust: 1 }, ".repeat(29_000);
    let text = format!("rules: [{mistakes}]");
    assert!((1_000_000..=Config::SIZE_MAX).contains(&text.len()));
    let shown = errors(&text);
    assert_eq!(shown.len(), 100);
    let longest = |errors: &ConfigErrors| errors.render(false).lines().map(str::len).max().unwrap();
    assert!(longest(&shown) < 600);

    let long = "x".repeat(1_000_000);
    for text in [
        format!("rules: [{{ name: {long}, limit: 1/s }}]"),
        format!("rules: [{{ name: a, limit: {long} }}]"),
        format!("rules: [{{ name: a, limit: 1/s, burst: {long} }}]"),
        format!("rules: [{{ name: a, limit: 1/s, key: *{long} }}]"),
        format!("rules: [{{ name: a, limit: 1/s, missing: {long} }}]"),
        format!("{long}: 1\nrules: [{{ name: a, limit: 1/s }}]"),
        format!("store: {{ kind: redis, timeout: {long} }}\nrules: [{{ name: a, limit: 1/s }}]"),
    ] {
        let shown = errors(&text);
        assert!(longest(&shown) < 600, "{}", &text[..60]);
        assert!(shown.iter().all(|error| error.to_string().len() < 600));
    }
}

#[test]
fn files_that_cannot_be_read_say_why() {
    let directory = tempfile::tempdir().unwrap();
    let error = Config::read(directory.path()).unwrap_err();
    assert_eq!(error.iter().next().unwrap().message(), "this is a directory, not a file");

    let absent = directory.path().join("absent.yaml");
    let errors = Config::read(&absent).unwrap_err();
    let error = errors.iter().next().unwrap();
    assert!(error.message().starts_with("the file cannot be read: No such file"), "{error}");
    assert_eq!((error.line(), error.column()), (1, 1));
    assert_eq!(error.file(), absent.to_str().unwrap());
    assert!(errors.to_string().contains(absent.to_str().unwrap()), "{errors}");
}

/// Checks what holds for every text: no panic, and mistakes only at places in the file.
fn holds(bytes: &[u8], name: &str) {
    let lines = String::from_utf8_lossy(bytes).matches('\n').count() + 1;
    let found = match text_from(bytes.to_vec(), name).and_then(|text| Config::parse(&text, name)) {
        Ok(config) => {
            assert!(!config.rules.is_empty());
            config.warnings.iter().cloned().collect::<Vec<_>>()
        }
        Err(errors) => {
            assert!(errors.len() >= 1);
            assert!(!errors.render(true).is_empty());
            errors.iter().chain(errors.warnings()).cloned().collect()
        }
    };
    for error in found {
        assert!((1..=lines).contains(&error.line()), "{error}");
        let shown = error.render(false);
        let place = format!("{name}:{}:{}\n", error.line(), error.column());
        let is_located = shown.contains(&place) || error.message().contains("UTF-16");
        assert!(!error.message().is_empty() && is_located, "{shown}");
    }
}

proptest! {
    #[test]
    fn any_bytes_give_a_configuration_or_mistakes_in_the_file(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        holds(&bytes, "t.yaml");
        holds(&bytes, "t.toml");
    }

    #[test]
    fn any_text_of_the_signs_of_yaml_is_answered(text in "([-:,?*&!|>@`\"'{}\\[\\]#% \\t\n\r~<a1é]|rules|limit|name|: |\n  - ){0,60}") {
        holds(text.as_bytes(), "t.yaml");
        holds(text.as_bytes(), "t.toml");
    }

    #[test]
    fn any_damage_to_a_good_file_is_answered(
        which in 0..9_usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), 0..4_usize, ".{0,3}"), 1..6),
    ) {
        let (text, name) = [
            (Config::EXAMPLE, "t.yaml"),
            (include_str!("../../fixtures/good/everything.yaml"), "t.yaml"),
            (include_str!("../../fixtures/good/aliases.yaml"), "t.yaml"),
            (include_str!("../../fixtures/good/everything.toml"), "t.toml"),
            (include_str!("../../fixtures/good/exceptions.yaml"), "t.yaml"),
            (include_str!("../../fixtures/good/costs.yaml"), "t.yaml"),
            (include_str!("../../fixtures/good/algorithms.yaml"), "t.yaml"),
            (include_str!("../../fixtures/good/shadow_limits.yaml"), "t.yaml"),
            (include_str!("../../fixtures/bad/toml_exceptions.toml"), "t.toml"),
        ][which];
        let mut characters: Vec<char> = text.chars().collect();
        for (at, removed, inserted) in damage {
            let at = at.index(characters.len());
            let end = (at + removed).min(characters.len());
            characters.splice(at..end, inserted.chars());
        }
        holds(characters.into_iter().collect::<String>().as_bytes(), name);
    }
}
