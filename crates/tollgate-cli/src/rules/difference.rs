//! What two sets of rules differ in.

use serde_json::Value;

/// The rules that only one of two sets has, each as it is written in one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// With `-` or `+` before each, those of one name together.
    lines: Vec<String>,
    is_other_order: bool,
}

impl Difference {
    /// Compares two texts that have one rule a line.
    pub(super) fn between(before: &str, after: &str) -> Self {
        let (before, after) = (rules(before), rules(after));
        let removed: Vec<_> = before.iter().filter(|rule| !after.contains(rule)).collect();
        let mut added: Vec<_> = after.iter().filter(|rule| !before.contains(rule)).collect();
        let mut lines = Vec::new();
        for rule in removed {
            lines.push(format!("- {rule}"));
            if let Some(index) = added.iter().position(|other| name(other) == name(rule)) {
                lines.push(format!("+ {}", added.remove(index)));
            }
        }
        lines.extend(added.into_iter().map(|rule| format!("+ {rule}")));
        let is_other_order = lines.is_empty() && before != after;
        Self { lines, is_other_order }
    }

    pub(super) fn is_none(&self) -> bool {
        self.lines.is_empty() && !self.is_other_order
    }

    pub(super) fn in_words(&self) -> String {
        if self.is_none() {
            return "no difference\n".to_owned();
        }
        if self.is_other_order {
            return "the same rules in another order\n".to_owned();
        }
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

fn rules(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("- ")).collect()
}

/// Returns domain and name of a rule.
fn name(rule: &str) -> Option<(String, String)> {
    let rule: Value = serde_json::from_str(rule).ok()?;
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let domain = rule.get("domain").map_or_else(|| "default".to_owned(), text);
    Some((domain, text(rule.get("name")?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, limit: &str) -> String {
        format!("- {{\"name\": \"{name}\", \"limit\": \"{limit}\"}}\n")
    }

    #[test]
    fn a_changed_rule_stands_below_what_it_was() {
        let before = [rule("a", "1/s"), rule("b", "2/s"), rule("c", "3/s")].concat();
        let after = [rule("c", "3/s"), rule("d", "4/s"), rule("a", "9/s")].concat();
        assert_eq!(
            Difference::between(&before, &after).in_words(),
            "\
- {\"name\": \"a\", \"limit\": \"1/s\"}
+ {\"name\": \"a\", \"limit\": \"9/s\"}
- {\"name\": \"b\", \"limit\": \"2/s\"}
+ {\"name\": \"d\", \"limit\": \"4/s\"}
"
        );
    }

    #[test]
    fn the_order_of_rules_is_told_apart_from_their_contents() {
        let (one, two) = (rule("a", "1/s"), rule("b", "2/s"));
        let same = Difference::between(&one, &one);
        assert!(same.is_none());
        let turned = Difference::between(&(one.clone() + &two), &(two + &one));
        assert_eq!(turned.in_words(), "the same rules in another order\n");
        assert!(!turned.is_none());
    }
}
