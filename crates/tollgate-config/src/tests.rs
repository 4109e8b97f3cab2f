//! What a caller sees of a configuration.

use tollgate_core::Attributes;

use super::*;

mod documentation;
mod hostile;
mod rules;

fn errors(text: &str) -> ConfigErrors {
    Config::parse(text, "t.yaml").expect_err("the text is wrong")
}

/// Returns the keys of the buckets that a request is charged to.
fn charged(config: &Config, pairs: &[(&'static str, &'static str)]) -> Vec<String> {
    let mut attributes = Attributes::new();
    for (name, value) in pairs {
        attributes.insert(*name, *value);
    }
    config.rules.charges(&attributes).map(|applied| applied.key).collect()
}

#[test]
fn the_example_has_the_documented_rules_and_no_warning() {
    let config = Config::parse(Config::EXAMPLE, "example.yaml").unwrap();
    assert!(config.warnings.is_empty(), "{}", config.warnings);
    assert_eq!(config.listen, Listen::default());
    assert_eq!(config.store, StoreConfig::default());
    assert!(config.trusted_proxies.is_empty());

    let login = [("path", "/login"), ("method", "POST"), ("ip", "203.0.113.7")];
    assert_eq!(
        charged(&config, &login),
        ["default:everything", "default:login-per-ip:ip=203.0.113.7"]
    );
    let api = [("path", "/api/v1/orders"), ("method", "GET"), ("account", "7")];
    assert_eq!(charged(&config, &api), ["default:everything", "default:api-per-account:account=7"]);

    let quotas: Vec<_> = config
        .rules
        .iter()
        .map(|rule| format!("{} {} shadow={}", rule.name(), rule.quota(), rule.is_shadow()))
        .collect();
    assert_eq!(
        quotas,
        [
            "everything 1000/s burst 1000 shadow=true",
            "login-per-ip 20/min burst 20 shadow=false",
            "api-per-account 100/s burst 200 shadow=false",
        ]
    );
    assert_eq!(Config::example().rules.len(), 3);
}

#[test]
fn yaml_and_toml_of_one_content_give_one_configuration() {
    let yaml = "
store: { kind: redis, url: redis://127.0.0.1:6379, timeout: 20ms, breaker: { failures: 3 } }
rules: [{ name: a, match: { path: [/x, /y] }, key: ip, limit: 5/s, burst: 7, local_share: 0.25 }]
";
    let toml = r#"
store = { kind = "redis", url = "redis://127.0.0.1:6379", timeout = "20ms", breaker = { failures = 3 } }
[[rules]]
name = "a"
match.path = ["/x", "/y"]
key = "ip"
limit = "5/s"
burst = 7
local_share = 0.25
"#;
    let yaml = Config::parse(yaml, "a.yaml").unwrap();
    let toml = Config::parse(toml, "a.toml").unwrap();
    assert_eq!(format!("{yaml:?}"), format!("{toml:?}"));
}

#[test]
fn the_place_in_the_rendering_is_the_place_in_the_error() {
    let text = "# \u{e9}\u{4e16}\u{754c}\n\nrules:\n  - { name: \"\u{e9}\", limit: 20/m }\n";
    let errors = errors(text);
    let places: Vec<_> = errors.iter().map(|error| (error.line(), error.column())).collect();
    assert_eq!(places, [(4, 13), (4, 25)]);
    let shown = errors.to_string();
    assert!(shown.contains("t.yaml:4:13") && shown.contains("t.yaml:4:25"), "{shown}");
}

#[test]
fn a_mistake_fits_one_line_of_a_log() {
    let errors = errors("rules:\n  - name: a\n    limit: 20/min\n    brust: 5\n");
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        ["t.yaml:4:5: a rule has no field `brust`: did you mean `burst`?: its fields are `name`, \
          `domain`, `match`, `key`, `limit`, `burst`, `algorithm`, `cells`, `lease`, `cost`, \
          `overrides`, `unlimited`, `blocked`, `on_store_failure`, `local_share`, `missing`, \
          `shadow`, `shadow_limit`, `shadow_burst`, `hot_keys`"]
    );
    let empty = self::errors("rules: []");
    assert_eq!(
        empty.iter().next().unwrap().to_string(),
        "t.yaml:1:1: `rules` is empty, so every request would be allowed: write at least one rule"
    );
}

#[test]
fn colours_change_nothing_but_colours() {
    let errors = errors("rules:\n  - name: a\n    limit: 20/min\n    limit: 5\n    burst: 0\n");
    assert_eq!(errors.len(), 2);
    let (plain, color) = (errors.render(false), errors.render(true));
    assert!(!plain.contains('\u{1b}'));
    let mut stripped = String::new();
    let mut rest = color.as_str();
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        stripped.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    stripped.push_str(rest);
    assert_ne!(color, plain);
    assert_eq!(stripped, plain);
}

#[test]
fn no_form_of_an_error_shows_a_password() {
    for store in [
        "kind: redis, url: \"redis://u:hunter2@h:x\"",
        "kind: redis, url: \"rediss://u:hunter2@h/x\"",
        "kind: redis_cluster, urls: [\"redis://u:hunter2@h/1\", \"redis://hunter2@h:x\"]",
        "kind: redis_sentinel, urls: [\"redis://u:hunter2@h\"]",
        "kind: redis, url: \"u:hunter2@h\"",
        "kind: redis, url: \"redis://u:hunter2@h\", brust: 1",
        "kind: redis, url: \"redis://u:hunter2@h\"\"",
        "kind: memory, url: \"redis://u:hunter2@h\"",
        "kind: redis, url: \"redis://h\", password: hunter2, brust: 1",
        "kind: redis, url: \"redis://u:p@h\", password: hunter2",
        "kind: memory, password: hunter2",
        "kind: redis, url: \"redis://h\", redis_password: hunter2",
    ] {
        let errors = errors(&format!("store: {{ {store} }}\nrules: [{{ name: a, limit: 1/s }}]"));
        let forms = [errors.render(true), errors.to_string(), format!("{errors:?}")];
        for form in forms.iter().chain(&errors.iter().map(ToString::to_string).collect::<Vec<_>>())
        {
            assert!(!form.contains("hunter2"), "{form}");
        }
    }
    for store in [
        "kind: redis, url: \"redis://u:hunter2@h\"",
        "kind: redis, url: \"redis://h\", password: hunter2",
        "kind: redis_cluster, urls: \"rediss://u:hunter2@h\"",
    ] {
        let text = format!("store: {{ {store} }}\nrules: [{{ name: a, limit: 1/s }}]");
        let config = Config::parse(&text, "t.yaml").unwrap();
        assert!(!format!("{config:?}").contains("hunter2"));
        let StoreConfig::Redis(redis) = &config.store else { panic!("{config:?}") };
        assert!(!redis.servers.to_string().contains("hunter2"));
    }
}
