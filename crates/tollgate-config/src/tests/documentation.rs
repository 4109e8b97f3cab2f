//! `docs/configuration.md` says what is.

use std::fs;
use std::path::Path;

use crate::decode::{SHAPES, envoy};
use crate::{Config, EnvoyLimits};

fn documentation() -> String {
    page("configuration.md")
}

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    fs::read_to_string(path).unwrap()
}

#[test]
fn every_field_for_envoy_is_documented() {
    let text = page("envoy.md");
    for shape in envoy::SHAPES {
        for field in shape.fields {
            assert!(text.contains(&format!("`{field}`")), "{}: {field}", shape.what);
        }
    }
}

#[test]
fn every_block_of_the_page_on_envoy_parses_without_a_warning() {
    let text = page("envoy.md");
    let mut blocks = 0;
    for block in text.split("```yaml\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let indent = " ".repeat(block.len() - block.trim_start().len());
        let block = block.replace(&format!("\n{indent}"), "\n");
        let block = block.trim_start();
        if block.starts_with("domain:") {
            let limits = EnvoyLimits::parse(block, "t.yaml").unwrap_or_else(|e| panic!("{e}"));
            assert!(limits.warnings.is_empty(), "{}", limits.warnings);
        } else {
            let config = Config::parse(&whole(block), "t.yaml").unwrap_or_else(|e| panic!("{e}"));
            assert!(config.warnings.is_empty(), "{}", config.warnings);
        }
        blocks += 1;
    }
    assert_eq!(blocks, 3);
}

#[test]
fn every_field_is_documented() {
    let text = documentation();
    for shape in SHAPES {
        for field in shape.fields {
            assert!(text.contains(&format!("`{field}`")), "{}: {field}", shape.what);
        }
    }
}

#[test]
fn every_block_of_the_documentation_parses_without_a_warning() {
    let text = documentation();
    let (mut yaml, mut toml) = (0, 0);
    for block in text.split("\n```").skip(1).step_by(2) {
        let (language, block) = block.split_once('\n').unwrap();
        let name = match language {
            "yaml" => "t.yaml",
            "toml" => "t.toml",
            _ => continue,
        };
        let whole = whole(block);
        let config =
            Config::parse(&whole, name).unwrap_or_else(|errors| panic!("{whole}\n{errors}"));
        assert!(config.warnings.is_empty(), "{}", config.warnings);
        *(if language == "yaml" { &mut yaml } else { &mut toml }) += 1;
    }
    assert!(yaml >= 8 && toml >= 1, "{yaml} {toml}");
}

/// Completes an excerpt of a file: fields of a rule, rules, or sections without rules.
fn whole(block: &str) -> String {
    let first = block.lines().find(|line| !line.trim_start().starts_with('#')).unwrap();
    let first = first.split([':', '=']).next().unwrap().trim();
    let rule = SHAPES.last().unwrap();
    if first.starts_with("- ") {
        return format!("rules:\n{block}");
    }
    if rule.fields.contains(&first) {
        let fields: String = block.lines().map(|line| format!("    {line}\n")).collect();
        let has = |field: &str| block.lines().any(|line| line.starts_with(field));
        let name = if has("name:") { "" } else { "    name: a\n" };
        let limit = if has("limit:") { "" } else { "    limit: 20/min\n" };
        return format!("rules:\n  -\n{fields}{name}{limit}");
    }
    if block.contains("rules") {
        block.to_owned()
    } else {
        format!("{block}\nrules: [{{ name: a, limit: 1/s }}]")
    }
}
