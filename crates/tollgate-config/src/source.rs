//! The text of one file and the places in it.

use std::fmt;
use std::ops::Range;
use std::path::Path;

/// One configuration file in memory.
pub(crate) struct Source {
    name: String,
    text: String,
}

/// How a configuration is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Yaml,
    Toml,
}

/// A place in a file: line and column, both from 1, the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Format {
    /// Returns the format of the file `name`: TOML when it ends in `.toml`, YAML otherwise.
    pub(crate) fn of(name: &str) -> Self {
        let extension = Path::new(name).extension();
        if extension.is_some_and(|extension| extension.eq_ignore_ascii_case("toml")) {
            Self::Toml
        } else {
            Self::Yaml
        }
    }

    /// Writes a field with a value that stands without quotes in both formats.
    pub(crate) fn assign(self, field: &str, value: &str) -> String {
        match self {
            Self::Yaml => format!("{field}: {value}"),
            Self::Toml => format!("{field} = {value}"),
        }
    }

    /// Writes a field with a text as its value.
    pub(crate) fn assign_text(self, field: &str, value: &str) -> String {
        match self {
            Self::Yaml => format!("{field}: {value}"),
            Self::Toml => format!("{field} = {value:?}"),
        }
    }

    /// Writes a mapping of one field with a text as its value.
    pub(crate) fn mapping(self, field: &str, value: &str) -> String {
        format!("{{ {} }}", self.assign_text(field, value))
    }
}

impl Source {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        Self { name: name.to_owned(), text: text.to_owned() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Moves a span into the text and onto character boundaries. What lies behind the last line
    /// is moved to that line's end, so that every place is one that an editor shows.
    pub(crate) fn clamp(&self, span: Range<usize>) -> Range<usize> {
        let last = self.text.trim_end_matches(['\n', '\r', ' ', '\t']).len();
        let boundary = |offset: usize| {
            (0..=offset.min(self.text.len()))
                .rev()
                .find(|offset| self.text.is_char_boundary(*offset))
                .unwrap_or(0)
        };
        let start = boundary(span.start.min(last));
        start..boundary(span.end).max(start)
    }

    /// Cuts a span at the end of its first line.
    pub(crate) fn first_line(&self, span: Range<usize>) -> Range<usize> {
        let span = self.clamp(span);
        let line = self.text[span.clone()].split('\n').next().unwrap_or("");
        span.start..span.start + line.trim_end().len()
    }

    pub(crate) fn position(&self, offset: usize) -> Position {
        let offset = self.clamp(offset..offset).start;
        let before = &self.text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Position {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    /// Returns the span of the whole lines that `span` touches.
    pub(crate) fn lines(&self, span: Range<usize>) -> Range<usize> {
        let span = self.clamp(span);
        let start = self.text[..span.start].rfind('\n').map_or(0, |newline| newline + 1);
        let end =
            self.text[span.end..].find('\n').map_or(self.text.len(), |newline| span.end + newline);
        start..end
    }

    /// Replaces the spans and everything between `://` and `@` in a line by stars, byte for byte,
    /// so that no rendering shows a password.
    pub(crate) fn mask(&mut self, secrets: &[Range<usize>]) {
        let mut spans: Vec<_> = secrets.iter().map(|span| self.clamp(span.clone())).collect();
        let mut line_start = 0;
        for line in self.text.split_inclusive('\n') {
            if let (Some(scheme), Some(at)) = (line.find("://"), line.rfind('@'))
                && scheme + 3 < at
            {
                spans.push(line_start + scheme + 3..line_start + at);
            }
            line_start += line.len();
        }
        for span in spans {
            let stars = self.text[span.clone()]
                .chars()
                .map(|character| match character {
                    '\n' | '\r' => character.to_string(),
                    _ => "*".repeat(character.len_utf8()),
                })
                .collect::<String>();
            self.text.replace_range(span, &stars);
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters_from_1() {
        let source = Source::new("x", "a: é1\r\nb: 2\n");
        let at = |offset| {
            let position = source.position(offset);
            (position.line, position.column)
        };
        assert_eq!(at(0), (1, 1));
        assert_eq!(at(5), (1, 5));
        assert_eq!(at(8), (2, 1));
        assert_eq!(at(4), (1, 4), "inside of a character");
        assert_eq!(at(1_000), (2, 5), "behind the end");
        assert_eq!(Source::new("x", "").position(7), Position { line: 1, column: 1 });
    }

    #[test]
    fn passwords_are_masked_without_moving_anything() {
        let text = "url: redis://user:p@ss/w\u{f6}rd@host:6379\npassword: hunter2\n";
        let mut source = Source::new("x", text);
        let secret = text.find("hunter2").unwrap();
        source.mask(std::slice::from_ref(&(secret..secret + 7)));
        assert_eq!(source.text(), "url: redis://***************@host:6379\npassword: *******\n");
        assert_eq!(source.text().len(), text.len());
    }

    #[test]
    fn only_names_that_end_in_toml_are_toml() {
        assert_eq!(Format::of("a/b.toml"), Format::Toml);
        assert_eq!(Format::of("B.TOML"), Format::Toml);
        for name in ["a.yaml", "a.yml", "a.toml.yaml", "toml", ""] {
            assert_eq!(Format::of(name), Format::Yaml, "{name}");
        }
    }
}
