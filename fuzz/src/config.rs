//! Configuration files, in YAML and in TOML.

use tollgate_config::Config;
use tollgate_core::Attributes;

/// Checks that a file is refused with errors that point into it, or gives rules that can be asked.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for name in ["tollgate.yaml", "tollgate.toml"] {
        match Config::parse(&text, name) {
            Ok(config) => {
                let request = Attributes::from([("ip", "192.0.2.1"), ("path", "/a"), ("id", "7")]);
                for rule in config.rules.iter() {
                    let request = request.clone().with_domain(rule.domain().to_owned());
                    let applied = config.rules.charges(&request).count();
                    assert!(applied <= config.rules.len(), "{text:?}");
                }
                assert!(!config.rules.is_empty(), "accepted without rules: {text:?}");
            }
            Err(errors) => {
                assert!(errors.len() > 0, "refused without an error: {text:?}");
                let lines = text.lines().count().max(1);
                for error in errors.iter().chain(errors.warnings()) {
                    let in_text = (1..=lines + 1).contains(&error.line()) && error.column() > 0;
                    assert!(in_text, "{}:{} of {text:?}", error.line(), error.column());
                    assert!(!error.message().is_empty(), "{text:?}");
                }
                assert!(!errors.to_string().is_empty(), "{text:?}");
                assert!(!errors.render(true).is_empty(), "{text:?}");
            }
        }
    }
}
