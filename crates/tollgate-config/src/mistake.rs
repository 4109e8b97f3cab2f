//! What is wrong in a file, while it is being read.

use std::ops::Range;

/// One thing that is wrong, or doubtful, at one place of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
    /// What stands beside the marked text.
    pub(crate) label: String,
    pub(crate) help: Option<String>,
    /// Another place that belongs to it, such as the first of two of one name.
    pub(crate) also: Option<(Range<usize>, String)>,
}

impl Mistake {
    pub(crate) fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), label: String::new(), help: None, also: None }
    }

    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn also(mut self, span: Range<usize>, label: impl Into<String>) -> Self {
        self.also = Some((span, label.into()));
        self
    }
}

/// Everything found in one file so far.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) errors: Vec<Mistake>,
    pub(crate) warnings: Vec<Mistake>,
    /// Errors found after [`Self::COUNT_MAX`] were kept.
    pub(crate) omitted: usize,
    /// Text that no message and no snippet may show.
    pub(crate) secrets: Vec<Range<usize>>,
}

impl Findings {
    /// The most errors, and the most warnings, that are kept of one file.
    pub(crate) const COUNT_MAX: usize = 100;

    pub(crate) fn error(&mut self, mistake: Mistake) {
        // A value that aliases repeat would otherwise be reported once per alias.
        if self.errors.contains(&mistake) {
            return;
        }
        if self.errors.len() < Self::COUNT_MAX {
            self.errors.push(mistake);
        } else {
            self.omitted += 1;
        }
    }

    pub(crate) fn warning(&mut self, mistake: Mistake) {
        if self.warnings.len() < Self::COUNT_MAX && !self.warnings.contains(&mistake) {
            self.warnings.push(mistake);
        }
    }
}

/// Writes a value of the file into a message: in backticks, on one line, cut when long.
pub(crate) fn quoted(value: &str) -> String {
    const CHARS_MAX: usize = 60;
    let mut text: String = value.chars().take(CHARS_MAX).flat_map(escaped).collect();
    if value.chars().nth(CHARS_MAX).is_some() {
        text.push_str("...");
    }
    format!("`{text}`")
}

fn escaped(character: char) -> impl Iterator<Item = char> {
    let (plain, escape) = if character.is_control() {
        (None, Some(character.escape_default()))
    } else {
        (Some(character), None)
    };
    plain.into_iter().chain(escape.into_iter().flatten())
}

/// Lists words for a help line.
pub(crate) fn listed(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
