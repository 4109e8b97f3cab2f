//! Text, whole numbers, booleans and words of a fixed set.

use std::ops::RangeInclusive;

use crate::decode::Decoder;
use crate::decode::fields::meant;
use crate::mistake::{Mistake, listed, quoted};
use crate::tree::{Node, Scalar, Value};

impl Decoder<'_> {
    /// Reports that `field` must be something else than it is.
    pub(super) fn expected(&mut self, node: &Node, field: &str, what: &str, help: Option<&str>) {
        if node.value == Value::Broken {
            return;
        }
        let message = format!("{field} must be {what}, not {}", node.kind());
        let mut mistake = Mistake::new(node.span.clone(), message);
        if let Some(help) = help {
            mistake = mistake.help(help);
        }
        self.error(mistake);
    }

    /// Reads text. A number or a boolean is the text that was written.
    pub(super) fn text<'n>(&mut self, node: &'n Node, field: &str, what: &str) -> Option<&'n str> {
        if let Value::Scalar(scalar) = &node.value {
            return Some(&scalar.text);
        }
        self.expected(node, field, what, None);
        None
    }

    pub(super) fn boolean(&mut self, node: &Node, field: &str) -> Option<bool> {
        let Value::Scalar(scalar) = &node.value else {
            self.expected(node, &format!("`{field}`"), "true or false", None);
            return None;
        };
        let boolean = scalar.boolean();
        if boolean.is_none() {
            let written = quoted(&scalar.text);
            let message = if scalar.is_quoted {
                format!("`{field}` must be true or false without quotes, not the text {written}")
            } else {
                format!("`{field}` must be true or false, not {written}")
            };
            let help = format!("for example `{}`", self.format.assign(field, "true"));
            self.error(Mistake::new(node.span.clone(), message).help(help));
        }
        boolean
    }

    /// Reads a whole number in decimal digits.
    pub(super) fn whole(&mut self, node: &Node, field: &str, example: &str) -> Option<u64> {
        let Value::Scalar(scalar) = &node.value else {
            self.expected(node, &format!("`{field}`"), "a whole number", None);
            return None;
        };
        let number = whole_number(scalar);
        if let Err((problem, instead)) = &number {
            let written = quoted(&scalar.text);
            let message = format!("`{field}` must be a whole number, not {written}");
            let help = match instead {
                Some(value) => format!("write `{}`", self.format.assign(field, value)),
                None => format!("for example `{}`", self.format.assign(field, example)),
            };
            self.error(Mistake::new(node.span.clone(), message).label(*problem).help(help));
        }
        number.ok()
    }

    /// Reads text that is not empty.
    pub(super) fn some_text(&mut self, node: &Node, field: &str) -> Option<String> {
        let text = self.text(node, &format!("`{field}`"), "text")?;
        if text.is_empty() {
            let message = format!("`{field}` is empty");
            let help = "give it a value, or remove the line to have the default";
            self.error(Mistake::new(node.span.clone(), message).help(help));
            return None;
        }
        Some(text.to_owned())
    }

    /// Reads a whole number of a range.
    pub(super) fn number(
        &mut self,
        node: &Node,
        field: &str,
        range: RangeInclusive<usize>,
    ) -> Option<usize> {
        let given = self.whole(node, field, &range.start().to_string())?;
        if let Ok(number) = usize::try_from(given)
            && range.contains(&number)
        {
            return Some(number);
        }
        let message = format!("`{field}` cannot be {given}");
        let help = format!("it must be {} to {}", range.start(), range.end());
        self.error(Mistake::new(node.span.clone(), message).help(help));
        None
    }

    /// Reads one word of a fixed set.
    pub(super) fn word(
        &mut self,
        node: &Node,
        field: &str,
        known: &[&'static str],
        synonyms: &[(&str, &'static str)],
    ) -> Option<&'static str> {
        self.word_of(node, field, known, synonyms, &listed(known))
    }

    /// Reads one of the `known` words, where `choices` is all that can be written, not only words.
    pub(super) fn word_of(
        &mut self,
        node: &Node,
        field: &str,
        known: &[&'static str],
        synonyms: &[(&str, &'static str)],
        choices: &str,
    ) -> Option<&'static str> {
        let choices = format!("it is one of {choices}");
        let Value::Scalar(Scalar { text, .. }) = &node.value else {
            self.expected(node, &format!("`{field}`"), "one word", Some(&choices));
            return None;
        };
        let found = known.iter().copied().find(|known| *known == text);
        if found.is_none() {
            let message = format!("`{field}` cannot be {}", quoted(text));
            let mut mistake = Mistake::new(node.span.clone(), message).help(choices);
            if let Some(meant) = meant(text, known, synonyms) {
                mistake = mistake.label(format!("did you mean `{meant}`?"));
            }
            self.error(mistake);
        }
        found
    }

    /// Reads a list, or a single value as a list of one.
    pub(super) fn list<'n>(&mut self, node: &'n Node) -> &'n [Node] {
        match &node.value {
            Value::Sequence(items) => items,
            _ => std::slice::from_ref(node),
        }
    }
}

/// Gives the number, or what is wrong and, if it can be guessed, what to write instead.
fn whole_number(scalar: &Scalar) -> Result<u64, (&'static str, Option<String>)> {
    let text = scalar.text.as_str();
    let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if are_digits(text) {
        let trimmed = text.trim_start_matches('0');
        return if scalar.is_quoted {
            Err(("text, because of the quotes", Some(text.to_owned())))
        } else if text.len() > 1 && text.starts_with('0') {
            let decimal = Some(trimmed.to_owned()).filter(|rest| !rest.is_empty());
            Err(("some readers of YAML take a leading 0 for octal", decimal))
        } else {
            text.parse().map_err(|_| ("it does not fit 64 bits", None))
        };
    }
    if let Some((whole, zeros)) = text.split_once('.')
        && are_digits(whole)
        && zeros.bytes().all(|byte| byte == b'0')
    {
        return Err(("a decimal number", Some(whole.to_owned())));
    }
    if text.strip_prefix('-').is_some_and(are_digits) {
        return Err(("it is negative", None));
    }
    let digits = text.replace(['_', ',', ' '], "");
    if text != digits && are_digits(&digits) {
        return Err(("digits stand without anything between them", Some(digits)));
    }
    Err(("", None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Result<u64, (&'static str, Option<String>)> {
        let scalar = Scalar { text: text.to_owned(), is_quoted: false };
        whole_number(&scalar)
    }

    #[test]
    fn only_plain_decimal_digits_are_whole_numbers() {
        assert_eq!(whole("0"), Ok(0));
        assert_eq!(whole("18446744073709551615"), Ok(u64::MAX));
        for (text, instead) in [
            ("18446744073709551616", None),
            ("-1", None),
            ("+1", None),
            ("007", Some("7")),
            ("00", None),
            ("2.0", Some("2")),
            ("2.", Some("2")),
            ("2.5", None),
            ("1e3", None),
            ("0x10", None),
            (".inf", None),
            ("1_000", Some("1000")),
            ("1,000", Some("1000")),
            ("twenty", None),
        ] {
            let (_, guess) = whole(text).unwrap_err();
            assert_eq!(guess.as_deref(), instead, "{text}");
        }
    }
}
