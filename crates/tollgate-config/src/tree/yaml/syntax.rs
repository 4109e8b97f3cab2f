//! Syntax errors of YAML in words that say what to write.

use std::ops::Range;

use granit_parser::{ErrorKind, ScanError};

use crate::mistake::{Mistake, quoted};

/// Says what a syntax error is. The parser stops at the first one. `bracket` is where the innermost
/// list or mapping in brackets begins.
pub(super) fn mistake(error: &ScanError, text: &str, bracket: Option<usize>) -> Mistake {
    let start = error.marker().byte_offset().unwrap_or(0);
    let span = start..start;
    match error.kind() {
        ErrorKind::UnclosedQuotedScalar | ErrorKind::DocumentIndicatorInQuotedScalar => {
            Mistake::new(span, "the quote is not closed")
                .label("opened here")
                .help("close the text with the same quote")
        }
        ErrorKind::TabInIndentation
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabNotAllowed
        | ErrorKind::TabInPlainScalar
        | ErrorKind::TabAtBlockScalarStart => {
            Mistake::new(span, "a tab cannot indent YAML").help("indent with spaces")
        }
        ErrorKind::RecursionLimitExceeded => too_deep(span),
        ErrorKind::MissingAnchorOrAliasName => without_name(span, text),
        ErrorKind::UnexpectedCharacter { character } => {
            let shown = quoted(&character.to_string());
            Mistake::new(span, format!("text without quotes cannot begin with {shown}"))
                .help("put the text in quotes")
        }
        ErrorKind::UnclosedFlowCollection { open } => {
            Mistake::new(span, format!("`{open}` is not closed"))
                .help(format!("close it with `{}`", closing(*open)))
        }
        ErrorKind::MismatchedFlowCollectionEnd { open, close } => Mistake::new(
            span,
            format!("`{open}` is closed by `{close}` instead of `{}`", closing(*open)),
        ),
        ErrorKind::ExpectedFlowSequenceSeparator
        | ErrorKind::ExpectedFlowMappingSeparator
        | ErrorKind::UnexpectedEofFlowSequence
        | ErrorKind::UnexpectedEofFlowMapping
        | ErrorKind::UnexpectedEofImplicitFlowMapping
        | ErrorKind::InvalidColonPlacement
        | ErrorKind::InvalidFlowScalarIndent => {
            let mistake = Mistake::new(span, "a `,` or the closing bracket is missing before this")
                .help("close lists with `]` and mappings with `}`");
            match bracket {
                Some(start) => mistake.also(start..start + 1, "opened here"),
                None => mistake,
            }
        }
        ErrorKind::MappingValueNotAllowed => Mistake::new(span, "a `:` cannot stand here").help(
            "indent the fields of one mapping alike, and put text that contains `: ` in quotes",
        ),
        ErrorKind::ExpectedBlockMappingKey
        | ErrorKind::InvalidTrailingSingleQuotedScalar
        | ErrorKind::InvalidTrailingDoubleQuotedScalar => {
            Mistake::new(span, "a new field was expected here").help(
                "indent the fields of one mapping alike, and put values such as \"[::1]:8080\" \
                 wholly in quotes",
            )
        }
        ErrorKind::SimpleKeyExpected => {
            Mistake::new(span, "this line has no `:`").help("write fields as `name: value`")
        }
        kind => Mistake::new(span, format!("YAML: {kind}")),
    }
}

pub(super) fn too_deep(span: Range<usize>) -> Mistake {
    let message = format!("nested more than {} levels deep", super::DEPTH_MAX);
    Mistake::new(span, message).help("no field needs more than 4 levels")
}

pub(super) fn unknown_alias(span: Range<usize>, name: &str) -> Mistake {
    let message = format!("no anchor has the name {}", quoted(name));
    // A name that can be cut is none that anybody meant as a pattern.
    let pattern: String = name.chars().take(60).collect();
    let help = format!("put a pattern that begins with `*` in quotes: \"*{pattern}\"");
    Mistake::new(span, message).help(help)
}

fn without_name(span: Range<usize>, text: &str) -> Mistake {
    let sign = text.get(span.start..).and_then(|rest| rest.chars().next());
    let before = text.get(..span.start).and_then(|rest| rest.chars().next_back());
    if sign == Some('&') || before == Some('&') {
        Mistake::new(span, "text without quotes cannot begin with `&`")
            .help("put the text in quotes")
    } else {
        Mistake::new(span, "text without quotes cannot begin with `*`")
            .help("put a pattern that begins with `*` in quotes: \"*\"")
    }
}

fn closing(open: char) -> char {
    if open == '[' { ']' } else { '}' }
}
