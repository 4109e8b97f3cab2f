//! The text form of a hold: its parts, each after its length, in base64, and a check sum.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tollgate_core::{Attributes, Charge, Ticket};

use crate::hold::{HeldRule, Hold, HoldKind};

/// The hex digits of the check sum.
const CHECK_LEN: usize = 12;

/// A text that is not a [`Hold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldError(());

impl fmt::Display for HoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an id that was handed out: pass it back as it was received")
    }
}

impl std::error::Error for HoldError {}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Parts::default();
        parts.push(match self.kind {
            HoldKind::Slots => "s",
            HoldKind::Units => "u",
        });
        parts.push(&self.ticket.to_string());
        parts.push(self.request.domain());
        parts.push(&self.request.len().to_string());
        for (name, value) in self.request.iter() {
            parts.push(name);
            parts.push(value);
        }
        for rule in &self.rules {
            parts.push(&rule.name);
            match rule.shard {
                None => parts.push(&rule.factor.to_string()),
                Some(shard) => parts.push(&format!("{}@{shard}", rule.factor)),
            }
        }
        let body = URL_SAFE_NO_PAD.encode(parts.text);
        write!(f, "{body}.{}", &check_sum(&body)[..CHECK_LEN])
    }
}

impl FromStr for Hold {
    type Err = HoldError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Only what would be written again as it is was handed out.
        parse(text).filter(|hold| hold.to_string() == text).ok_or(HoldError(()))
    }
}

fn check_sum(body: &str) -> String {
    Ticket::of(body).to_string()
}

fn parse(text: &str) -> Option<Hold> {
    let (body, check) = text.split_once('.')?;
    if text.len() > Hold::TEXT_LEN_MAX || check != &check_sum(body)[..CHECK_LEN] {
        return None;
    }
    let parts = String::from_utf8(URL_SAFE_NO_PAD.decode(body).ok()?).ok()?;
    let mut parts = Parts::split(&parts)?.into_iter();
    let kind = match parts.next()? {
        "s" => HoldKind::Slots,
        "u" => HoldKind::Units,
        _ => return None,
    };
    let ticket = parts.next()?.parse().ok()?;
    let mut request = Attributes::new().with_domain(parts.next()?.to_owned());
    for _ in 0..parts.next()?.parse().ok()? {
        request.insert(parts.next()?.to_owned(), parts.next()?);
    }
    let mut rules: Vec<HeldRule> = Vec::new();
    while let Some(name) = parts.next() {
        if rules.iter().any(|rule| rule.name == name) {
            return None;
        }
        let factor = parts.next()?;
        let (factor, shard) = match factor.split_once('@') {
            None => (factor, None),
            Some((factor, shard)) => (factor, Some(shard.parse().ok()?)),
        };
        rules.push(HeldRule { name: name.to_owned(), factor: factor.parse().ok()?, shard });
    }
    (1..=Charge::COUNT_MAX).contains(&rules.len()).then_some(Hold { kind, ticket, request, rules })
}

/// Texts one after the other, each after its length and a colon.
#[derive(Default)]
struct Parts {
    text: String,
}

impl Parts {
    fn push(&mut self, part: &str) {
        self.text.push_str(&part.len().to_string());
        self.text.push(':');
        self.text.push_str(part);
    }

    fn split(mut text: &str) -> Option<Vec<&str>> {
        let mut parts = Vec::new();
        while !text.is_empty() {
            let (len, rest) = text.split_once(':')?;
            let (part, rest) = rest.split_at_checked(len.parse().ok()?)?;
            parts.push(part);
            text = rest;
        }
        Some(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold() -> Hold {
        let rule = |name: &str, factor, shard| HeldRule { name: name.to_owned(), factor, shard };
        Hold {
            kind: HoldKind::Units,
            ticket: Ticket::new(7),
            request: Attributes::from([("ip", "\u{fc}:1"), ("account", "")]).with_domain("shop"),
            rules: vec![rule("a", 1, None), rule("b", u64::MAX, None), rule("c", 1, Some(63))],
        }
    }

    fn sealed(parts: &str) -> String {
        let body = URL_SAFE_NO_PAD.encode(parts);
        format!("{body}.{}", &check_sum(&body)[..CHECK_LEN])
    }

    #[test]
    fn the_text_form_parses_back_and_shows_no_key() {
        let text = hold().to_string();
        assert_eq!(text.parse(), Ok(hold()));
        assert!(!text.contains("shop"), "{text}");
    }

    #[test]
    fn a_text_that_was_changed_in_any_place_is_refused() {
        let good = hold().to_string();
        for index in 0..good.len() {
            for other in [b'A', b'0', b'.', b'_'] {
                let mut bad = good.clone().into_bytes();
                if bad[index] != other {
                    bad[index] = other;
                    let bad = String::from_utf8(bad).unwrap();
                    assert!(bad.parse::<Hold>().is_err(), "{bad}");
                }
            }
        }
        for bad in [good.to_uppercase(), format!("{good} "), good[1..].to_owned()] {
            assert!(bad.parse::<Hold>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_text_of_our_form_that_holds_nothing_or_one_rule_twice_is_refused() {
        let ticket = Ticket::new(7);
        let start = format!("1:s32:{ticket}7:default1:0");
        assert!(sealed(&format!("{start}1:a1:1")).parse::<Hold>().is_ok());
        assert!(sealed(&format!("{start}1:a3:1@0")).parse::<Hold>().is_ok());
        let many: String = (10..75).map(|number| format!("2:{number}1:1")).collect();
        for bad in [
            start.clone(),
            format!("{start}1:a1:11:a1:1"),
            format!("{start}1:a"),
            format!("{start}1:a2:+1"),
            format!("{start}1:a4:1@+1"),
            format!("{start}1:a5:1@256"),
            format!("{start}01:a1:1"),
            format!("{start}9:a1:1"),
            format!("{start}{many}"),
            start.replace("1:0", "1:2"),
            String::new(),
        ] {
            assert!(sealed(&bad).parse::<Hold>().is_err(), "{bad}");
        }
        let long = Hold { request: Attributes::from([("a", &*"x".repeat(20_000))]), ..hold() };
        assert!(long.to_string().parse::<Hold>().is_err());
    }
}
