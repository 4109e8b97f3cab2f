//! Comma-separated lists, read from the right.

/// The longest entry that is looked at, in bytes.
///
/// An address needs 53. An element of `Forwarded` may also repeat the `Host` that a client sent,
/// and it must not be able to push its own address out of sight with a long one.
const ENTRY_LEN_MAX: usize = 8 * 1024;

/// The entries of one header line from right to left, trimmed; `None` for one that is malformed.
///
/// Reading from the right matters for quotes as well: what a trusted proxy has appended is read
/// the same whatever stands to the left of it. Read from the left, a quote that a client opens
/// would swallow it.
pub(super) struct FromRight<'a> {
    rest: Option<&'a [u8]>,
    quotes: bool,
}

impl<'a> FromRight<'a> {
    /// Reads entries that every comma ends.
    pub(super) const fn plain(line: &'a [u8]) -> Self {
        Self { rest: Some(line), quotes: false }
    }

    /// Reads entries that may hold commas inside of quoted strings.
    pub(super) const fn with_quotes(line: &'a [u8]) -> Self {
        Self { rest: Some(line), quotes: true }
    }
}

impl<'a> Iterator for FromRight<'a> {
    type Item = Option<&'a str>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        let mut quoted = false;
        let mut start = rest.len();
        while start > 0 {
            if rest.len() - start > ENTRY_LEN_MAX {
                return Some(None);
            }
            match rest[start - 1] {
                b',' if !quoted => {
                    self.rest = Some(&rest[..start - 1]);
                    break;
                }
                b'"' if self.quotes && !(quoted && is_escaped(&rest[..start - 1])) => {
                    quoted = !quoted;
                }
                _ => {}
            }
            start -= 1;
        }
        let entry = std::str::from_utf8(&rest[start..]).ok().filter(|_| !quoted);
        Some(entry.map(|entry| entry.trim_matches([' ', '\t'])))
    }
}

/// Tells whether the byte after `before` is escaped: an odd number of backslashes precedes it.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}
